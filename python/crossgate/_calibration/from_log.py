"""Converts a decision log to a stored run; the documents that were used serve as labels.

Such labels are worth less than those of a reader. A document that was not shown could not be used,
so they favour the order at that time, and a document that was used need not fit. The notes of the
run, and of every profile that is fitted on it, describe how far the labels reach.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any

import crossgate._core as _core
from crossgate._core import Profile
from crossgate._evaluation.labels import ProblemLog
from crossgate._evaluation.stored_runs import Run, RunHeader, StoredQuery, fingerprint_of
from crossgate._reranking.contract import PairScore
from crossgate._sources.reading import Problem
from crossgate._support.errors import CalibrationError, CrossgateError
from crossgate._support.wording import counted
from crossgate._telemetry.log import (
    LoggedDecision,
    LoggedScores,
    LoggedUse,
    MalformedLine,
    read_log,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRun:
    """A log as a stored run.

    Attributes:
        run: One query per distinct text, with the documents used for it. Texts are given as their
            SHA-256, whether or not the log holds them; `corpus` is empty, as a log does not list
            the indexed documents; `documents` counts those that the decisions name.
        problems: Lines that were skipped, and why.
    """

    run: Run
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class _Decision:
    """The values of one logged decision that a fit needs."""

    time: datetime
    query: str
    selected: frozenset[str]
    degraded: frozenset[str]
    scored: tuple[_core.Scored, ...]
    pairs: Mapping[str, PairScore]
    profile: Profile
    reranker: str | None
    signals: Mapping[str, Any] | None

    def with_scores(self, later: LoggedScores | None) -> _Decision:
        """Return the decision with the reranker's later scores, if it was not asked then."""
        ids = {scores.id for scores in self.scored}
        rows = {} if later is None else later.pairs
        pairs = {id: PairScore(*pair) for id, pair in rows.items() if id in ids}
        if later is None or self.pairs or not pairs:
            return self
        # The later scores replace those that the time limit prevented.
        degraded = self.degraded - {"budget"}
        return replace(self, pairs=pairs, reranker=later.reranker, degraded=degraded)

    @property
    def models(self) -> tuple[str, str, int] | None:
        """Embedder, reranker and `per_channel` of its scores; None if it does not name both."""
        embedder = self.profile.embedder
        # A fallback's scores are not those that the profile is for.
        if embedder is None or not _core.fits(self.profile, self.reranker):
            return None
        if self.reranker is None or any(scores.cosine is None for scores in self.scored):
            return None
        return embedder, self.reranker, self.profile.per_channel


@dataclass(frozen=True, slots=True)
class _Labelled:
    """A decision and the documents that were used after it, selected or not."""

    decision: _Decision
    used: frozenset[str]
    judged: bool


