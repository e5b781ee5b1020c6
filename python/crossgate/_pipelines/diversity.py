"""Deduplication, and reordering by maximal marginal relevance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import crossgate._core as _core
from crossgate._pipelines.hits import (
    H,
    body_of,
    metadata_of,
    readable_time_of,
    score_of,
    text_of,
    vector_of,
    with_score,
)
from crossgate._support.checks import (
    check_count,
    check_hits,
    check_number,
    check_numbers,
    check_text,
)
from crossgate._support.errors import InputError

SIMILARITY = 0.7
TRADE_OFF = 0.7


def deduplicate(
    hits: Sequence[H], *, source: str = "source_id", similarity: float | None = SIMILARITY
) -> list[H]:
    """Drop hits that repeat a better hit.

    First, only the best hit of each source is kept; hits are of the same source if their metadata
    has the same value under `source`. Then near-duplicates are merged: hits whose sets of
    three-word shingles have a Jaccard similarity of at least `similarity`, and whose words with
    digits are the same, so that two messages that differ in a number stay separate. The same must
    hold with their bodies, if any has one. A group keeps the rank and score of its best hit. It
    keeps the content of its newest hit if all have a date (see `time_of`), else that of its best.
    Hits without text are never duplicates.

    Each pair is compared exactly, which is faster than hashing for the few hundred hits of a query.

    Args:
        hits: Best first.
        source: Key of the metadata that names the source of a hit.
        similarity: In (0, 1]; None to compare only sources.

    Raises:
        InputError: `out_of_range` for a similarity outside its limits.
    """
    check_hits("hits", hits)
    check_text("the source", source)
    if similarity is not None:
        check_number("the similarity", similarity, 0, 1, above=True)
    seen: set[object] = set()
    best = []
    for hit in hits:
        cut_from = metadata_of(hit).get(source)
        # An empty name names no source, and True is not the number 1.
        if isinstance(cut_from, str | int) and not isinstance(cut_from, bool) and cut_from != "":
            if cut_from in seen:
                continue
            seen.add(cut_from)
        best.append(hit)
    if similarity is None:
        return best
    heads = [text_of(hit) for hit in best]
    whole = [f"{head}\n{body_of(hit)}" for head, hit in zip(heads, best, strict=True)]
    groups = [
        group
        for alike in _repeats(range(len(best)), heads, similarity)
        for group in (
            _repeats(alike, whole, similarity)
            if any(body_of(best[position]) for position in alike)
            else [alike]
        )
    ]
    return [_representative([best[position] for position in group]) for group in sorted(groups)]


def diversify(
    hits: Sequence[H],
    *,
    k: int | None = None,
    relevance: Sequence[float] | None = None,
    trade_off: float = TRADE_OFF,
    by: Literal["words", "vectors"] = "words",
) -> list[H]:
    """Order hits by maximal marginal relevance: relevant, and unlike those before them.

    The next hit is the one with the largest `trade_off * relevance - (1 - trade_off) * similarity`,
    where similarity is the largest to any earlier hit. Run this last: it needs the final scores,
    and does not change them. Carbonell and Goldstein, "The Use of MMR, Diversity-Based
    Reranking for Reordering Documents and Producing Summaries" (1998).

    Args:
        hits: The hits, in any order; a tie goes to the more relevant, then to the smaller id.
        k: Maximum number to return; None for all.
        relevance: One number per hit, best in [0, 1], the range of the similarity; None for their
            scores.
        trade_off: In [0, 1]: 1 orders by relevance alone, 0 by dissimilarity alone.
        by: Compare `words` (Jaccard similarity of the sets of words) or `vectors` (cosine).

    Raises:
        InputError: `out_of_range` for `k` or a trade-off outside its limits; `malformed_candidate`
            for a hit without a score, or without a vector if vectors are compared; `not_finite`,
            `wrong_dimension` or `zero_vector` for numbers or vectors that cannot be compared.
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
    return [hits[position] for position in order]


def _repeats(positions: Sequence[int], texts: Sequence[str], similarity: float) -> list[list[int]]:
    """Return the positions in groups of those whose texts repeat each other."""
    groups: dict[int, list[int]] = {}
    earlier = _core.near_duplicates([texts[position] for position in positions], similarity)
    for position, repeated in zip(positions, earlier, strict=True):
        groups.setdefault(position if repeated is None else positions[repeated], []).append(
            position
        )
    return list(groups.values())


def _representative(group: Sequence[H]) -> H:
    """Return the newest of a group, best first, with the score of the best."""
    times = [readable_time_of(hit) for hit in group] if len(group) > 1 else []
    dates = [time for time in times if time is not None]
    if len(dates) < len(group):
        return group[0]
    newest = group[times.index(max(dates))]
    return newest if newest is group[0] else with_score(newest, score_of(group[0]))


def _vector(hit: H) -> Sequence[float]:
    vector = vector_of(hit)
    if vector is None:
        raise InputError(
            "malformed_candidate", f"hit {hit.id!r} has no vector: add one, or compare words"
        )
    return vector
