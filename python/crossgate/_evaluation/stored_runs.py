"""Stored runs: the models' scores for each query, and deciding each query again without a model.

A run is a file of JSON lines. The first is the header; each other line holds a query with its
labels, the stage-1 scores of its candidates, their logits, what the gate decided and how long each
mode took. That is enough to decide again with another gate or profile.

The modes that are compared use the same profile, and with it the same blend, weights and
guardrails. They differ only in the gate:

    never     no gate and no reranker: the order of stage 1
    gated     the profile's gate, and its rule to stop reading the pool
    always    no gate: the reranker reads the whole pool of every query; without vectors, only of
              queries that share a term with a document
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import takewhile
from os import PathLike
from pathlib import Path
from typing import Any, Literal, get_args

import crossgate._core as _core
import crossgate._decision.cascade as cascade
from crossgate._core import Policy, Profile
from crossgate._decision.cascade import Request
from crossgate._decision.stage1 import Stage1
from crossgate._evaluation.labels import read_lines
from crossgate._reranking.chain import Chain
from crossgate._reranking.contract import Deadline, Enough, PairScore, Scores
from crossgate._sources.common import Unusable
from crossgate._sources.rows import parse_json
from crossgate._support.checks import check_path
from crossgate._support.errors import ProfileError, SourceError
from crossgate._support.files import atomic_write, cannot_write, open_source
from crossgate._values.inputs import read_prompt
from crossgate._values.options import DecisionOptions
from crossgate._values.profile_files import check_models, profile_from, profile_values
from crossgate._values.results import Document, Passage, RouteResult

SCHEMA = "crossgate-run/3"

Mode = Literal["never", "gated", "always"]
MODES: tuple[Mode, ...] = get_args(Mode)

HOLD_BACK = ("names_unknown", "unreadable")
"""What keeps a request from any selection, whatever the scores."""


_PACKAGES = ("crossgate", "onnxruntime", "tokenizers", "numpy")


def describe_machine() -> dict[str, str | int]:
    """Return processor, number of cores and system."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }


def describe_versions(*others: str) -> dict[str, str]:
    """Return the versions of Python and of the packages that a figure depends on."""
    versions = {"python": platform.python_version()}
    for name in dict.fromkeys((*_PACKAGES, *others)):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "none"
    return versions


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:  # not Linux
        pass
    return platform.processor() or platform.machine() or "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHeader:
    """The header of a run: models, settings, data and machine.

    Attributes:
        dataset: Name of the dataset.
        split: Name of its split.
        corpus: Fingerprint of the documents.
        labels: Fingerprint of the queries and their labels.
        documents: How many documents there are.
        skipped: How many malformed rows were left out.
        notes: Remarks on the labels for a reader of the figures.
        modes: The modes that were measured.
        embedder: Identity of the embedder; empty for BM25 alone.
        reranker: Identity of the reranker; None without one.
        profile: The profile in use.
        policy: The policy in use.
        seed: Seed of the sample and of the resampling.
        machine: Processor, cores and system.
        versions: Of Python, crossgate and its dependencies.
        date: When the run was started, UTC, ISO 8601.
    """

    dataset: str
    split: str
    corpus: str
    labels: str
    documents: int
    skipped: int
    notes: tuple[str, ...]
    modes: tuple[Mode, ...]
    embedder: str
    reranker: str | None
    profile: Profile
    policy: Policy = field(default_factory=Policy)
    seed: int
    machine: Mapping[str, Any] = field(default_factory=describe_machine)
    versions: Mapping[str, str] = field(default_factory=describe_versions)
    date: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredQuery:
    """One query of a run.

    Attributes:
        id: The query's id.
        text: The query.
        kind: The kind of query; empty if the dataset does not name it.
        mentions_name: Whether it names the document that fits, or None if unknown.
        relevant: Grade of each document that fits; empty if nothing does.
        wrong: Documents that are known not to fit.
        scored: The candidates that stage 1 found, best blend first.
        reweighed: BM25 scores of the candidates by id, under other weights of the body: one
            mapping for each weight. Empty if no candidate has a body.
        pairs: The reranker's scores of the candidates that it read.
        signals: The gate's signals; None without candidates.
        held_back: Why nothing is selected, whatever the scores; see `HOLD_BACK`.
        decision: Verdict, reason and selected ids of the gated mode, as the router returned them;
            None if that mode was not measured.
        milliseconds: Per mode, milliseconds per step of the router.
        sources: Source types of candidates that have one, by id.
        lengths: Characters of the candidates' heads by id; empty in runs of earlier releases.
        degraded: Codes of the parts that did not run as configured.
    """

    id: str
    text: str
    kind: str = ""
    mentions_name: bool | None = None
    relevant: Mapping[str, int]
    wrong: frozenset[str] = frozenset()
    scored: tuple[_core.Scored, ...]
    reweighed: Mapping[float, Mapping[str, float]] = field(default_factory=dict)
    pairs: Mapping[str, PairScore] = field(default_factory=dict)
    signals: Mapping[str, Any] | None = None
    held_back: tuple[str, ...] = ()
    decision: Mapping[str, Any] | None = None
    milliseconds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    lengths: Mapping[str, int] = field(default_factory=dict)
    degraded: tuple[str, ...] = ()

    @property
    def need(self) -> float | None:
        """The probability that the query needs a document; None if it was not computed."""
        probability = None if self.signals is None else self.signals.get("needs_document")
        return None if probability is None else float(probability)

    @property
    def documents(self) -> int | None:
        """Number of documents that stage 1 compared with the query; None if it is unknown."""
        return None if self.signals is None else self.signals.get("documents")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A stored run."""

    header: RunHeader
    queries: tuple[StoredQuery, ...]


def fingerprint_of(rows: Iterable[tuple[str, Iterable[str]]]) -> str:
    """Return the hash of queries and the ids that fit each, whatever their order."""
    lines = sorted(json.dumps([text, sorted(ids)]) for text, ids in rows)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def write_run(path: Path, header: RunHeader, queries: Iterable[StoredQuery]) -> None:
    """Write a run as its queries come in; the file appears when the last one is written.

    If writing is interrupted, by Ctrl-C too, no file is left and an earlier one is kept.

    Raises:
        SourceError: `unwritable` if the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as stream:
            stream.write(json.dumps(_header_values(header), allow_nan=False) + "\n")
            for query in queries:
                stream.write(json.dumps(_query_values(query), allow_nan=False) + "\n")
    except OSError as error:
        raise SourceError("unwritable", cannot_write(path, error)) from error


