"""From a decision log to a stored run: what was used in the end takes the place of labels.

Such labels are worth less than those of a reader. What was not shown could not be used, so they
favour the order that was in force, and a use proves no fit. How far they reach is counted, and
stands in the notes of the run and of every profile that is fitted on it.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import Any

import crossgate._core as _core
from crossgate._core import Profile
from crossgate._errors import CalibrationError, CrossgateError
from crossgate._evaluation.data.labels import ProblemLog
from crossgate._evaluation.runs.machine import describe_machine, describe_versions
from crossgate._evaluation.runs.runs import Run, RunHeader, StoredQuery
from crossgate._reranking.contract import PairScore
from crossgate._sources import Problem
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
        run: One query per text that was asked, with what was used for it. The texts are given as
            their SHA-256, whether or not the log holds them; `corpus` is empty, as a log does not
            say what was indexed; `documents` counts those that the decisions name.
        problems: Lines that were passed over, and why.
    """

    run: Run
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class _Models:
    """What must be the same in all decisions that one profile is fitted on."""

    embedder: str
    reranker: str
    per_channel: int


@dataclass(frozen=True, slots=True)
class _Decision:
    """What a fit wants to know of one logged decision."""

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
        """Return the decision with what the reranker said of it later, if it was not asked."""
        known = {one.id for one in self.scored}
        rows = {} if later is None else later.pairs
        pairs = {id: PairScore(*pair) for id, pair in rows.items() if id in known}
        if later is None or self.pairs or not pairs:
            return self
        # That time was short is made good by that.
        degraded = self.degraded - {"budget"}
        return replace(self, pairs=pairs, reranker=later.reranker, degraded=degraded)

    @property
    def models(self) -> _Models | None:
        """The models that made its scores; None where it does not name both."""
        embedder = self.profile.embedder
        # A fallback's scores are not those that the profile is for.
        if embedder is None or not _core.fits(self.profile, self.reranker):
            return None
        if self.reranker is None or any(one.cosine is None for one in self.scored):
            return None
        return _Models(embedder, self.reranker, self.profile.per_channel)


@dataclass(frozen=True, slots=True)
class _Labelled:
    """A decision, and what was used of it or in spite of it."""

    decision: _Decision
    used: frozenset[str]