def run_from_log(
    path: str | PathLike[str],
    *,
    strict: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> LoggedRun:
    """Read a log of the schema `crossgate-log/3` as a run for `calibrate`.

    A used document fits, with grade 1; if only empty uses are recorded, nothing fits. Decisions are
    left out, and counted in the notes, if they have no record of use, are degraded, were never read
    by stage 2, so that there are no logits, or are of other models than most. Only candidates that
    stage 2 read are kept. A query that was asked several times counts once, with the scores of its
    last decision and all documents that were used for it. A person's judgement of a decision or a
    query replaces all other records of it; the last judgement counts.

    Args:
        path: The log.
        strict: Whether a malformed line is fatal.
        progress: Called now and then with the bytes read so far and the total.

    Raises:
        CalibrationError: `no_labels` if no decision is left to learn from.
        SourceError: `source_missing` or `source_unreadable`; `malformed_row` for a malformed line,
            if it is fatal.
    """
    decisions: dict[str, _Decision] = {}
    uses: dict[str, set[str]] = {}
    judgements: dict[str, tuple[str, ...]] = {}
    scores: dict[str, LoggedScores] = {}
    problems = ProblemLog(strict=strict)
    for entry in read_log(path, progress=progress):
        if isinstance(entry, LoggedUse):
            if entry.judged:
                judgements[entry.decision] = entry.used
            uses.setdefault(entry.decision, set()).update(entry.used)
            continue
        if isinstance(entry, LoggedScores):
            scores[entry.decision] = entry
            continue
        if isinstance(entry, LoggedDecision):
            read = _decision(entry)
            if isinstance(read, _Decision):
                decisions[entry.decision] = read
                continue
            entry = read
        problems.add(str(path), entry.line, entry.reason)
    labelled = [
        _Labelled(
            decision.with_scores(scores.get(id)),
            frozenset(judgements.get(id, uses[id])),
            id in judgements,
        )
        for id, decision in decisions.items()
        if id in uses
    ]
    whole = [entry for entry in labelled if not entry.decision.degraded]
    read_by_both = [entry for entry in whole if entry.decision.pairs]
    counts = Counter(
        models for entry in read_by_both if (models := entry.decision.models) is not None
    )
    models = counts.most_common(1)[0][0] if counts else None
    kept = [
        entry for entry in read_by_both if models is not None and entry.decision.models == models
    ]
    kept.sort(key=lambda entry: entry.decision.time)
    steps = (len(decisions), *map(len, (labelled, whole, read_by_both, kept)))
    left_out = [
        f"left out {counted(before - after, noun)}{why}"
        for (before, after), (noun, why) in zip(pairwise(steps), _LEFT_OUT, strict=True)
        if before > after
    ]
    if models is None:
        lines = f"{counted(len(decisions), 'decision')}, {len(uses)} with a record of use"
        because = "; ".join(left_out) or "record uses with `crossgate feedback used`"
        message = f"{path} holds no labels ({lines}): {because}{problems.hint()}"
        raise CalibrationError("no_labels", message)
    queries = _queries(kept)
    notes = [*_trust(labelled, len(decisions)), *left_out]
    if len(queries) < len(kept):
        notes.append(
            f"{counted(len(kept) - len(queries), 'decision')} with the query of a later one: "
            "each query counts once, with every document that was used"
        )
    if strangers := len(uses.keys() - decisions.keys()):
        notes.append(f"{counted(strangers, 'record')} of use for decisions that are not in the log")
    if problems.problems:
        notes.append(f"left out {counted(len(problems.problems), 'malformed line')} of the log")
    if len({json.dumps(entry.decision.profile.to_dict()) for entry in kept}) > 1:
        notes.append("the log's decisions were made with several profiles: the last is `before`")
    notes.append(
        "a log does not list the indexed documents, so the profile cannot warn about other ones"
    )
    header = RunHeader(
        dataset=Path(path).name,
        split="used",
        corpus="",
        labels=fingerprint_of((query.text, query.relevant) for query in queries),
        documents=len({scores.id for decision in decisions.values() for scores in decision.scored}),
        skipped=len(problems.problems),
        notes=tuple(notes),
        modes=("always",),
        embedder=models[0],
        reranker=models[1],
        profile=kept[-1].decision.profile,
        seed=0,
        date=kept[-1].decision.time.isoformat(timespec="seconds"),
    )
    return LoggedRun(run=Run(header=header, queries=queries), problems=tuple(problems.problems))


def _decision(logged: LoggedDecision) -> _Decision | MalformedLine:
    """Read the values that a fit needs from a trace, which may hold anything."""
    try:
        profile, scored, reranker, pairs = _core.read_trace(json.dumps(logged.trace))
        query = logged.trace["query_sha256"]
        if not isinstance(query, str):
            raise TypeError("query_sha256 must be text")
        signals = logged.trace["gate"]["signals"]
    except (CrossgateError, LookupError, TypeError, ValueError, RecursionError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        reason = " ".join(f"the trace cannot be used: {what}".split())[:300]
        return MalformedLine(line=logged.line, reason=reason)
    return _Decision(
        time=logged.time,
        query=query,
        selected=frozenset(logged.selected),
        degraded=frozenset(logged.degraded) - _WITH_ALL_SCORES,
        scored=tuple(scored),
        pairs={pair.id: PairScore(pair.score, pair.truncated) for pair in pairs},
        profile=profile,
        reranker=reranker,
        signals=signals,
    )


def _queries(kept: Sequence[_Labelled]) -> tuple[StoredQuery, ...]:
    """Return one query per text, from decisions in the order of their times."""
    last = {entry.decision.query: entry.decision for entry in kept}
    used: dict[str, set[str]] = {}
    for entry in kept:
        used.setdefault(entry.decision.query, set()).update(entry.used)
    used |= {entry.decision.query: set(entry.used) for entry in kept if entry.judged}
    return tuple(
        StoredQuery(
            id=query,
            text=query,
            relevant=dict.fromkeys(sorted(used[query]), 1),
            # Stage 2 read the head of the list: nothing can be fitted on the rest.
            scored=tuple(scores for scores in decision.scored if scores.id in decision.pairs),
            pairs=decision.pairs,
            signals=decision.signals,
        )
        for query, decision in last.items()
    )


def _trust(labelled: Sequence[_Labelled], decisions: int) -> list[str]:
    """Return notes on how far the labels reach."""
    selected = unselected = unfound = 0
    for entry in labelled:
        candidates = {scores.id for scores in entry.decision.scored}
        for id in entry.used:
            selected += id in entry.decision.selected
            unselected += id in candidates - entry.decision.selected
            unfound += id not in candidates | entry.decision.selected
    total = selected + unselected + unfound
    empty = sum(not entry.used for entry in labelled)
    notes = [
        "labels from use: a document that was not shown could not be used, so they favour the "
        "order at that time; and a document that was used need not fit",
        f"decisions with a record of use: {_share(len(labelled), decisions)}; nothing was used for "
        f"{empty} of them",
    ]
    if total:
        notes.append(
            f"of the documents used, {_share(selected, total)} were selected, "
            f"{_share(unselected, total)} were other candidates, and {_share(unfound, total)} were "
            "not found"
        )
    return notes


_WITH_ALL_SCORES = {"coverage", "no_shortlist"}
"""Codes of a shortlist that is too short; the scores do not depend on it."""

_LEFT_OUT = (
    ("decision", " without a record of use"),
    ("degraded decision", ""),
    (
        "decision",
        " without logits, since stage 2 was not asked: the figures are those of the doubtful rest. "
        "The prompt hook adds logits later, and a profile whose gate never skips logs them at once",
    ),
    (
        "decision",
        " of other models, of another per_channel, or of a profile that does not name its models",
    ),
)
"""Which decisions each step leaves out, and why."""


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({part / whole:.0%})"
