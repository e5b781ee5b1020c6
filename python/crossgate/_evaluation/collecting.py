"""Routes labelled queries in each mode, or reranks their candidates, and stores a run."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import crossgate._core as _core
from crossgate._core import Policy, Profile
from crossgate._decision.cascade import sources_of
from crossgate._decision.rerank_candidates import rerank
from crossgate._decision.router import Router
from crossgate._decision.stage1 import readable
from crossgate._evaluation.labels import Dataset, LabelledQuery, ProblemLog, json_objects
from crossgate._evaluation.stored_runs import (
    HOLD_BACK,
    MODES,
    Mode,
    RunHeader,
    StoredQuery,
    fingerprint_of,
    policy_of,
    profile_of,
    write_run,
)
from crossgate._reranking.chain import load
from crossgate._reranking.contract import NO_DEADLINE, PairScore, Reranker, passages_of
from crossgate._retrieval.document_index import Index, check_documents
from crossgate._retrieval.embedding import Embedder
from crossgate._runtime.model_files import PASSAGE_RERANKER, ROUTING_RERANKER
from crossgate._sources.common import Unusable
from crossgate._sources.reading import Problem
from crossgate._sources.rows import parse_json
from crossgate._support.checks import check_path, check_query
from crossgate._support.errors import InputError, RerankerError, SourceError
from crossgate._support.files import open_source
from crossgate._support.progress import in_progress, progress
from crossgate._values.inputs import candidate, read_prompt
from crossgate._values.profile_files import PASSAGE_PROFILE, as_profile
from crossgate._values.results import Candidate, Passage, RouteResult

BODY_WEIGHTS = (0.0, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)
"""The weights of the body under which a run keeps BM25 scores, for `calibrate` to choose from."""

_STATED = ("reranker_not_fitted", "no_shortlist", "coverage")
"""Codes that the report states once, since they depend on the profile and not on the query."""
_RICHEST: tuple[Mode, ...] = ("always", "gated", "never")
_ORDER: tuple[Mode, ...] = ("gated", "never", "always")
"""Gated first: it must not find caches warmed by the others."""


def measure(
    dataset: Dataset,
    output: Path,
    *,
    profile: Profile | str | PathLike[str] | None = None,
    policy: Policy | str | PathLike[str] | None = None,
    embedder: Embedder | str | None = "default",
    reranker: Reranker | str | PathLike[str] = "default",
    modes: Sequence[Mode] = MODES,
    seed: int = 0,
) -> None:
    """Route every query of a dataset and write the run.

    Each mode is timed separately, with warm models and including the query's embedding. If the gate
    asks for the reranker, gated and always do the same work and share one timing. Candidates that
    no mode reads are scored afterwards, outside all timings, so that the stored run can be decided
    again with another profile.

    Args:
        dataset: The dataset.
        output: The file to write.
        profile: The profile; None for the bundled profile if it suits the models.
        policy: The policy; None for the default.
        embedder: The model of stage 1; None for words alone.
        reranker: The model of stage 2. A hosted one, such as
            `crossgate.rerankers.VoyageReranker()`, is asked once before any work is done; a later
            call that fails leaves its query to stage 1 and is counted.
        modes: Which modes to run. Without `always` no logits are stored beyond what `gated` needs.
        seed: Stored with the run.

    Raises:
        InputError: If a document cannot be indexed; `out_of_range` for an unknown mode, or none.
        ModelError: If a model cannot be loaded or run.
        ProfileError: If the profile cannot be read, or was fitted for other models.
        RerankerError: `api_error` if a hosted reranker does not answer the first question.
    """
    unknown = [mode for mode in modes if mode not in MODES]
    if unknown or not modes:
        message = f"no mode {', '.join(unknown) or 'given'}: choose from {', '.join(MODES)}"
        raise InputError("out_of_range", message)
    stage2 = None if set(modes) == {"never"} else _loaded(reranker, ROUTING_RERANKER)
    if stage2 is not None and hasattr(stage2, "endpoint"):
        stage2.score("warm up", passages_of(["warm up"]), deadline=NO_DEADLINE)
    with progress("embedding") as report:
        index = Index.build(dataset.documents, embedder=embedder, progress=report)
    gated = Router(index, reranker=stage2, profile=profile, policy=policy)
    routers = {}
    for mode in modes:
        router = Router(index, reranker=None if mode == "never" else stage2, profile=Profile())
        router.profile = profile_of(mode, gated.profile)
        router.policy = policy_of(mode, gated.policy)
        routers[mode] = router
    gated.warm_up()
    header = RunHeader(
        dataset=dataset.name,
        split=dataset.split,
        corpus=index.fingerprint,
        labels=dataset.fingerprint,
        documents=len(dataset.documents),
        skipped=len(dataset.problems),
        notes=dataset.notes,
        modes=tuple(mode for mode in MODES if mode in modes),
        embedder=index.embedder,
        reranker=None if stage2 is None else stage2.identity,
        profile=gated.profile,
        policy=gated.policy,
        seed=seed,
    )
    queries = in_progress(dataset.queries, "routing")
    write_run(output, header, (_route(query, index, routers, stage2) for query in queries))


def _loaded(reranker: Reranker | str | PathLike[str], default: str) -> Reranker:
    """Return a reranker, loading it if it is given by name or folder."""
    if not isinstance(reranker, str | PathLike):
        return reranker
    return load(default if reranker == "default" else reranker)


def _score(
    reranker: Reranker, query: str, candidates: Sequence[_core.Scored], index: Index
) -> dict[str, PairScore]:
    """Return the reranker's scores of candidates, without those that it did not score."""
    passages = [
        Passage(id=scores.id, text=readable(document, scores.passage))
        for scores in candidates
        if (document := index.get(scores.id))
    ]
    if not passages:
        return {}
    try:
        read = reranker.score(query, passages, deadline=NO_DEADLINE)
    except RerankerError:  # of a hosted one; the stored query then lacks these scores
        return {}
    pairs = zip(passages, read, strict=True)
    return {passage.id: pair for passage, pair in pairs if pair is not None}


