"""Labelled queries with the candidates that another retriever found, reranked and stored as a run.

    {"query": "how many nodes does staging have", "relevant": ["c7"], "candidates": [
        {"id": "c7", "text": "The staging cluster has five nodes.", "cosine": 0.61}, ...]}

One query per line. Candidates have the fields that `rerank` reads, and must have a cosine.
`relevant` lists the ids that fit; an empty list marks a no-match query. A document that fits but is
not among the candidates counts as missed. `kind` is optional.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path

from tqdm import tqdm

from crossgate._core import Policy, Profile, Scored
from crossgate._decision.rerank_candidates import PASSAGE_PROFILE, rerank
from crossgate._evaluation.data.labels import ProblemLog, read_lines
from crossgate._evaluation.runs.machine import describe_machine, describe_versions
from crossgate._evaluation.runs.stored_runs import RunHeader, StoredQuery, write_run
from crossgate._reranking.chain import load
from crossgate._reranking.contract import PairScore, Reranker
from crossgate._retrieval.document_index import check_documents
from crossgate._runtime.models.manifest import PASSAGE_RERANKER
from crossgate._sources.common import Unusable
from crossgate._sources.reading import Problem
from crossgate._sources.rows import parse_json
from crossgate._support.checks import check_path, check_query
from crossgate._support.errors import CrossgateError, InputError, SourceError
from crossgate._support.files import open_source
from crossgate._values.candidates import candidate
from crossgate._values.profile_files import as_profile
from crossgate._values.results import Candidate

RETRIEVER = "retriever"
"""The embedder in a profile if the caller does not name the model of the cosines."""

_NAMED = ("query", "candidates", "relevant")


@dataclass(frozen=True, slots=True, kw_only=True)
class _CandidateRow:
    line: int
    query: str
    kind: str
    relevant: Mapping[str, int]
    candidates: tuple[Candidate, ...]


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
    rows = list(_rows(path, log))
    if not rows:
        raise SourceError("empty_split", f"no query with candidates in {path}{log.hint()}")
    if limit is not None and limit < len(rows):
        kept = random.Random(seed).sample(range(len(rows)), max(1, limit))  # noqa: S311, a sample
        rows = [rows[position] for position in sorted(kept)]
    model = reranker
    if isinstance(model, str | PathLike):
        model = load(PASSAGE_RERANKER if model == "default" else model)
    before = as_profile(PASSAGE_PROFILE if profile is None else profile)
    if profile is None and before.reranker != model.identity:
        before = Profile()
    header = RunHeader(
        dataset=path.stem,
        split="candidates",
        corpus="",
        labels=_fingerprint(rows),
        documents=len({entry.id for row in rows for entry in row.candidates}),
        skipped=len(log.problems),
        notes=(
            "the candidates are those of another retriever: a document that it did not find counts "
            "as missed, and the profile is fitted to its cosines only",
        ),
        modes=("always",),
        embedder=embedder,
        reranker=model.identity,
        profile=before.replace(pool=max(len(row.candidates) for row in rows)),
        policy=Policy(),
        seed=seed,
        machine=describe_machine(),
        versions=describe_versions(),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    write_run(output, header, _reranked(rows, model))
    return tuple(log.problems)


def _rows(path: Path, log: ProblemLog) -> Iterator[_CandidateRow]:
    for line, text in read_lines(path):
        try:
            yield _row(line, parse_json(text))
        except (Unusable, CrossgateError) as error:
            log.add(path, line, str(error))


def _row(line: int, values: object) -> _CandidateRow:
    if not isinstance(values, dict) or any(name not in values for name in _NAMED):
        raise Unusable(f"must be a JSON object with {', '.join(_NAMED)}")
    query, given, relevant = (values[name] for name in _NAMED)
    if not isinstance(query, str):
        raise Unusable("the query is not text")
    check_query(query)
    if not isinstance(given, list) or not given:
        raise Unusable("candidates must be a list of at least one")
    candidates = tuple(candidate(position, entry) for position, entry in enumerate(given))
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
    return _CandidateRow(line=line, query=query, kind=kind, relevant=labels, candidates=candidates)


def _reranked(rows: Sequence[_CandidateRow], reranker: Reranker) -> Iterator[StoredQuery]:
    for row in tqdm(rows, desc="reranking", unit="", delay=0.5, leave=False, disable=None):
        # All are read, so that any pool and any gate can be fitted to the scores of stage 2.
        everything = Profile(pool=len(row.candidates))
        result = rerank(
            row.query, row.candidates, profile=everything, reranker=reranker, limit=None
        )
        failed = next((note for note in result.degraded if note.code != "no_profile"), None)
        if failed is not None:
            raise InputError("out_of_range", f"line {row.line} cannot be read: {failed.detail}")
        trace = result.trace
        yield StoredQuery(
            id=str(row.line),
            text=row.query,
            kind=row.kind,
            relevant=row.relevant,
            scored=tuple(map(Scored.from_dict, trace["stage1"])),
            pairs={
                pair["id"]: PairScore(pair["score"], pair["truncated"]) for pair in trace["stage2"]
            },
            signals=trace["gate"]["signals"],
            milliseconds={"always": dict(result.timings)},
            excerpts={hit.id: hit.document.text[:240] for hit in result.hits[:1]},
            lengths={hit.id: len(hit.document.content) for hit in result.hits},
        )


def _fingerprint(rows: Sequence[_CandidateRow]) -> str:
    import hashlib
    import json

    lines = sorted(json.dumps([row.query, sorted(row.relevant)]) for row in rows)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
