"""`rerank` reorders the candidates that another retriever found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from crossgate import _core
from crossgate._candidates import candidate, check_kept_scores
from crossgate._cascade import Request, Stage1
from crossgate._checks import check_limit, check_query, check_request
from crossgate._clock import Deadline, milliseconds
from crossgate._core import Policy, Profile
from crossgate._errors import InputError
from crossgate._index import Index
from crossgate._model_files.manifest import PASSAGE_RERANKER
from crossgate._profile import as_policy, as_profile, read_profile
from crossgate._reranking.choice import check_fitted, identities, listed, loaders, no_profile
from crossgate._twins import adecides, decides
from crossgate._types import Degradation, Document, Vector

if TYPE_CHECKING:
    from crossgate._reranking.choice import Choice
    from crossgate._telemetry.events import TelemetryHook

PASSAGE_PROFILE = Path(__file__).parent / "profiles" / "passages.json"

MOST_CANDIDATES = 1_000_000
"""The most candidates that stage 2 may read."""


def _prepare(
    query: str,
    candidates: Iterable[str | Mapping[str, Any] | Document],
    *,
    limit: int | None = None,
    vector: Vector | None = None,
    reranker: Choice = "default",
    profile: Profile | str | PathLike[str] | None = None,
    policy: Policy | str | PathLike[str] | None = None,
    language: str = "english",
    section: str | None = None,
    grade: str | None = None,
    budget_ms: float | None = None,
    telemetry: TelemetryHook | None = None,
    keep_scores: bool = False,
) -> Request:
    """Reorder the candidates that another retriever found, by the same cascade as `Router`.

    Stage 1 is BM25 over the candidates, blended with their cosines where every candidate brings
    one (or a vector, and the query's is given). Where every candidate brings a `score` instead,
    the retriever's order is stage 1. Without a profile the gate is off, since nobody fitted
    thresholds for these numbers: all candidates are reranked and come back in order.

    Args:
        query: What is wanted, at most 65,536 characters.
        candidates: Texts, `Candidate` or `Document` values, or mappings with the fields of a
            `Candidate`, of which only `text` is needed. A text without an id gets its position
            as id.
        limit: How many are selected at most; None for all that pass.
        vector: The query's embedding, to be compared with the candidates' vectors.
        reranker: Stage 2: a reranker, the name or folder of a model, a sequence of these as in
            `Router`, or None for stage 1 alone. By default the bundled ms-marco-minilm-l12, which
            was trained for passages.
        profile: What was fitted for these models and this retriever: a profile or its file.
        policy: What you choose: a policy or its file.
        language: Snowball language of the stemmer, or `none`.
        section: Picks a floor of the policy, as in `Router.route`.
        grade: How good you find the retrieval, as in `Router.route`.
        budget_ms: Milliseconds that the decision may take, as in `Router.route`.
        telemetry: Is told what happens; None for nobody.
        keep_scores: Take the candidates' scores, which must all be there and lie in [0, 1], for the
            blend of stage 1 as they are, as fusion and decay made them. The gate sees the cosines
            that there are all the same.

    Returns:
        The decision; no candidates give `nothing_relevant`, not an error.

    Raises:
        InputError: Bad input, as in `Router.route`; `malformed_candidate`, `duplicate_id` or
            `empty_document` naming the candidate.
        ProfileError: If the profile cannot be read, or was fitted for another reranker.
        ModelError: If the reranker is given by a name or folder that cannot be used.
    """
    deadline = Deadline(budget_ms)
    check_query(query)
    check_limit(limit)
    check_request(section, grade)
    if isinstance(candidates, str | Mapping):
        raise InputError("malformed_candidate", "candidates is a single one: pass a list")
    found = [candidate(place, one) for place, one in enumerate(candidates, start=1)]
    if keep_scores:
        check_kept_scores(found)
    rerankers = listed(reranker)
    known = identities(rerankers, PASSAGE_RERANKER)
    notes: tuple[Degradation, ...] = ()
    if profile is None:
        ordered = vector is not None or any(
            one.score is not None or one.cosine is not None for one in found
        )
        fitted = _default_profile(known, len(found), ordered=ordered)
        if fitted.reranker is None:
            notes = (no_profile("", known),)
    else:
        fitted = as_profile(profile)
        check_fitted(fitted, None, known)
    comparable = vector is not None and all(one.vector is not None for one in found)
    index = Index(_core.Index(language, "", len(vector or ()) if comparable else 0), None)
    index.upsert(one if comparable else replace(one, vector=None) for one in found)

    def stage1() -> Stage1:
        start = perf_counter()
        scored, _ = index.search(
            query,
            vector if comparable else None,
            blend=fitted.blend,
            per_channel=max(2, len(found)),
        )
        if keep_scores or not comparable:
            scored = _core.known_elsewhere(
                scored,
                cosines={one.id: one.cosine for one in found if one.cosine is not None},
                scores={one.id: one.score for one in found if one.score is not None},
                keep=keep_scores,
                blend=fitted.blend,
            )
        return Stage1(
            scored=scored,
            documents={one.id: one for one in found},
            degraded=notes,
            timings={"search": milliseconds(start)},
        )

    return Request(
        query=query,
        stage1=stage1,
        profile=fitted,
        policy=as_policy(policy),
        rerankers=loaders(rerankers, PASSAGE_RERANKER),
        limit=limit,
        section=section,
        grade=grade,
        deadline=deadline,
        telemetry=telemetry,
    )


def _default_profile(rerankers: Sequence[str | None], count: int, *, ordered: bool) -> Profile:
    """Return the bundled profile for passages if it was fitted for the reranker, else an open gate.

    Args:
        rerankers: Identities of the rerankers, in order of preference.
        count: How many candidates there are; all are read.
        ordered: Whether the retriever's own scores order them. Nobody fitted weights for these, so
            that both orders are joined by their ranks.
    """
    bundled = read_profile(PASSAGE_PROFILE)
    fitted = bundled if rerankers and rerankers[0] == bundled.reranker else Profile()
    if ordered:
        fitted = fitted.replace(combine=Profile().combine)
    return fitted.replace(pool=min(max(1, count), MOST_CANDIDATES))


rerank = decides("rerank")(_prepare)
arerank = adecides(
    "arerank",
    "Do what `rerank` does, with the same arguments, without holding up the event loop.",
)(_prepare)
