"""Each argument of each public function refuses values of the wrong type with a code."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from crossgate import (
    CrossEncoder,
    CrossgateError,
    Document,
    Index,
    OnnxEmbedder,
    PrecomputedVectors,
    Profile,
    Router,
    calibration,
    evaluation,
    models,
    pipelines,
    read_policy,
    read_profile,
    rerank,
    rerank_many,
    rerankers,
    telemetry,
    write_profile,
)
from crossgate._decision.rerank_candidates import RerankKeywords
from crossgate._runtime import threads as runtime
from crossgate._values.options import RouteKeywords
from crossgate.integrations.sentence_transformers import rank
from crossgate.lint import lint

DOCUMENTS = [Document(id="a", text="red fox"), Document(id="b", text="blue hen")]
NOW = datetime(2031, 3, 15, tzinfo=UTC)

WRONG: list[Any] = [
    *(3, 3.5, -1, float("nan"), 10**400, True, None, object()),
    *("", "x", "\0", "\ud800", b"x", [], [3], {}, {"a": 3}, (1, 2), lambda *arguments: 1),
]

# A clock is for tests, and its return value is checked only by the first call.
EXEMPT = {"clock"}


def calls(folder: Path) -> Iterator[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]]:
    """Yield functions with valid arguments."""
    index = Index.build(DOCUMENTS, embedder=None)
    changed = Index.build(DOCUMENTS, embedder=None)
    router = Router(index, reranker=None)
    located = [replace(document, vector=[1.0, 0.0]) for document in DOCUMENTS]
    near = Router(Index.build(located, embedder=PrecomputedVectors("x@1", 2)), reranker=None)
    result = rerank("fox", DOCUMENTS, reranker=None)
    hits = list(result.hits)
    file = folder / "file"
    key = {"api_key": "k"}
    yield Router, (index,), {"reranker": None}
    yield router.route, ("fox",), {}
    yield near.route, ("fox",), {"vector": [1.0, 0.0]}
    yield router.explain, ("fox", "a"), {}
    yield router.route_many, (["fox"],), {"progress": False}
    yield rerank, ("fox", DOCUMENTS), {"reranker": None}
    yield rerank, ("fox", located), {"reranker": None, "vector": [1.0, 0.0]}
    yield rerank_many, ([("fox", DOCUMENTS)],), {"reranker": None, "progress": False}
    yield Index.build, (DOCUMENTS,), {"embedder": None}
    yield Index.open, (file,), {}
    yield index.save, (file,), {}
    yield changed.upsert, (DOCUMENTS,), {}
    yield changed.delete, (["a"],), {}
    yield index.search, ("fox",), {}
    yield read_profile, (file,), {}
    yield read_policy, (file,), {}
    yield write_profile, (file, Profile()), {}
    yield runtime.set_threads, (1,), {}
    yield CrossEncoder, ("crossgate-router-minilm-l12",), {}
    yield OnnxEmbedder, ("crossgate-embedder-minilm-l6",), {}
    yield PrecomputedVectors, ("x@1", 3), {}
    yield rerankers.GuardedReranker, (rerankers.SemanticBM25(),), {}
    yield rerankers.Deadline, (3,), {}
    yield rerankers.CircuitBreaker, (), {}
    yield rerankers.LatencyEstimate, (), {"ms_per_pair": 3.0}
    yield rerankers.VoyageReranker, (), key
    yield rerankers.CohereReranker, (), key
    yield rerankers.JinaReranker, (), key
    yield rerankers.LLMReranker, ("model",), {**key, "base_url": "http://127.0.0.1:1"}
    yield rerankers.passages_of, (["a"],), {}
    yield pipelines.decay, (hits,), {"now": NOW}
    yield pipelines.deduplicate, (hits,), {}
    yield pipelines.diversify, (hits,), {}
    yield pipelines.diversified, (result,), {"limit": 2}
    yield pipelines.diversify_sources, (hits,), {}
    yield pipelines.from_index, (index,), {}
    yield pipelines.fuse_scores, ([hits],), {}
    yield pipelines.fused, ([DOCUMENTS],), {}
    yield pipelines.keep_survivors, (hits,), {"floors": {"a": 1}}
    yield pipelines.postprocess, (result, []), {}
    yield pipelines.prefer_sources, (hits,), {"order": ["a"]}
    yield pipelines.readmit_recovered, (hits,), {}
    yield pipelines.reciprocal_rank, ([hits],), {}
    yield pipelines.spread_documents, (hits,), {}
    for recipe in (pipelines.agent_memory, pipelines.context_engine):
        yield recipe, ("fox", lambda query, number: [DOCUMENTS]), {"now": NOW, "profile": Profile()}
    yield telemetry.JsonLinesLog, (file,), {}
    yield lambda path: list(telemetry.read_log(path)), (file,), {}
    yield evaluation.is_run, (file,), {}
    yield evaluation.is_labels, (file,), {}
    yield evaluation.read_dataset, (file,), {}
    yield evaluation.read_labels, (file, [file]), {}
    yield evaluation.read_reports, (file,), {}
    yield evaluation.read_run, (file,), {}
    yield calibration.Objective, (), {}
    yield models.spec, ("x",), {}
    yield models.verify, ("x",), {}
    yield models.pull, ("x",), {}
    yield models.locate, ("x", "embedder"), {}
    yield lint, (index,), {}
    yield rank, ("fox", ["red fox"]), {"reranker": None}
    yield partial(rank, "fox", ["red fox"]), (1,), {"reranker": None}


def test_argument_of_the_wrong_type_is_refused_or_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "_threads", 0)
    monkeypatch.chdir(tmp_path)  # some of these are names of files that are written
    raw: list[tuple[object, ...]] = []
    for function, positional, named in calls(tmp_path):
        options: list[str] = []
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind is parameter.KEYWORD_ONLY:
                options.append(parameter.name)
            elif "Unpack" in str(parameter.annotation):
                accepted = RerankKeywords if "Rerank" in parameter.annotation else RouteKeywords
                options += accepted.__annotations__
        places: list[int | str] = [*range(len(positional)), *options]
        for place in places:
            for value in WRONG:
                given, options_given = list(positional), dict(named)
                if place in EXEMPT:
                    continue
                if isinstance(place, int):
                    given[place] = value
                else:
                    options_given[place] = value
                try:
                    function(*given, **options_given)
                except CrossgateError as error:
                    if not error.code or len(str(error)) > 2_000:
                        raw.append((function, place, value, str(error)))
                except Exception as error:
                    raw.append((function, place, value, repr(error)))
    assert raw == []