def _route(
    query: LabelledQuery, index: Index, routers: Mapping[Mode, Router], reranker: Reranker | None
) -> StoredQuery:
    searched = read_prompt(query.text).searched
    results: dict[Mode, RouteResult] = {}
    for mode in (mode for mode in _ORDER if mode in routers):
        if mode == "always" and "gated" in results and _read_all(results["gated"]):
            results[mode] = results["gated"]
        else:
            results[mode] = _result(routers[mode], query)
    richest = _richest(results)
    scored = [*_scored(richest)]
    pairs = _pairs(results.get("always", results.get("gated")))
    if "always" in results and pairs and reranker is not None:
        unread = [scores for scores in scored if scores.id not in pairs]
        pairs |= _score(reranker, searched, unread, index)
    gated = results.get("gated")
    decision = None
    if gated is not None:
        decision = {"verdict": gated.verdict.value, "reason": gated.reason, "selected": gated.ids}
    notes = (note.code for result in results.values() for note in result.degraded)
    return _stored(
        query,
        results,
        reweighed=_reweighed(searched, index, scored, richest.trace["profile"]["blend"]),
        pairs=pairs,
        decision=decision,
        sources=sources_of(
            {hit.id: hit.document for hit in richest.hits}, richest.trace["policy"]["source_type"]
        ),
        lengths={
            scores.id: len(document.content) if (document := index.get(scores.id)) else 0
            for scores in scored
        },
        degraded=tuple(code for code in dict.fromkeys(notes) if code not in _STATED),
    )