def run_from_log(
    path: str | PathLike[str],
    *,
    strict: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> LoggedRun:
    """Read a log of the schema `crossgate-log/2` as a run that `calibrate` can be given.

    What was used fits, with grade 1; where a use is empty and no other says more, nothing fits.
    Left out and counted in the notes are decisions without a use, degraded ones, those that stage 2
    read neither then nor later, for which there are no logits, and those of other models than most.
    Of the candidates only those that stage 2 read take part. A query that was asked several times
    counts once, with the scores of its last decision and all that was used for it.

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
    scores: dict[str, LoggedScores] = {}
    problems = ProblemLog(strict=strict)
    for entry in read_log(path, progress=progress):
        if isinstance(entry, LoggedUse):
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
        _Labelled(decision.with_scores(scores.get(id)), frozenset(uses[id]))
        for id, decision in decisions.items()
        if id in uses
    ]
    whole = [one for one in labelled if not one.decision.degraded]
    read_by_both = [one for one in whole if one.decision.pairs]
    counts = Counter(models for one in read_by_both if (models := one.decision.models) is not None)
    models = counts.most_common(1)[0][0] if counts else None
    kept = [one for one in read_by_both if models is not None and one.decision.models == models]
    kept.sort(key=lambda one: one.decision.time)
    left_out = _left_out(
        len(decisions) - len(labelled),
        len(labelled) - len(whole),
        len(whole) - len(read_by_both),
        len(read_by_both) - len(kept),
    )
    if models is None:
        lines = f"{len(decisions)} decisions, {len(uses)} with a use"
        message = f"{path} labels nothing ({lines}){_because(left_out)}{problems.hint()}"
        raise CalibrationError("no_labels", message)
    queries = _queries(kept)
    notes = [*_trust(labelled, len(decisions)), *left_out]
    if len(queries) < len(kept):
        notes.append(
            f"{len(kept) - len(queries)} decisions ask what a later one asks again: it counts "
            "once, with all that was used"
        )
    if strangers := len(uses.keys() - decisions.keys()):
        notes.append(f"{strangers} uses are of decisions that the log does not hold")
    if problems.problems:
        notes.append(f"{len(problems.problems)} lines of the log are malformed and were left out")
    if len({json.dumps(one.decision.profile.to_dict()) for one in kept}) > 1:
        notes.append("the log's decisions were made by several profiles: the last one is `before`")
    notes.append("a log does not say what was indexed: the profile warns of no other documents")
    header = RunHeader(
        dataset=Path(path).name,
        split="used",
        corpus="",
        labels=_fingerprint(queries),
        documents=len({one.id for each in decisions.values() for one in each.scored}),
        skipped=len(problems.problems),
        notes=tuple(notes),
        modes=("always",),
        embedder=models.embedder,
        reranker=models.reranker,
        profile=kept[-1].decision.profile,
        seed=0,
        machine=describe_machine(),
        versions=describe_versions(),
        date=kept[-1].decision.time.isoformat(timespec="seconds"),
    )
    return LoggedRun(run=Run(header=header, queries=queries), problems=tuple(problems.problems))


def _decision(logged: LoggedDecision) -> _Decision | MalformedLine:
    """Take from a trace what a fit wants to know; the trace may hold anything."""
    try:
        profile, scored, reranker, pairs = _core.read_trace(json.dumps(logged.trace))
        query = logged.trace["query_sha256"]
        if not isinstance(query, str):
            raise TypeError("query_sha256 must be text")
        signals = logged.trace["gate"]["signals"]
    except (CrossgateError, LookupError, TypeError, ValueError, RecursionError) as error:
        what = f"no {error} in it" if isinstance(error, KeyError) else str(error)
        reason = " ".join(f"the trace cannot be used: {what}".split())[:300]
        return MalformedLine(line=logged.line, reason=reason)
    return _Decision(
        time=logged.time,
        query=query,
        selected=frozenset(logged.selected),
        degraded=frozenset(logged.degraded),
        scored=tuple(scored),
        pairs={one.id: PairScore(one.score, one.truncated) for one in pairs},
        profile=profile,
        reranker=reranker,
        signals=signals,
    )


def _queries(kept: Sequence[_Labelled]) -> tuple[StoredQuery, ...]:
    """Return one query per text, from decisions in the order of their times."""
    last = {one.decision.query: one.decision for one in kept}
    used: dict[str, set[str]] = {}
    for one in kept:
        used.setdefault(one.decision.query, set()).update(one.used)
    return tuple(
        StoredQuery(
            id=query,
            text=query,
            relevant=dict.fromkeys(sorted(used[query]), 1),
            # Stage 2 read the head of the list: nothing can be fitted on the rest.
            scored=tuple(one for one in decision.scored if one.id in decision.pairs),
            pairs=decision.pairs,
            signals=decision.signals,
        )
        for query, decision in last.items()
    )


def _trust(labelled: Sequence[_Labelled], decisions: int) -> list[str]:
    """Say how far the labels reach."""
    selected = candidate = unfound = 0
    for one in labelled:
        found = {scored.id for scored in one.decision.scored}
        for id in one.used:
            selected += id in one.decision.selected
            candidate += id in found - one.decision.selected
            unfound += id not in found | one.decision.selected
    total = selected + candidate + unfound
    empty = sum(not one.used for one in labelled)
    notes = [
        "labels from use: what was not shown cannot have been used, so they favour the order that "
        "was in force; and a use is no proof that a document fits",
        f"{_share(len(labelled), decisions)} decisions say what was used; {empty} of them that "
        "nothing was",
    ]
    if total:
        notes.append(
            f"{_share(selected, total)} uses were selected, {_share(candidate, total)} were "
            f"candidates that were not, {_share(unfound, total)} were not found at all"
        )
    return notes


def _left_out(unused: int, degraded: int, unread: int, others: int) -> list[str]:
    """Say which decisions take no part, and why."""
    notes = []
    if unused:
        notes.append(f"{unused} decisions have no use and were left out")
    if degraded:
        notes.append(f"{degraded} decisions were degraded and were left out")
    if unread:
        notes.append(
            f"{unread} decisions have no logits, since stage 2 was not asked, and were left out: "
            "the figures are those of the doubtful rest. The prompt hook adds them, and a profile "
            "whose gate never skips logs them at once"
        )
    if others:
        notes.append(
            f"{others} decisions are of other models or another per_channel, or of a profile that "
            "does not name its models, and were left out"
        )
    return notes


def _because(left_out: Sequence[str]) -> str:
    return f": {'; '.join(left_out)}" if left_out else ": note uses with `crossgate used`"


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({part / whole:.0%})"


def _fingerprint(queries: Sequence[StoredQuery]) -> str:
    rows = sorted(json.dumps([one.text, sorted(one.relevant)]) for one in queries)
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()