def read_run(path: str | PathLike[str]) -> Run:
    """Read a run.

    Raises:
        SourceError: `source_missing`, `source_unreadable`, or `malformed_run` naming the line.
    """
    path = Path(check_path("the run", path))
    header: RunHeader | None = None
    queries: list[StoredQuery] = []
    for line, text in read_lines(path):
        try:
            values = parse_json(text)
            if not isinstance(values, dict):
                raise Unusable("must be a JSON object")
            if header is None:
                header = _header(values)
            else:
                queries.append(_query(values))
        except (Unusable, ProfileError, KeyError, TypeError, ValueError, AttributeError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise SourceError("malformed_run", f"{path}:{line}: {what}") from error
    if header is None or not queries:
        raise SourceError("malformed_run", f"{path} holds no queries")
    return Run(header=header, queries=tuple(queries))


def is_run(path: str | PathLike[str]) -> bool:
    """Return whether a file is a stored run, by its first line."""
    try:
        with open_source(check_path("the run", path)) as stream:
            return b'"schema": "crossgate-run/' in stream.readline(200)
    except OSError:  # the reader that is tried next reports the error
        return False


def _header_values(header: RunHeader) -> dict[str, Any]:
    values = {field.name: getattr(header, field.name) for field in fields(header)}
    values |= {"profile": profile_values(header.profile), "policy": header.policy.to_dict()}
    return {"schema": SCHEMA, **values}


def _header(values: dict[str, Any]) -> RunHeader:
    schema = values.pop("schema", None)
    if schema != SCHEMA:
        raise Unusable(
            f"it has version {str(schema)[:60]!r}, not {SCHEMA!r}: "
            "measure again with `crossgate eval DATA --runs FOLDER`"
        )
    values.pop("remote", None)  # runs of earlier releases have it
    return RunHeader(
        **{
            **values,
            "notes": tuple(values["notes"]),
            "modes": tuple(mode for mode in MODES if mode in values["modes"]),
            "profile": profile_from(values["profile"]),
            "policy": Policy.from_dict(values["policy"]),
        }
    )


_STORED_AS = {"scored": "stage1", "pairs": "stage2"}
"""Names in the file of fields that have another name there."""
_LATER = {"held_back", "sources", "lengths"}
"""Names that runs of earlier releases lack."""


def _query_values(query: StoredQuery) -> dict[str, Any]:
    values = {
        _STORED_AS.get(each.name, each.name): getattr(query, each.name) for each in fields(query)
    }
    return values | {
        "wrong": sorted(query.wrong),
        "stage1": [scores.to_dict() for scores in query.scored],
        "reweighed": list(query.reweighed.items()),
        "stage2": _pair_values(query.pairs),
    }


def _query(values: dict[str, Any]) -> StoredQuery:
    stored = {each.name: _STORED_AS.get(each.name, each.name) for each in fields(StoredQuery)}
    taken = {
        name: values[key] for name, key in stored.items() if key not in _LATER or key in values
    }
    return StoredQuery(
        **taken
        | {
            "wrong": frozenset(taken["wrong"]),
            "scored": tuple(map(_scored, taken["scored"])),
            "reweighed": _reweighed(taken["reweighed"]),
            "pairs": _pairs(taken["pairs"]),
            "signals": _signals(taken["signals"]),
            "held_back": _held_back(taken.get("held_back", [])),
            "degraded": tuple(taken["degraded"]),
        }
    )


def _signals(values: object) -> Mapping[str, Any] | None:
    if values is None:
        return None
    if not isinstance(values, dict):
        raise Unusable("signals must be an object or null")
    documents, need = values.get("documents"), values.get("needs_document")
    if documents is not None and (type(documents) is not int or not 1 <= documents < 2**53):
        raise Unusable(f"signals.documents is {documents!r:.40}: it must be a whole number from 1")
    if need is not None and (type(need) not in (int, float) or not 0 <= need <= 1):
        raise Unusable(f"signals.needs_document is {need!r:.40}: it must be from 0 to 1")
    return values


def _held_back(values: object) -> tuple[str, ...]:
    if not isinstance(values, list) or any(value not in HOLD_BACK for value in values):
        raise Unusable(f"held_back is {values!r:.40}: it must list some of {', '.join(HOLD_BACK)}")
    return tuple(values)


def _scored(values: object) -> _core.Scored:
    scored = _core.Scored.from_dict(values)
    if scored.bm25 < 0:  # would be bounded to any number, or to none
        raise Unusable(f"the BM25 score of {scored.id!r} is {scored.bm25}: it must be at least 0")
    return scored


def _reweighed(values: Iterable[Any]) -> dict[float, dict[str, float]]:
    reweighed = {float(weight): dict(scores) for weight, scores in values}
    for scores in reweighed.values():
        for id, score in scores.items():
            if not (isinstance(score, int | float) and score >= 0):
                raise Unusable(f"the BM25 score of {id!r} is {score!r}: it must be at least 0")
    return reweighed


def _pair_values(pairs: Mapping[str, PairScore]) -> list[dict[str, Any]]:
    return [
        {"id": id, "score": pair.score, "truncated": pair.truncated} for id, pair in pairs.items()
    ]


def _pairs(values: Iterable[Any]) -> dict[str, PairScore]:
    pairs = (_core.Pair.from_dict(row) for row in values)
    return {pair.id: PairScore(pair.score, pair.truncated) for pair in pairs}


STAGES: tuple[Mode, Mode] = ("never", "always")
"""The modes that end with stage 1 and with stage 2 for every query."""

_ALL = DecisionOptions()
"""Options by which all documents that pass are selected."""


def profile_of(mode: Mode, profile: Profile) -> Profile:
    """Return the profile that a mode runs with."""
    if mode == "gated":
        return profile
    answer = profile.answer.replace(rerank_threshold=None)
    return profile.replace(winner={}, answer=answer, anytime=None)


def policy_of(mode: Mode, policy: Policy) -> Policy:
    """Return the policy that a mode runs with."""
    return policy if mode == "gated" else policy.replace(lexical=None)


def without_thresholds(profile: Profile) -> Profile:
    """Return a profile that states its probabilities but applies no threshold to them.

    Candidates of too little relevance stay dropped: their threshold is a different one.
    """
    return profile.replace(answer={}, runner_up={})


def decide(
    query: StoredQuery,
    profile: Profile,
    mode: Mode,
    *,
    policy: Policy | None = None,
    hold_back: bool = True,
) -> RouteResult:
    """Route a stored query, with its stored scores instead of the models; see `decide_all`."""
    (result,) = decide_all([query], profile, mode, policy=policy, hold_back=hold_back, traced=True)
    return result


def decide_all(
    queries: Iterable[StoredQuery],
    profile: Profile,
    mode: Mode,
    *,
    policy: Policy | None = None,
    hold_back: bool = True,
    traced: bool = False,
) -> list[RouteResult]:
    """Route stored queries, with their stored scores instead of the models.

    The cascade itself runs, so that the order of the stages is written once. All that pass are
    selected. If the profile's blend differs from the run's, it orders the candidates of the run.

    Args:
        queries: The queries.
        profile: The profile to decide by.
        mode: The mode.
        policy: The policy to decide by; None for the default.
        hold_back: Whether the answer may be empty. Otherwise no threshold, floor or guardrail keeps
            a candidate from being selected.
        traced: Whether the results have whole traces.
    """
    # Whether the profile suits the stored run was checked before, by `check_suitable`.
    identity = profile.reranker or "stored"
    policy = policy or Policy()
    if not hold_back:
        profile = without_thresholds(profile).replace(any_fits={}, relevance={})
        policy = Policy()
    # A profile takes longer to change than a query to decide.
    used, applied = profile_of(mode, profile), policy_of(mode, policy)
    results = []
    for query in queries:
        reranker = None if mode == "never" else _Remembered(query.pairs, identity=identity)
        results.append(
            cascade.run(
                Request(
                    prompt=read_prompt(query.text),
                    stage1=partial(_stage1, query, policy.source_type, need=hold_back),
                    profile=used,
                    policy=applied,
                    rerankers=Chain(reranker),
                    options=_ALL,
                    require_overlap=hold_back,
                    traced=traced,
                )
            )
        )
    return results


def _stage1(query: StoredQuery, source_type: str, *, need: bool) -> Stage1:
    documents = {
        scores.id: Document(
            id=scores.id,
            text=scores.id,
            # A run holds no texts, and to look for exclusions in the ids takes time.
            is_description=False,
            metadata={source_type: query.sources[scores.id]} if scores.id in query.sources else {},
        )
        for scores in query.scored
    }
    return Stage1(
        scored=query.scored,
        documents=documents,
        need=query.need if need else None,
        compared=query.documents,
        unknown_name="names_unknown" in query.held_back,
        unreadable="unreadable" in query.held_back,
    )


def reblended(query: StoredQuery, profile: Profile) -> StoredQuery:
    """Return a query with its candidates blended and ordered by a profile.

    Raises:
        SourceError: `unsuitable_run` if the candidates have no cosine to blend, or if the run holds
            no score of their bodies under the profile's weight.
    """
    weight = profile.blend.body_weight
    if query.reweighed and weight not in query.reweighed:
        weights = ", ".join(f"{other:g}" for other in query.reweighed)
        message = f"query {query.id!r} was run with body weights of {weights}, not {weight:g}"
        raise SourceError("unsuitable_run", f"{message}: measure it with this profile")
    if any(scores.cosine is None for scores in query.scored):
        message = f"query {query.id!r} was run without vectors: its blend cannot be changed"
        raise SourceError("unsuitable_run", message)
    bm25 = dict(query.reweighed.get(weight, {}))
    return replace(
        query, scored=tuple(_core.reblend(query.scored, profile.blend, bm25, profile.evidence))
    )


def check_kind(header: RunHeader, profile: Profile) -> None:
    """Refuse a profile for other prompts than the run was measured for, with other evidence.

    Raises:
        SourceError: `unsuitable_run` if only one of both profiles is for sessions.
    """
    if header.profile.session != profile.session:
        raise SourceError(
            "unsuitable_run",
            f"{header.dataset} was measured with the profile {header.profile.name!r}, and only one "
            f"of it and {profile.name!r} is for sessions: measure it with --profile {profile.name}",
        )


def check_suitable(header: RunHeader, profile: Profile, policy: Policy) -> tuple[str, ...]:
    """Refuse a profile or a policy that a run cannot be decided by, and return caveats.

    Raises:
        ProfileError: `profile_mismatch` if it was fitted for other models.
        SourceError: `unsuitable_run` if the run lacks logits that one of them needs, or as
            `check_kind`.
    """
    pairs = {"profile": (profile, header.profile), "policy": (policy, header.policy)}
    changed = [name for name, (mine, measured) in pairs.items() if mine != measured]
    if not changed:
        return ()
    check_models(profile, embedder=header.embedder or None, reranker=header.reranker)
    check_kind(header, profile)
    if "always" not in header.modes:
        message = (
            "the run was made without the mode always, so another profile or policy lacks logits: "
            "measure it with them"
        )
        raise SourceError("unsuitable_run", message)
    notes = [
        f"decided again from a stored run by another {' and '.join(changed)}: times are taken from "
        "its modes never and always"
    ]
    if (profile.blend, profile.per_channel) != (header.profile.blend, header.profile.per_channel):
        notes.append("the profile searches differently, but the candidates are those of the run")
    return tuple(notes)


@dataclass(frozen=True, slots=True)
class _Remembered:
    """The reranker of a stored query."""

    pairs: Mapping[str, PairScore]
    identity: str
    name: str = "stored"

    def score(
        self, query: str, passages: Sequence[Passage], *, deadline: Deadline
    ) -> list[PairScore | None]:
        """Return the stored scores; a hosted reranker may have scored only some, or none."""
        return [self.pairs.get(passage.id) for passage in passages]

    def score_until(
        self, query: str, passages: Sequence[Passage], *, deadline: Deadline, enough: Enough
    ) -> Scores:
        """Return the stored scores up to the passage at which the reranker would have stopped."""
        scores = self.score(query, passages, deadline=deadline)
        pairs = [score for score in takewhile(lambda score: score is not None, scores) if score]
        for count in range(1, len(pairs)):
            if enough(pairs[:count]):
                rest = [None] * (len(scores) - count)
                return Scores([*pairs[:count], *rest], stopped=True)
        return Scores(scores)
