"""Two whole pipelines, from retrieved lists to the final context, made of the public steps.

    agent_memory      fuse -> deduplicate -> decay -> gate -> cross-encoder on 15 -> top 5
    context_engine    fuse -> decay -> gate -> cross-encoder -> limit x 3 -> diversify -> limit

Each returns the `RouteResult` of the cascade, with its verdict, guardrails, degradations and trace.
If no recipe suits you, write your own: each is a few lines, and every step is a function of lists
of hits.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

from crossgate._core import Combine, Policy, Profile, Winner
from crossgate._decision.rerank_candidates import rerank
from crossgate._pipelines.diversity import deduplicate, diversify
from crossgate._pipelines.fusion import as_shares, reciprocal_rank
from crossgate._pipelines.hits import as_utc, decay
from crossgate._support.checks import check_count, check_kind, check_query
from crossgate._support.errors import InputError
from crossgate._values.results import Candidate, Hit, RouteResult

if TYPE_CHECKING:
    from crossgate._core import Scored
    from crossgate._reranking.contract import Reranker
    from crossgate._retrieval.document_index import Index, SearchResult

_log = logging.getLogger("crossgate")

Retrieve = Callable[[str, int], Sequence[Sequence[Candidate]]]
"""Takes a query and a limit; returns one list per store, best first, of at most that length.

The candidates' metadata must be JSON values, so a date in it is a string or a number.
"""

AGREEMENT = Profile(
    name="agreement",
    winner=Winner(agreed=0.0),
    pool=1_000,
    combine=Combine.Rrf(k=10.0),
)
"""The default profile of the recipes: no threshold, nothing to fit.

The cross-encoder is skipped if one candidate is the best by words, by meaning and after decay.
Nothing is ever irrelevant: that needs thresholds, and those need labelled data.

The cross-encoder's order is combined with the fused order by rank. To order by the logits alone,
and to let diversity weigh their sigmoid, pass a copy with `combine={"mode": "replace"}`. With the
bundled models that lost recall on both dated sets of `eval/`; with a larger model it may not.
"""

_SWITCH = {text: True for text in ("1", "true", "yes", "on")} | {
    text: False for text in ("0", "false", "no", "off")
}
_MOST = 1_000

K_PARAM = 2.0
"""Constant of the recipes' fusion by rank.

