"""Steps after the reranker: pure functions from a list of hits to a list of hits.

A result's hits are its candidates, best first; selected hits hold *slots*. Each step returns every
hit exactly once, in a new order, and changes no score. The reordering steps (`prefer_sources`,
`spread_documents`, `diversify_sources`) reassign the slots and keep their number; only hits that
are selected or `over_limit` take part, the others keep their positions. The protecting steps
(`readmit_recovered`, `keep_survivors`) add slots for hits that were cut only for lack of room:
`over_limit`, `not_reranked` or `below_cliff`. No step brings back a hit that a guardrail, a floor
or the gate dropped, and none turns an abstention into an answer.

    from functools import partial
    from crossgate._pipelines.postprocessing import postprocess, prefer_sources, readmit_recovered

    order = partial(prefer_sources, order=["user", "excel", "pdf"])
    result = postprocess(result, [order, readmit_recovered], limit=5)

Reorder first and protect last: a step after `readmit_recovered` may give its slots to other hits.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from crossgate._decision.cascade import STAGE1
from crossgate._support.checks import (
    check_count,
    check_hits,
    check_kind,
    check_limit,
    check_number,
    check_text,
    safe_repr,
)
from crossgate._support.errors import InputError
from crossgate._support.wording import counted
from crossgate._values.results import Hit, RouteResult

Step = Callable[[Sequence[Hit]], list[Hit]]
"""A step of `postprocess`; use `functools.partial` to make a step with options."""

LEXICAL_PROVIDERS = frozenset({STAGE1, "semantic-bm25", "semantic_bm25"})
"""Providers whose scores are closer together than those of a cross-encoder."""

OVER_LIMIT = "over_limit"
_CUT = frozenset({OVER_LIMIT, "not_reranked", "below_cliff"})


def postprocess(
    result: RouteResult, steps: Sequence[Step], *, limit: int | None = None
) -> RouteResult:
    """Return a result after running the steps over its hits, in order.

    The trace keeps the decision of the cascade, so that it still replays. Its key `steps` lists the
    steps with the ids selected after each of them.

    Args:
        result: The decision; it is not changed.
        steps: The steps, in this order.
        limit: How many hits hold slots before the first step; None to keep their number. A limit
            above that of the decision gives slots back to hits that were `over_limit`, unless
            nothing was selected.

    Raises:
        InputError: `out_of_range` for a limit below 1; `malformed_step` if a step loses, duplicates
            or invents a hit.
    """
    check_kind("the result", result, RouteResult, "what route or rerank returned")
    check_kind("steps", steps, Sequence, "a list of functions from hits to hits")
    for step in steps:
        check_kind("a step", step, Callable, "a function from hits to hits")
    check_limit(limit)
    hits = list(result.hits)
    if limit is not None and result.selected:  # an abstention has no slots to give
        hits = _reseat(hits, _eligible(hits), limit)
    noted = list(result.trace.get("steps", ()))
    if limit is not None:
        noted.append({"step": "limit", "selected": _selected(hits)})
    for step in steps:
        before = Counter(hit.id for hit in hits)
        hits = list(step(tuple(hits)))
        after = Counter(hit.id for hit in hits)
        if after != before:
            wrong = sorted((before - after) + (after - before))[0]
            raise InputError(
                "malformed_step",
                f"step {_name(step)} was given hit {wrong!r} {counted(before[wrong], 'time')} and "
                f"returned it {counted(after[wrong], 'time')}: return every hit once",
            )
        noted.append({"step": _name(step), "selected": _selected(hits)})
    return replace(
        result,
        hits=tuple(hits),
        selected=tuple(hit for hit in hits if hit.dropped is None),
        trace={**result.trace, "steps": noted},
    )


def prefer_sources(
    hits: Sequence[Hit],
    *,
    order: Sequence[str],
    margin: float = 0.01,
    key: str = "source_type",
) -> list[Hit]:
    """Let the source decide between hits whose scores are almost equal.

    Hits are ordered by their score plus a boost. The boost falls in equal steps from the first
    source of the order to 0 for sources that are not listed, and is always below the margin. With a
    margin of 0.01, a preferred hit of 0.850 goes before another of 0.851, but never one of 0.85
    before one of 0.95. Scores of stage 1 and of a lexical reranker are closer together than those
    of a cross-encoder, so their boosts are half as large. Ties keep their order.

    Args:
        hits: The hits, best first.
        order: Source types, the most trusted first.
        margin: The smallest meaningful difference of two scores, above 0, on the scale of the
            scores: 0.01 suits scores in [0, 1]; for logits and fused ranks pass your own.
        key: The key of the metadata that holds the source type.

    Returns:
        The hits; hits without a score stay behind those that have one.

    Raises:
        InputError: `out_of_range` if the margin is not a number above 0, or the order is a string.
    """
    check_hits("hits", hits)
    check_text("the key", key)
    if isinstance(order, str) or not isinstance(order, Iterable):
        raise InputError("out_of_range", f"the order is {safe_repr(order)}: pass a list of strings")
    check_number("the margin", margin, 0, above=True)
    ranks: dict[str | None, int] = {
        source: rank for rank, source in reversed(list(enumerate(order)))
    }

    def boost(hit: Hit) -> float:
        rank = ranks.get(_text(hit, key), len(order))
        full = margin * (len(order) - rank) / (len(order) + 1)
        return full / 2 if hit.provider in LEXICAL_PROVIDERS else full

    def boosted(hit: Hit) -> float:
        if hit.score is None or math.isnan(hit.score):
            return -math.inf
        return hit.score + boost(hit)

    return _reseat(hits, sorted(_eligible(hits), key=boosted, reverse=True))


def spread_documents(hits: Sequence[Hit], *, most: int = 2, key: str = "document_id") -> list[Hit]:
    """Keep one document from taking every slot: its surplus hits move behind those of others.

    Args:
        hits: The hits, best first.
        most: How many hits of one document go first, at least 1.
        key: The key of the metadata that names the document; a hit without it counts as a document
            of its own.

    Returns:
        The hits: the first `most` of each document in their order, then the surplus in its order.
        Surplus hits get only the slots that are left.

    Raises:
        InputError: `out_of_range` if `most` is below 1.
    """
    check_hits("hits", hits)
    check_text("the key", key)
    check_count("most", most)
    seen: Counter[Hashable] = Counter()
    first: list[Hit] = []
    surplus: list[Hit] = []
    for hit in _eligible(hits):
        document = hit.document.metadata.get(key)
        if isinstance(document, str | int):
            seen[document] += 1
            (first if seen[document] <= most else surplus).append(hit)
        else:
            first.append(hit)
    return _reseat(hits, first + surplus)


def diversify_sources(hits: Sequence[Hit], *, key: str = "source_type") -> list[Hit]:
    """Give a slot to each source type that has none, as long as others hold more than one.

    The best hit of such a type takes the slot of the last hit whose type has another slot, or that
    has no source type. Types are served in the order of their best hits.

    Args:
        hits: The hits, best first.
        key: The key of the metadata that holds the source type.

    Returns:
        The hits. The first hit never loses its slot, and neither does the last of its type.
    """
    check_hits("hits", hits)
    check_text("the key", key)
    eligible = _eligible(hits)
    slots = sum(hit.dropped is None for hit in eligible)
    seated, waiting = eligible[:slots], eligible[slots:]
    held = Counter(_text(hit, key) for hit in seated)
    for hit in list(waiting):
        kind = _text(hit, key)
        if kind is None or held[kind]:
            continue
        replaceable = [
            position
            for position, holder in enumerate(seated)
            if position and ((other := _text(holder, key)) is None or held[other] > 1)
        ]
        if not replaceable:
            break
        replaced = seated.pop(replaceable[-1])
        held[_text(replaced, key)] -= 1
        held[kind] += 1
        waiting.remove(hit)
        seated.append(hit)
        waiting.insert(0, replaced)
    return _reseat(hits, seated + waiting)


def readmit_recovered(hits: Sequence[Hit], *, most: int = 8, key: str = "recovered") -> list[Hit]:
    """Readmit hits that a second retrieval recovered and that were then cut for lack of room.

    Args:
        hits: The hits, best first.
        most: Maximum number to readmit, at least 0.
        key: The key of the metadata that is true for a recovered candidate.

    Returns:
        The hits, with the best recovered ones selected behind those already selected.

    Raises:
        InputError: `out_of_range` if `most` is below 0.
    """
    check_hits("hits", hits)
    check_text("the key", key)
    check_count("most", most, 0)
    recovered = [
        hit for hit in hits if hit.dropped in _CUT and hit.document.metadata.get(key) is True
    ]
    return _readmit(hits, recovered[:most])


def keep_survivors(
    hits: Sequence[Hit], *, floors: Mapping[str, int], key: str = "source_type"
) -> list[Hit]:
    """Readmit the best hits of a source type that has fewer selected hits than its floor.

    Args:
        hits: The hits, best first.
        floors: Minimum number of selected hits by source type, as far as there are hits that were
            cut for lack of room.
        key: The key of the metadata that holds the source type.

    Returns:
        The hits, with the readmitted ones selected behind those already selected.
    """
    check_hits("hits", hits)
    check_text("the key", key)
    selected = Counter(_text(hit, key) for hit in hits if hit.dropped is None)
    back = []
    for hit in hits:
        kind = _text(hit, key)
        if hit.dropped in _CUT and kind is not None and selected[kind] < floors.get(kind, 0):
            selected[kind] += 1
            back.append(hit)
    return _readmit(hits, back)


def _eligible(hits: Sequence[Hit]) -> list[Hit]:
    """Return the hits that compete for the slots."""
    return [hit for hit in hits if hit.dropped in (None, OVER_LIMIT)]


def _reseat(hits: Sequence[Hit], order: Sequence[Hit], slots: int | None = None) -> list[Hit]:
    """Put the eligible hits into an order, and give the slots to the first of them."""
    if slots is None:
        slots = sum(hit.dropped is None for hit in order)
    seated = iter(
        hit if hit.dropped == code else replace(hit, dropped=code)
        for position, hit in enumerate(order)
        for code in (None if position < slots else OVER_LIMIT,)
    )
    return [next(seated) if hit.dropped in (None, OVER_LIMIT) else hit for hit in hits]


def _readmit(hits: Sequence[Hit], back: Sequence[Hit]) -> list[Hit]:
    """Select hits behind the last selected one; none if nothing is selected."""
    selected = [position for position, hit in enumerate(hits) if hit.dropped is None]
    last = max(selected, default=None)
    if last is None:
        return list(hits)
    ids = {hit.id for hit in back}
    return [
        *(hit for hit in hits[: last + 1] if hit.id not in ids),
        *(replace(hit, dropped=None) for hit in back),
        *(hit for hit in hits[last + 1 :] if hit.id not in ids),
    ]


def _text(hit: Hit, key: str) -> str | None:
    value = hit.document.metadata.get(key)
    return value if isinstance(value, str) else None


def _selected(hits: Sequence[Hit]) -> list[str]:
    return [hit.id for hit in hits if hit.dropped is None]


def _name(step: Step) -> str:
    while isinstance(step, partial):
        step = step.func
    return getattr(step, "__name__", type(step).__name__)