def _stored(
    query: LabelledQuery, results: Mapping[Mode, RouteResult], **values: Any
) -> StoredQuery:
    """Return a query with the candidates of its richest result."""
    richest = _richest(results)
    return StoredQuery(
        id=query.id,
        text=query.text,
        kind=query.kind,
        mentions_name=query.mentions_name,
        relevant=query.relevant,
        wrong=query.wrong,
        scored=tuple(_scored(richest)),
        signals=richest.trace["gate"]["signals"],
        held_back=tuple(name for name in HOLD_BACK if richest.trace["request"].get(name)),
        milliseconds={mode: dict(result.timings) for mode, result in results.items()},
        **values,
    )


def _richest(results: Mapping[Mode, RouteResult]) -> RouteResult:
    return next(results[mode] for mode in _RICHEST if mode in results)


def _result(router: Router, query: LabelledQuery) -> RouteResult:
    return router.route(query.text, limit=None, allow=query.candidates, context=query.context)


def _read_all(result: RouteResult) -> bool:
    """Return whether the reranker read a pool, and did not stop within it."""
    read = len(result.trace["stage2"])
    return read > 0 and read == len(result.trace["gate"]["pool"])


def _pairs(result: RouteResult | None) -> dict[str, PairScore]:
    stored = [] if result is None else result.trace["stage2"]
    return {pair["id"]: PairScore(pair["score"], pair["truncated"]) for pair in stored}


def _scored(result: RouteResult) -> Iterator[_core.Scored]:
    yield from map(_core.Scored.from_dict, result.trace["stage1"])


def _reweighed(
    query: str, index: Index, scored: Sequence[_core.Scored], blend: Mapping[str, float]
) -> dict[float, dict[str, float]]:
    """Return the candidates' BM25 scores for each weight of the body, if any has a body."""
    ids = [scores.id for scores in scored]
    if not any(document.body for document in filter(None, map(index.get, ids))):
        return {}
    reweighed = {}
    for weight in sorted({*BODY_WEIGHTS, blend["body_weight"]}):
        weighed = _core.Blend(**{**blend, "body_weight": weight})
        again = index.search(
            query, embed=False, blend=weighed, per_channel=max(2, len(ids)), allow=ids
        )
        reweighed[weight] = {scores.id: scores.bm25 for scores in again.scored}
    return reweighed


RETRIEVER = "retriever"
"""The embedder in a profile if the caller does not name the model of the cosines."""

_NAMED = ("query", "candidates", "relevant")


_CandidateRow = tuple[LabelledQuery, tuple[Candidate, ...]]


def is_candidates(path: str | PathLike[str]) -> bool:
    """Return whether a file holds queries with their candidates, by its first line."""
    path = Path(check_path("the candidates", path))
    if not os.path.isfile(path) or path.suffix.lower() not in (".jsonl", ".ndjson"):
        return False
    try:
        with open_source(path) as stream:
            first = parse_json(stream.readline(1 << 26).decode("utf-8"))
    except (OSError, ValueError, Unusable):  # the reader that is tried next reports the error
        return False
    listed = first.get("candidates") if isinstance(first, dict) else None
    return isinstance(listed, list) and any(isinstance(entry, dict) for entry in listed)


