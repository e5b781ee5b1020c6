"""Stored queries for tests, one for each possible outcome, and runs and reports of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from crossgate import PairScore, Policy, Profile, _core
from crossgate._cli.labelled import dump
from crossgate._core import (
    Answer,
    AnyFits,
    Combine,
    Relevance,
    Stage1AnyFits,
    Stage1Relevance,
    Winner,
)
from crossgate._evaluation.stored_runs import MODES, Mode, Run, RunHeader, StoredQuery
from crossgate._evaluation.summary import Report, summarize

PROFILE = Profile(
    name="by hand",
    # An even chance at a cosine of 0.2, below which the gate finds nothing relevant.
    any_fits=AnyFits(stage1=Stage1AnyFits(intercept=-2.0, cosine=10.0)),
    relevance=Relevance(stage1=Stage1Relevance(cosine=10.0)),
    answer=Answer(rerank_threshold=0.5),
    winner=Winner(agreed=0.2, disagreed=0.2),
    pool=3,
    combine=Combine.Replace(),
)
CLOSED = PROFILE.replace(name="closed", winner={}, answer={})
"""The same without a gate."""
POLICY = Policy(rerank_min=-5.0)
TIMES = {"never": 2.0, "gated": 3.0, "always": 9.0}


def stored(
    id: str,
    blends: Sequence[float],
    logits: Sequence[float],
    relevant: Sequence[str] = (),
    **options: Any,
) -> StoredQuery:
    """Return a query with candidates a, b, c, ... in falling order of blend."""
    names = "abcdefgh"[: len(blends)]
    scored = tuple(
        _core.Scored(id=name, cosine=blend, bm25=10 * max(blend, 0.0), overlap=1, blend=blend)
        for name, blend in zip(names, blends, strict=True)
    )
    signals = _core.signals(scored)
    values = {
        "text": f"query {id}",
        "milliseconds": {mode: {"total": time} for mode, time in TIMES.items()},
        "signals": signals and {"margin": signals.margin, "cosine": signals.cosine},
        **options,
    }
    return StoredQuery(
        id=id,
        scored=scored,
        pairs={name: PairScore(logit) for name, logit in zip(names, logits, strict=True)},
        relevant=dict.fromkeys(relevant, 1),
        **values,
    )


# One query for each possible outcome, with the outcome as its id.
CLEAR, CLOSE = (0.9, 0.5, 0.4), (0.6, 0.55, 0.5, 0.45)
QUERIES = (
    stored("skipped right", CLEAR, (1.0, 0.0, 0.0), "a", kind="easy", mentions_name=True),
    stored("gate", CLEAR, (0.0, 3.0, 0.0), "b", kind="easy"),
    stored("behind the gate", CLEAR, (0.0, 3.0, 0.0), "c"),
    stored("reranked right", CLOSE, (0.0, 4.0, 0.0, 0.0), "b", kind="hard", mentions_name=False),
    stored("pushed out", CLOSE, (0.0, 4.0, 0.0, 0.0), "a", kind="hard"),
    stored("pool", CLOSE, (1.0, 0.0, 0.0, 9.0), "d"),
    stored("retrieval", CLOSE, (1.0, 0.0, 0.0, 0.0), "z"),
    stored("guardrail", CLOSE, (-6.0, -7.0, -8.0, -9.0), "a"),
    stored("below floor", (0.1, 0.05), (4.0, 0.0), "a"),
    stored("nothing, silent", (0.1, 0.05), (-9.0, -9.0), kind="hard", wrong=frozenset("a")),
    stored("nothing, picked", CLOSE, (-1.0, 2.0, 0.0, 0.0), wrong=frozenset("bc")),
)


def run_of(
    queries: Sequence[StoredQuery] = QUERIES,
    *,
    profile: Profile = PROFILE,
    policy: Policy = POLICY,
    modes: Sequence[Mode] = MODES,
    **header: Any,
) -> Run:
    """Return a run of the queries."""
    values: dict[str, Any] = {
        "dataset": "by-hand",
        "split": "test",
        "corpus": "c",
        "labels": "l",
        "documents": 8,
        "skipped": 0,
        "notes": (),
        "embedder": "",
        "reranker": "r",
        "seed": 0,
        "machine": {"processor": "none", "cores": 2, "system": "none"},
        "versions": {"crossgate": "0"},
        "date": "2026-01-01T00:00:00+00:00",
        **header,
    }
    made = RunHeader(profile=profile, policy=policy, modes=tuple(modes), **values)
    return Run(header=made, queries=tuple(queries))


def reports_of(*reports: Report) -> Mapping[str, dict[str, Any]]:
    """Return reports as they read back from JSON."""
    read = [json.loads(dump(report.to_dict())) for report in reports]
    return {f"{report['header']['dataset']} {report['header']['split']}": report for report in read}


def many(profile: Profile, count: int = 12, **header: Any) -> Mapping[str, dict[str, Any]]:
    """Return the report of many copies of the queries."""
    copies = [replace(query, id=f"{query.id} {n}") for n in range(count) for query in QUERIES]
    return reports_of(summarize(run_of(copies, profile=profile, **header)))