With the usual 60, the twentieth hit of a list scores three quarters of the first, so that twelve
days of age outweigh nineteen ranks, and decay almost sorts by date. After fusion and decay,
recall@5 is 0.93 with 2 and 0.75 with 60 on `eval/memory`, 0.70 and 0.53 on `eval/chunks`; without
decay it is 0.97 with both, and 0.76 and 0.68 (`python eval/fusion_constant.py eval/memory
eval/chunks`).
"""


def agent_memory(
    query: str,
    retrieve: Retrieve,
    *,
    now: datetime,
    limit: int = 5,
    reranker: Reranker | str | PathLike[str] | None = "default",
    profile: Profile | str | PathLike[str] = AGREEMENT,
    policy: Policy | str | PathLike[str] | None = None,
    k_param: float = K_PARAM,
) -> RouteResult:
    """Pick the memories that an agent should see: recent, relevant and without repetition.

    Takes 20 candidates per store, fuses them by rank, keeps one per source, drops near-duplicates
    and applies decay. If the gate is in doubt, the cross-encoder reads the top 15.

    Args:
        query: The query.
        retrieve: The retriever; `from_index` makes one from an index.
        now: The current time, from which ages are computed.
        limit: Maximum number to select.
        reranker: As in `crossgate.rerank`.
        profile: Thresholds for the fused and aged scores, see `crossgate.rerank(keep_scores=True)`.
        policy: As in `crossgate.rerank`.
        k_param: Constant of the fusion by rank, see `K_PARAM`.

    Raises:
        InputError: As the steps do. Whatever `retrieve` raises is not caught.
        ProfileError: If the profile cannot be read, or was fitted for another reranker.
        ModelError: If the reranker is given by a name or folder that cannot be used.
    """
    _check(query, limit, retrieve)
    per_store = retrieve(query, 20)
    aged = decay(deduplicate(fused(per_store, k_param=k_param)), now=now)
    result = rerank(
        query,
        aged[:15],
        limit=limit,
        reranker=reranker,
        profile=profile,
        policy=policy,
        keep_scores=True,
    )
    return _recorded("agent_memory", result, per_store, now)


def context_engine(
    query: str,
    retrieve: Retrieve,
    *,
    now: datetime,
    limit: int = 5,
    switches: Switches | None = None,
    profile: Profile | str | PathLike[str] = AGREEMENT,
    policy: Policy | str | PathLike[str] | None = None,
    k_param: float = K_PARAM,
) -> RouteResult:
    """Pick a context that is recent, relevant and does not repeat itself.

    Takes `limit` x 4 candidates per store, fuses them by rank and applies decay. If the gate is in
    doubt, the cross-encoder reads them. The best `limit` x 3 are ordered by maximal marginal
    relevance with a trade-off of 0.7.

    Args:
        query: The query.
        retrieve: The retriever; `from_index` makes one from an index.
        now: The current time, from which ages are computed.
        limit: Maximum number to select.
        switches: The settings; None to read them from the environment.
        profile: Thresholds for the fused and aged scores, see `crossgate.rerank(keep_scores=True)`.
        policy: As in `crossgate.rerank`.
        k_param: Constant of the fusion by rank, see `K_PARAM`.

    Raises:
        InputError: As the steps do, and `malformed_setting` for the environment. Whatever
            `retrieve` raises is not caught.
        ProfileError: If the profile cannot be read, or was fitted for another reranker.
        ModelError: If the reranker is given by a name or folder that cannot be used.
    """
    _check(query, limit, retrieve)
    if switches is not None:
        check_kind("switches", switches, Switches, "Switches, or None for the environment")
    switches = switches or Switches.from_environment()
    per_store = retrieve(query, limit * (switches.retrieval_multiplier if switches.enabled else 1))
    aged = decay(fused(per_store, k_param=k_param), now=now)
    result = rerank(
        query,
        aged,
        limit=limit * switches.top_k_factor,
        reranker=switches.model if switches.enabled else None,
        profile=profile,
        policy=policy,
        keep_scores=True,
    )
    result = diversified(result, limit=limit)
    return _recorded("context_engine", result, per_store, now)


def _check(query: str, limit: object, retrieve: object) -> None:
    check_query(query)
    check_count("the limit", limit)
    check_kind("retrieve", retrieve, Callable, "a function that takes a query and a number")


@dataclass(frozen=True, slots=True, kw_only=True)
class Switches:
    """Settings of `context_engine` that an operator can change without changing code.

    Attributes:
        enabled: Whether a cross-encoder is asked at all.
        model: The cross-encoder: a reranker, the name or folder of a model, or `default`.
        top_k_factor: How many hits reach the diversity step, as a multiple of the limit; at least
            1.
        retrieval_multiplier: How many candidates each store is asked for, as a multiple of the
            limit; at least 1. Ignored if the cross-encoder is off.
    """

    enabled: bool = True
    model: Reranker | str | PathLike[str] = "default"
    top_k_factor: int = 3
    retrieval_multiplier: int = 4

    def __post_init__(self) -> None:
        for name in ("top_k_factor", "retrieval_multiplier"):
            if getattr(self, name) < 1:
                raise InputError(
                    "out_of_range", f"{name} is {getattr(self, name)}: it must be at least 1"
                )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Switches:
        """Read the variables `CROSSGATE_CONTEXT_ENGINE_RERANKER_...`.

        They end in `ENABLED`, `MODEL`, `TOP_K_FACTOR` and `RETRIEVAL_MULTIPLIER`. A variable that
        is not set, or empty, leaves the default.

        Raises:
            InputError: `malformed_setting`, with the variable, its value and the allowed values.
        """
        settings: dict[str, Any] = {}
        for name in ("enabled", "model", "top_k_factor", "retrieval_multiplier"):
            variable = f"CROSSGATE_CONTEXT_ENGINE_RERANKER_{name.upper()}"
            text = environment.get(variable, "").strip()
            if text:
                settings[name] = _setting(name, variable, text)
        return cls(**settings)


def _setting(name: str, variable: str, text: str) -> object:
    """Return the value of a switch that the environment has as text."""
    if name == "model":
        return text
    value: int | None = None
    if name == "enabled":
        value, remedy = _SWITCH.get(text.lower()), ", ".join(_SWITCH)
    else:
        remedy = f"a whole number from 1 to {_MOST:,}"
        if len(text) <= 4 and text.isascii() and text.isdecimal() and 1 <= int(text) <= _MOST:
            value = int(text)
    if value is None:
        raise InputError("malformed_setting", f"{variable} is {text!r}: use {remedy}")
    return value


def fused(per_store: Sequence[Sequence[Candidate]], *, k_param: float = K_PARAM) -> list[Candidate]:
    """Fuse by rank, with scores in [0, 1]: 1 for a document that is first in every store.

    Raises:
        InputError: As `crossgate._pipelines.fusion.reciprocal_rank` does.
    """
    hits = reciprocal_rank(per_store, k_param=k_param)
    return as_shares(hits, stores=max(1, len(per_store)), k_param=k_param)


def from_index(index: Index, *, by: Literal["words", "both"] = "both") -> Retrieve:
    """Return a retriever over an index: by words (BM25), and by meaning (cosine).

    Args:
        index: The index. Without vectors, the second list is empty.
        by: `both`, or `words` for one list and no embedder.

    Raises:
        IndexFileError: `embedder_mismatch`, when called, if the index's embedder is not installed.
        ModelError: When called, if the embedder cannot be loaded or run.
    """

    def retrieve(query: str, limit: int) -> list[list[Candidate]]:
        dense = by == "both" and index.dimension
        vector = index.load_embedder().embed([query])[0] if dense else None
        results = index.search(query, vector, per_channel=max(2, limit), embed=False)
        by_words = _best(results, lambda candidate: candidate.bm25 or None, limit)
        by_meaning = _best(results, lambda candidate: candidate.cosine, limit)
        return [by_words, by_meaning][: 1 + (by == "both")]

    return retrieve


def diversified(result: RouteResult, *, limit: int, trade_off: float = 0.7) -> RouteResult:
    """Return a result with its selection ordered by maximal marginal relevance and cut to a limit.

    The selected hits are also reordered within `hits`. Relevance is the sigmoid of a score made of
    logits, the share of the best possible score under reciprocal rank fusion, and otherwise
    the score itself.

    Args:
        result: A decision of the cascade.
        limit: Maximum number of hits that stay selected.
        trade_off: As in `crossgate._pipelines.diversity.diversify`.

    Raises:
        InputError: As `diversify` does.
    """
    check_kind("the result", result, RouteResult, "what route or rerank returned")
    mode = result.trace["profile"]["combine"]
    if any(note.code == "reranker_not_fitted" for note in result.degraded):
        mode = Profile().to_dict()["combine"]  # the core combines such scores in this way
    relevance = [_relevance(hit, mode) for hit in result.selected]
    selected = diversify(result.selected, k=limit, relevance=relevance, trade_off=trade_off)
    ids = {hit.id for hit in selected}
    cut = [replace(hit, dropped="over_limit") for hit in result.selected if hit.id not in ids]
    # `postprocess` reads the order of `hits`, so the selected hits are reordered there, too.
    placed = iter([*selected, *cut])
    hits = tuple(next(placed) if hit.dropped is None else hit for hit in result.hits)
    trace = {
        **result.trace,
        "diversified": {"trade_off": trade_off, "order": [hit.id for hit in selected]},
    }
    return replace(result, selected=tuple(selected), hits=hits, trace=trace)


def _relevance(hit: Hit, combine: Mapping[str, Any]) -> float:
    score = hit.score or 0.0
    if hit.stage2_rank is None:
        return score
    if combine["mode"] == "rrf":
        return score * (float(combine["k"]) + 1) / 2
    # exp of a large number overflows; of a large negative one it is 0.
    return 1 / (1 + math.exp(-score)) if score >= 0 else math.exp(score) / (1 + math.exp(score))


def _best(
    results: SearchResult, score: Callable[[Scored], float | None], limit: int
) -> list[Candidate]:
    pairs = [(value, scored) for scored in results.scored if (value := score(scored)) is not None]
    pairs.sort(key=lambda pair: (-pair[0], pair[1].id))
    return [
        Candidate(
            id=scored.id,
            title=results.documents[scored.id].title,
            text=results.documents[scored.id].text,
            body=results.documents[scored.id].body,
            metadata=results.documents[scored.id].metadata,
            cosine=scored.cosine,
            score=value,
        )
        for value, scored in pairs[:limit]
    ]


def _recorded(
    name: str, result: RouteResult, per_store: Sequence[Sequence[Candidate]], now: datetime
) -> RouteResult:
    """Log latency and the range of scores, and add the retrieved ids to the trace."""
    scores = [hit.rerank_score for hit in result.hits if hit.rerank_score is not None]
    scored = f"scores {min(scores):.2f} to {max(scores):.2f}" if scores else "no rerank scores"
    _log.info(
        "%s: %s candidates, %s, stage 2 took %.1f ms of %.1f, %s, %d selected",
        name,
        "+".join(str(len(hits)) for hits in per_store) or "no",
        result.reason,
        result.timings.get("stage2", 0.0),
        result.timings["total"],
        scored,
        len(result.selected),
    )
    retrieved = [[hit.id for hit in hits] for hits in per_store]
    recipe = {"name": name, "now": as_utc(now).isoformat(), "retrieved": retrieved}
    return replace(result, trace={**result.trace, "recipe": recipe})
