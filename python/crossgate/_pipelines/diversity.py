"""Near-duplicates, and an order of hits that is relevant without repeating itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import crossgate._core as _core
from crossgate._checks import (
    check_count,
    check_hits,
    check_number,
    check_numbers,
    check_text,
)
from crossgate._errors import InputError
from crossgate._pipelines.hits import (
    H,
    metadata_of,
    readable_time_of,
    score_of,
    text_of,
    vector_of,
    with_score,
)

SIMILARITY = 0.7
TRADE_OFF = 0.7


def deduplicate(
    hits: Sequence[H], *, source: str = "source_id", similarity: float | None = SIMILARITY
) -> list[H]:
    """Leave out what a better hit says already.

    First one hit per source is kept, the best: hits whose metadata hold the same value under
    `source`. Then near-duplicates are collapsed: hits whose sets of three-word shingles have a
    Jaccard similarity of at least `similarity` and whose words with digits are all the same, so
    that two messages that differ in a number stay two. The group keeps the place and score of its
    best hit and the content of its newest, if all tell when they were written, see
    `time_of`, else of its best. Hits without text repeat nothing.

    Each pair is compared exactly. For the few hundred hits of a query that is faster than hashing
    them would be, and no estimate.

    Args:
        hits: Best first.
        source: Name in the metadata of what a hit was cut from.
        similarity: In (0, 1]; None to compare sources alone.

    Raises:
        InputError: `out_of_range` for a similarity outside of its limits.
    """
    check_hits("hits", hits)
    check_text("the source", source)
    if similarity is not None:
        check_number("the similarity", similarity, 0, 1, above=True)
    seen: set[object] = set()
    kept = []
    for hit in hits:
        cut_from = metadata_of(hit).get(source)
        # An empty name is none, and True is not the number 1.
        if isinstance(cut_from, str | int) and not isinstance(cut_from, bool) and cut_from != "":
            if cut_from in seen:
                continue
            seen.add(cut_from)
        kept.append(hit)
    if similarity is None:
        return kept
    groups: dict[int, list[H]] = {}
    repeats = _core.near_duplicates([text_of(hit) for hit in kept], similarity)
    for place, (hit, earlier) in enumerate(zip(kept, repeats, strict=True)):
        groups.setdefault(place if earlier is None else earlier, []).append(hit)
    return [_representative(group) for group in groups.values()]


def diversify(
    hits: Sequence[H],
    *,
    k: int | None = None,
    relevance: Sequence[float] | None = None,
    trade_off: float = TRADE_OFF,
    by: Literal["words", "vectors"] = "words",
) -> list[H]:
    """Order hits by maximal marginal relevance: relevant, and unlike those that stand before.

    The next hit is the one with the largest `trade_off * relevance - (1 - trade_off) * similarity`,
    where similarity is the largest to any hit before. Do this last: it needs the best scores there
    are, and it does not replace them. Carbonell and Goldstein, "The Use of MMR, Diversity-Based
    Reranking for Reordering Documents and Producing Summaries" (1998).

    Args:
        hits: The hits, in any order; a tie goes to the more relevant, then to the smaller id.
        k: Maximum number to return; None for all.
        relevance: One number per hit, best in [0, 1], the range of the similarity; None for their
            scores.
        trade_off: In [0, 1]: 1 is the order of relevance, 0 minds the difference alone.
        by: Compare `words` (Jaccard similarity of the sets of words) or `vectors` (cosine).

    Raises:
        InputError: `out_of_range` for `k` or a trade-off outside of its limits;
            `malformed_candidate` for a hit without score, or without vector where vectors are
            compared; `not_finite`, `wrong_dimension` or `zero_vector` for numbers that have no
            order or direction.
    """
    check_hits("hits", hits)
    if k is not None:
        check_count("k", k)
    if relevance is not None:
        check_numbers("relevance", relevance, finite=False)  # the core names the hit
    check_number("the trade-off", trade_off, 0, 1)
    values = [score_of(hit) for hit in hits] if relevance is None else list(relevance)
    ids, limit = [hit.id for hit in hits], len(hits) if k is None else k
    if by == "words":
        texts = [text_of(hit) for hit in hits]
        order = _core.diversify_words(ids, values, texts, trade_off=trade_off, limit=limit)
    elif by == "vectors":
        vectors = [_vector(hit) for hit in hits]
        order = _core.diversify_vectors(ids, values, vectors, trade_off=trade_off, limit=limit)
    else:
        raise InputError("out_of_range", f"by is {by!r}: compare words or vectors")
    return [hits[place] for place in order]


def _representative(group: Sequence[H]) -> H:
    """Return the newest of a group, best first, with the score of the best."""
    times = [readable_time_of(hit) for hit in group] if len(group) > 1 else []
    known = [time for time in times if time is not None]
    if len(known) < len(group):
        return group[0]
    newest = group[times.index(max(known))]
    return newest if newest is group[0] else with_score(newest, score_of(group[0]))


def _vector(hit: H) -> Sequence[float]:
    vector = vector_of(hit)
    if vector is None:
        raise InputError(
            "malformed_candidate", f"hit {hit.id!r} has no vector: pass it along, or compare words"
        )
    return vector