def measure_candidates(
    path: Path,
    output: Path,
    *,
    profile: Profile | str | PathLike[str] | None = None,
    reranker: Reranker | str | PathLike[str] = "default",
    embedder: str = RETRIEVER,
    limit: int | None = None,
    seed: int = 0,
    strict: bool = False,
) -> tuple[Problem, ...]:
    """Rerank all candidates of every query, write the run, and return the rows that were left out.

    Args:
        path: A file of queries with their candidates, see above.
        output: The run to write.
        profile: The profile to compare with; None for the bundled profile for passages.
        reranker: The model of stage 2.
        embedder: Name of the embedder of the cosines, for the fitted profile.
        limit: Read a sample of this many queries; None for all.
        seed: Seed of the sample; stored with the run.
        strict: Whether a malformed row is fatal. Otherwise it is skipped and counted.

    Raises:
        ModelError: If the reranker cannot be loaded or run.
        ProfileError: If the profile cannot be read, or was fitted for another reranker.
        SourceError: `source_missing`, `source_unreadable`, `malformed_row`, `empty_split` if no row
            is left, or `unwritable`.
    """
    log = ProblemLog(strict=strict)
    rows = _rows(path, log)
    if not rows:
        raise SourceError("empty_split", f"no query with candidates in {path}{log.hint()}")
    if limit is not None and limit < len(rows):
        positions = random.Random(seed).sample(range(len(rows)), max(1, limit))  # noqa: S311, a sample
        rows = [rows[position] for position in sorted(positions)]
    model = _loaded(reranker, PASSAGE_RERANKER)
    before = as_profile(PASSAGE_PROFILE if profile is None else profile)
    if profile is None and before.reranker != model.identity:
        before = Profile()
    header = RunHeader(
        dataset=path.stem,
        split="candidates",
        corpus="",
        labels=fingerprint_of((query.text, query.relevant) for query, _ in rows),
        documents=len({entry.id for _, listed in rows for entry in listed}),
        skipped=len(log.problems),
        notes=(
            "the candidates are those of another retriever: a document that it did not find counts "
            "as missed, and the profile is fitted to its cosines only",
        ),
        modes=("always",),
        embedder=embedder,
        reranker=model.identity,
        profile=before.replace(pool=max(len(listed) for _, listed in rows)),
        seed=seed,
    )
    write_run(output, header, _reranked(rows, model))
    return tuple(log.problems)


def _rows(path: Path, log: ProblemLog) -> list[_CandidateRow]:
    rows: list[_CandidateRow] = []
    for line, values in json_objects(path, log):
        with log.row(path, line):
            rows.append(_row(str(line), values))
    return rows


def _row(id: str, values: Mapping[str, Any]) -> _CandidateRow:
    if any(name not in values for name in _NAMED):
        raise Unusable(f"must be a JSON object with {', '.join(_NAMED)}")
    query, listed, relevant = (values[name] for name in _NAMED)
    if not isinstance(query, str):
        raise Unusable("the query is not text")
    check_query(query)
    if not isinstance(listed, list) or not listed:
        raise Unusable("candidates must be a list of at least one")
    candidates = tuple(candidate(position, entry) for position, entry in enumerate(listed))
    check_documents(candidates)
    missing = next((entry.id for entry in candidates if entry.cosine is None), None)
    if missing is not None:
        raise Unusable(
            f"candidate {missing!r} has no cosine, from -1 to 1: the gate is fitted on cosines"
        )
    if isinstance(relevant, str):
        relevant = [relevant]
    if not isinstance(relevant, list) or not all(isinstance(id, str) for id in relevant):
        raise Unusable("relevant must be a list of ids, empty if nothing fits")
    kind = values.get("kind") or ""
    if not isinstance(kind, str):
        raise Unusable("the kind is not text")
    labels = dict.fromkeys(relevant, 1)
    return LabelledQuery(id=id, text=query, kind=kind, relevant=labels), candidates


def _reranked(rows: Sequence[_CandidateRow], reranker: Reranker) -> Iterator[StoredQuery]:
    for query, candidates in in_progress(rows, "reranking"):
        # All are read, so that any pool and any gate can be fitted to the scores of stage 2.
        everything = Profile(pool=len(candidates))
        result = rerank(query.text, candidates, profile=everything, reranker=reranker, limit=None)
        failed = next((note for note in result.degraded if note.code != "no_profile"), None)
        if failed is not None:
            raise InputError("out_of_range", f"line {query.id} cannot be read: {failed.detail}")
        yield _stored(
            query,
            {"always": result},
            pairs=_pairs(result),
            lengths={hit.id: len(hit.document.content) for hit in result.hits},
        )
