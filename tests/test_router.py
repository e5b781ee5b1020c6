"""`Router.route` and `rerank`: decisions, degradations, refused input and determinism."""

from __future__ import annotations

import asyncio
import copy
import json
import math
import os
import pickle
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands import python
from conftest import (
    LIBRARY,
    BrokenEmbedder,
    FunctionReranker,
    LengthReranker,
    TableReranker,
    WordEmbedder,
    build,
    documents,
    is_replayable,
    refused,
)
from crossgate import (
    Candidate,
    Document,
    Index,
    InputError,
    ModelError,
    PairScore,
    Policy,
    Profile,
    ProfileError,
    Router,
    RouteResult,
    SearchResult,
    arerank,
    rerank,
)
from crossgate._core import Combine
from crossgate._decision import cascade
from crossgate._values.profile_files import profile_values, write_profile

QUERY = "clean up this messy csv"
REPLACE = Profile(combine=Combine.Replace())


def without_times(result: RouteResult) -> str:
    """Return all fields in which two runs of a query must agree, without the times."""
    values = result.to_dict(trace=True)
    del values["timings_ms"]
    return json.dumps(values, allow_nan=False, sort_keys=True)


def unplaced(result: RouteResult) -> RouteResult:
    """Return a result without the hits' positions among the candidates."""
    return replace(result, hits=tuple(replace(hit, index=None) for hit in result.hits))


# Decisions.


def test_order_of_documents_does_not_change_the_decision() -> None:
    # Pairs of equal documents, so that scores tie.
    texts = {**LIBRARY, "csv-again": LIBRARY["csv-cleaner"], "a-csv": LIBRARY["csv-cleaner"]}
    decided = set()
    for order in (list(texts), list(texts)[::-1], sorted(texts), sorted(texts, key=hash)):
        router = Router(
            build({id: texts[id] for id in order}), reranker=LengthReranker(), profile=Profile()
        )
        decided.add(without_times(router.route(QUERY)))
    assert len(decided) == 1


@pytest.mark.parametrize("stage2", [True, False])
def test_number_of_threads_does_not_change_the_decision(stage2: bool) -> None:
    script = f"""
        import json, sys
        from crossgate import Document, Index, Profile, Router
        texts = {LIBRARY!r}
        index = Index.build([Document(id=id, text=text) for id, text in texts.items()])
        router = Router(
            index, reranker="default" if {stage2} else None, profile=Profile()
        )
        for query in ("clean up a csv", "pdf", "Übersetze das", "🦀"):
            result = router.route(query).to_dict(trace=True)
            assert not result["degraded"], result["degraded"]
            del result["timings_ms"]
            print(json.dumps(result))
    """
    outputs = set()
    for count in ("1", "4"):
        outputs.add(python(script, CROSSGATE_THREADS=count, RAYON_NUM_THREADS=count))
    assert len(outputs) == 1
    assert len(outputs.pop().splitlines()) == 4


def test_document_is_found_between_upsert_and_delete(index: Index) -> None:
    router = Router(index, reranker=None, profile=Profile())

    def found() -> list[str]:
        result = router.route("bake sourdough bread", limit=None)
        return [hit.id for hit in result.hits if hit.bm25 > 0]

    assert found() == []
    index.upsert([Document(id="baker", text="bake bread and cake, sourdough too")])
    assert found() == ["baker"]
    index.upsert([Document(id="baker", text="something else")])
    assert found() == []
    index.upsert([Document(id="baker", text="bake bread and cake, sourdough too")])
    assert index.delete(["baker", "absent"]) == 1
    assert "baker" not in [hit.id for hit in router.route("bread", limit=None).hits]


def test_allow_and_deny_limit_the_candidates(index: Index) -> None:
    router = Router(index, reranker=None, profile=Profile(per_channel=2))

    def considered(**options: Any) -> set[str]:
        return {hit.id for hit in router.route(QUERY, **options).hits}

    assert "csv-cleaner" in considered()
    assert considered(allow=["pdf-toolkit"]) == {"pdf-toolkit"}
    assert considered(allow=iter(["pdf-toolkit", "absent"])) == {"pdf-toolkit"}
    assert "csv-cleaner" not in considered(deny=["csv-cleaner"])
    assert considered(allow=["pdf-toolkit", "translator"], deny={"translator"}) == {"pdf-toolkit"}
    excluding: list[dict[str, Any]] = [{"allow": []}, {"deny": list(LIBRARY)}]
    for options in excluding:
        result = router.route(QUERY, **options)
        assert (result.verdict, result.reason) == ("nothing_relevant", "no_candidates")
        assert (result.hits, result.selected, result.stage) == ((), (), 1)


def test_limit_bounds_the_selection(index: Index) -> None:
    router = Router(index, reranker=LengthReranker(), profile=Profile())
    everything = router.route(QUERY, limit=None)
    assert len(everything.selected) == len(LIBRARY)
    for limit in (1, 3, 1_000, sys.maxsize, 10**30):
        result = router.route(QUERY, limit=limit)
        assert result.ids == everything.ids[:limit]
    assert len(router.route(QUERY).selected) == 2


def test_given_vector_skips_the_embedder(index: Index, embedder: WordEmbedder) -> None:
    router = Router(index, reranker=None, profile=Profile())
    (vector,) = embedder.embed([QUERY])
    embedder.texts.clear()
    given = router.route(QUERY, vector=vector)
    assert embedder.texts == []
    made = router.route(QUERY)
    assert embedder.texts == [QUERY]
    assert without_times(given) == without_times(made)


def test_index_without_vectors_uses_bm25_only() -> None:
    index = build(embedder=None)
    result = Router(index, reranker=None, profile=Profile()).route(QUERY)
    assert result.ids[0] == "csv-cleaner"
    assert result.degraded == ()
    assert all(hit.cosine is None for hit in result.hits)
    nothing = Router(index, reranker=None, profile=Profile()).route("zzz")
    assert (nothing.verdict, nothing.reason) == ("nothing_relevant", "no_overlap")


def test_title_and_text_are_searched_together() -> None:
    reranker = LengthReranker()
    index = Index.build(
        [Document(id="a", title="Red", text="fox"), Document(id="b", title="Blue", text="")],
        embedder=WordEmbedder(),
    )
    Router(index, reranker=reranker, profile=Profile()).route("red fox")
    assert sorted(reranker.calls[0][1]) == ["Blue", "Red: fox"]


def test_hit_has_metadata_and_title() -> None:
    metadata = {"path": "a/b", "tags": ["x", "y"], "deep": {"n": None}}
    document = Document(id="a", title="Red", text="fox", metadata=metadata)
    index = Index.build([document], embedder=WordEmbedder())
    (hit,) = Router(index, reranker=None, profile=Profile()).route("fox").selected
    assert (hit.document.title, hit.document.text) == ("Red", "fox")
    assert dict(hit.document.metadata) == metadata
    assert hit.to_dict()["metadata"] == metadata


# Threads and processes.


def test_document_deleted_during_a_query_is_still_returned(index: Index) -> None:
    router = Router(index, reranker=None, profile=Profile())
    found = index.search

    def vanishing(*arguments: Any, **options: Any) -> SearchResult:
        result = found(*arguments, **options)
        index.delete(["csv-cleaner"])
        return result

    index.search = vanishing  # type: ignore[method-assign]
    # Scores and texts are of one version of the index: the one that was searched.
    result = router.route(QUERY, limit=None)
    assert {hit.id: hit.document.text for hit in result.hits} == LIBRARY
    assert is_replayable(result.trace)
    again = router.route(QUERY, limit=None)
    assert "csv-cleaner" not in [hit.id for hit in again.hits]
    assert len(again.hits) == len(LIBRARY) - 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.parametrize(
    "model", ["_core.Embedder", "document_index._embedder", "cross_encoder.OnnxModel"]
)
def test_forked_child_routes_while_a_thread_loads_a_model(model: str, tmp_path: Path) -> None:
    Index.build([Document(id=id, text=text) for id, text in LIBRARY.items()]).save(tmp_path / "a")
    python(f"""
        import os, signal, threading
        from crossgate import Index, Profile, Router, _core
        from crossgate._retrieval import document_index
        from crossgate._reranking import cross_encoder
        router = Router(Index.open({str(tmp_path / "a")!r}), profile=Profile())
        place, name = {model.partition(".")[0]}, {model.partition(".")[2]!r}
        loading, go_on, load = threading.Event(), threading.Event(), getattr(place, name)
        def slow(*given):
            loading.set()
            assert go_on.wait(50)
            return load(*given)
        setattr(place, name, slow)
        thread = threading.Thread(target=router.route, args=[{QUERY!r}])
        thread.start()
        assert loading.wait(50)
        child = os.fork()
        if not child:
            signal.alarm(20)
            setattr(place, name, load)
            result = router.route({QUERY!r})
            os._exit(17 if result.stage == 2 and not result.degraded else 1)
        _, status = os.waitpid(child, 0)
        go_on.set()
        thread.join()
        assert os.waitstatus_to_exitcode(status) == 17, status
    """)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_forked_child_searches_a_large_index() -> None:
    # Large enough for the search to use several threads, none of which survives the fork.
    python("""
        import os, signal
        from crossgate import Document, Index, PrecomputedVectors, Profile, Router
        index = Index.build(
            [Document(id=str(n), text=f"w{n}", vector=[1.0, n / 9e3]) for n in range(9_000)],
            embedder=PrecomputedVectors("given", 2),
        )
        router = Router(index, reranker=None, profile=Profile())
        expected = router.route("w77", vector=[1.0, 0.5])
        child = os.fork()
        if not child:
            signal.alarm(20)  # ends the child if it hangs
            result = router.route("w77", vector=[1.0, 0.5])
            os._exit(17 if result.hits == expected.hits else 1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 17, status
    """)


def test_large_index_is_searched_if_no_thread_can_start() -> None:
    script = """
        from crossgate import Document, Index, PrecomputedVectors, Profile, Router
        index = Index.build(
            [Document(id=str(n), text=f"w{n}", vector=[1.0, n / 9e3]) for n in range(9_000)],
            embedder=PrecomputedVectors("given", 2),
        )
        result = Router(index, reranker=None).route("w77", vector=[1.0, 0.5], limit=5)
        print([(hit.id, hit.cosine) for hit in result.hits])
    """
    # No machine has room for a stack of this size.
    starved = python(script, RUST_MIN_STACK=str(1 << 60))
    assert starved == python(script) != ""


# The asynchronous methods.


def test_aroute_decides_like_route(index: Index) -> None:
    router = Router(index, reranker=LengthReranker(), profile=Profile())
    queries = [f"{QUERY} {number}" for number in range(20)]

    async def together() -> list[RouteResult]:
        return await asyncio.gather(*(router.aroute(query, limit=3) for query in queries))

    for query, result in zip(queries, asyncio.run(together()), strict=True):
        assert without_times(result) == without_times(router.route(query, limit=3))


def test_async_methods_raise_the_same_errors(index: Index) -> None:
    router = Router(index, reranker=None, profile=Profile())
    refused("query_too_long", lambda: asyncio.run(router.aroute("x" * 65_537)))
    refused("empty_query", lambda: asyncio.run(arerank("", ["a"])))


def test_async_methods_do_not_block_the_event_loop(index: Index) -> None:
    entered, leave = threading.Event(), threading.Event()

    def wait(_: str, texts: Sequence[str]) -> list[PairScore]:
        entered.set()
        assert leave.wait(30)
        return [PairScore(0.0) for _ in texts]

    router = Router(index, reranker=FunctionReranker(wait), profile=Profile())

    async def both() -> RouteResult:
        waiting = asyncio.create_task(router.aroute(QUERY))
        while not entered.is_set():
            await asyncio.sleep(0.001)
        leave.set()  # reached only if the event loop is not blocked
        return await waiting

    assert asyncio.run(both()).stage == 2


# Degraded stage 1.


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RuntimeError("first line\nsecond line"), "embedder_failed"),
        (RuntimeError("first line\rover it\u2028and more"), "embedder_failed"),
        (RuntimeError(), "embedder_failed"),
        (ModelError("model_failed", "it broke"), "embedder_failed"),
        (ModelError("model_missing", "it is not here"), "embedder_unavailable"),
        (ModelError("dependency_missing", "pip install it"), "embedder_unavailable"),
    ],
)
def test_failing_embedder_degrades_to_bm25(error: Exception, code: str) -> None:
    embedder = BrokenEmbedder()
    index = build(embedder=embedder)
    embedder.broken = error
    result = Router(index, reranker=None, profile=Profile()).route(QUERY)
    assert result.ids[0] == "csv-cleaner"
    assert all(hit.cosine is None for hit in result.hits)
    (degraded,) = result.degraded
    assert degraded.code == code
    assert degraded.detail
    assert len(degraded.detail.splitlines()) == 1
    assert degraded.detail in (str(error).splitlines() or [type(error).__name__])
    assert is_replayable(result.trace)


@pytest.mark.parametrize(
    "vectors",
    [
        pytest.param([[math.nan] * 32], id="NaN"),
        pytest.param([[0.0] * 32], id="zeros"),
        pytest.param([[1.0] * 31], id="too short"),
        pytest.param([None], id="None"),
        pytest.param([], id="none at all"),
        pytest.param(["text"], id="text"),
        pytest.param([object()], id="no vector"),
        pytest.param([1.0] * 32, id="numbers in place of vectors"),
    ],
)
def test_invalid_vector_of_the_embedder_degrades_to_bm25(vectors: Any) -> None:
    class Useless(WordEmbedder):
        useless = False

        def embed(self, texts: Sequence[str], **options: Any) -> list[list[float]]:
            made = super().embed(texts, **options)
            useless: list[list[float]] = vectors
            return useless if self.useless else made

    embedder = Useless()
    index = build(embedder=embedder)
    embedder.useless = True
    result = Router(index, reranker=None, profile=Profile()).route(QUERY)
    assert [note.code for note in result.degraded] == ["embedder_failed"]
    assert result.ids[0] == "csv-cleaner"
    assert all(hit.cosine is None for hit in result.hits)


def test_unknown_embedder_degrades_to_bm25(tmp_path: Any) -> None:
    build().save(tmp_path / "words.cgx")
    index = Index.open(tmp_path / "words.cgx")  # no embedder is registered as `words@1`
    result = Router(index, reranker=None, profile=Profile()).route(QUERY)
    assert [note.code for note in result.degraded] == ["embedder_unavailable"]
    assert result.ids[0] == "csv-cleaner"


def raising(error: BaseException) -> Callable[[str, Sequence[str]], Any]:
    def function(query: str, texts: Sequence[str]) -> Any:
        raise error

    return function


BROKEN: dict[str, Callable[[str, Sequence[str]], Any]] = {
    "raises": raising(RuntimeError("first line\nsecond line")),
    "raises without a word": raising(ValueError()),
    "raises a foreign error": raising(InputError("query_too_long", "too long")),
    "raises MemoryError": raising(MemoryError("no room")),
    "raises RecursionError": raising(RecursionError("too deep")),
    "model fails": raising(ModelError("model_failed", "it broke")),
    "too few": lambda _, texts: [PairScore(1.0) for _ in texts[1:]],
    "too many": lambda _, texts: [PairScore(1.0) for _ in (*texts, "")],
    "none": lambda *_: [],
    "None": lambda *_: None,
    "one NaN": lambda _, texts: [
        PairScore(1.0 if place else math.nan) for place in range(len(texts))
    ],
    "one infinity": lambda _, texts: [PairScore(math.inf) for _ in texts],
    "minus infinity": lambda _, texts: [PairScore(-math.inf) for _ in texts],
    "plain floats": lambda _, texts: [1.0 for _ in texts],
    "text for a logit": lambda _, texts: [PairScore("high") for _ in texts],  # type: ignore[arg-type]
    "nothing for a logit": lambda _, texts: [PairScore(None) for _ in texts],  # type: ignore[arg-type]
    "a generator": lambda _, texts: (PairScore(1.0) for _ in texts),
    "a dictionary": lambda _, texts: {text: PairScore(1.0) for text in texts},
}


# Degraded stage 2.


@pytest.mark.parametrize("kind", BROKEN)
def test_failing_reranker_keeps_the_order_of_stage_1(index: Index, kind: str) -> None:
    reranker = FunctionReranker(BROKEN[kind])
    broken = Router(index, reranker=reranker, profile=Profile()).route(QUERY)
    plain = Router(index, reranker=None, profile=Profile()).route(QUERY)
    assert len(reranker.calls) == 1
    assert broken.hits == plain.hits
    assert (broken.stage, broken.reason, broken.verdict) == (1, "undecided", "ambiguous")
    assert broken.trace["decision"] == plain.trace["decision"]
    assert is_replayable(broken.trace)
    (degraded,) = broken.degraded
    assert degraded.code == "reranker_failed"
    assert degraded.detail
    assert len(degraded.detail.splitlines()) == 1
    json.dumps(broken.to_dict(trace=True), allow_nan=False)


@pytest.mark.parametrize("logit", [1e308, -1e308])
def test_overflowing_logits_keep_the_order_of_stage_1(index: Index, logit: float) -> None:
    profile = Profile(combine=Combine.Weighted(0.0, 0.0, 10.0))
    reranker = FunctionReranker(lambda _, texts: [PairScore(logit) for _ in texts])
    plain = Router(index, reranker=None, profile=profile).route(QUERY)
    routed = Router(index, reranker=reranker, profile=profile).route(QUERY)
    assert routed.hits == plain.hits
    reordered = rerank(QUERY, list(LIBRARY.values()), reranker=reranker, profile=profile)
    for result in (routed, reordered):
        assert (result.stage, result.reason) == (1, "undecided")
        assert result.selected
        assert [note.code for note in result.degraded] == ["reranker_failed"]
        assert "within 1e30" in result.degraded[0].detail
        assert result.trace["stage2"] == []
        assert is_replayable(result.trace)
        json.dumps(result.to_dict(trace=True), allow_nan=False)


@pytest.mark.parametrize("code", ["model_missing", "model_altered", "dependency_missing"])
def test_unusable_model_degrades_to_reranker_unavailable(index: Index, code: str) -> None:
    reranker = FunctionReranker(raising(ModelError(code, "what to do")))
    result = Router(index, reranker=reranker, profile=Profile()).route(QUERY)
    assert [(note.code, note.detail) for note in result.degraded] == [
        ("reranker_unavailable", "what to do")
    ]


def test_reranker_whose_name_raises_is_degraded(index: Index) -> None:
    class Nameless(LengthReranker):
        @property
        def name(self) -> str:  # type: ignore[override]
            raise RuntimeError("who am I")

    result = Router(index, reranker=Nameless(), profile=Profile()).route(QUERY)
    assert [note.code for note in result.degraded] == ["reranker_failed"]
    assert result.stage == 1
    assert all(hit.rerank_score is None for hit in result.hits)


def test_interrupts_are_raised(index: Index) -> None:
    reranker = FunctionReranker(raising(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        Router(index, reranker=reranker, profile=Profile()).route(QUERY)


def test_both_stages_may_degrade() -> None:
    embedder = BrokenEmbedder()
    index = build(embedder=embedder)
    embedder.broken = RuntimeError("one")
    reranker = FunctionReranker(raising(RuntimeError("two")))
    result = Router(index, reranker=reranker, profile=Profile()).route(QUERY)
    assert [(note.code, note.detail) for note in result.degraded] == [
        ("embedder_failed", "one"),
        ("reranker_failed", "two"),
    ]
    assert result.ids[0] == "csv-cleaner"


def test_router_without_a_reranker_is_not_degraded(index: Index) -> None:
    result = Router(index, reranker=None, profile=Profile()).route(QUERY)
    assert (result.degraded, result.stage, result.reason) == ((), 1, "undecided")
    assert result.trace["reranker"] is None
    assert {hit.provider for hit in result.hits} == {"stage1"}


def test_guardrails_of_a_call_replace_those_of_the_policy(index: Index) -> None:
    scores = {text: float(place) for place, text in enumerate(LIBRARY.values())}
    best = len(scores) - 1
    policy = Policy(rerank_min=100.0)
    router = Router(index, reranker=TableReranker(scores), profile=REPLACE, policy=policy)
    assert router.route(QUERY, limit=None).ids == []
    result = router.route(QUERY, limit=None, rerank_min=0, rerank_margin=1)
    assert {hit.score for hit in result.selected} == {best, best - 1}
    dropped = {hit.dropped for hit in result.hits if hit.stage2_rank} - {None}
    assert dropped == {"rerank_margin"}
    assert cascade.replay(result.trace)["decision"] == result.trace["decision"]
    result = router.route(QUERY, limit=None, rerank_min=best)
    assert {hit.dropped for hit in result.hits if hit.stage2_rank} == {None, "rerank_min"}


def test_guardrails_of_rerank_select_by_the_combined_score() -> None:
    texts = list(LIBRARY.values())
    reranker = TableReranker({text: float(place) for place, text in enumerate(texts)})
    result = rerank(QUERY, texts, reranker=reranker, profile=REPLACE, rerank_margin=0)
    assert result.ids == [str(len(texts) - 1)]


# Results.


@pytest.mark.parametrize("kind", [np.float32, np.float64, int, bool])
def test_scores_are_python_floats(index: Index, kind: Any) -> None:
    reranker = FunctionReranker(lambda _, texts: [PairScore(kind(1)) for _ in texts])
    result = Router(index, reranker=reranker, profile=Profile()).route(QUERY)
    assert result.stage == 2
    for hit in result.hits:
        scores = (hit.cosine, hit.bm25, hit.blend, hit.rerank_score, hit.score)
        assert [type(score) for score in scores] == [float] * 5
    assert all(type(value) is float for value in result.timings.values())
    json.dumps(result.to_dict(trace=True), allow_nan=False)


def test_truncated_hits_are_marked(index: Index) -> None:
    cut = LIBRARY["translator"]
    reranker = FunctionReranker(
        lambda _, texts: [PairScore(1.0, truncated=text == cut) for text in texts]
    )
    result = Router(index, reranker=reranker, profile=Profile()).route(QUERY, limit=None)
    assert {hit.id for hit in result.hits if hit.truncated} == {"translator"}
    assert {hit["id"] for hit in result.to_dict()["hits"] if hit["truncated"]} == {"translator"}


def test_result_converts_to_json(index: Index) -> None:
    result = Router(index, reranker=LengthReranker(), profile=Profile()).route(QUERY)
    plain, full = result.to_dict(), result.to_dict(trace=True)
    assert full == {**plain, "trace": result.trace}
    assert plain == json.loads(json.dumps(plain, allow_nan=False))
    assert (plain["schema"], plain["selected"]) == ("crossgate/1", result.ids)
    assert "text" not in plain["hits"][0]
    assert full["trace"]["query_sha256"] != QUERY
    assert QUERY not in json.dumps(full)


def test_result_can_be_copied_and_pickled(index: Index) -> None:
    result = Router(index, reranker=LengthReranker(), profile=Profile()).route(QUERY)
    values: list[object] = [
        Document(id="a", text="b"),
        Candidate(id="a", text="b", cosine=0.5),
        Profile(combine=Combine.Weighted(1.0, 0.5, 0.25), fitted={"on": "a"}),
        Policy(floors={"sections": {"x": 0.5}}, lexical={"score": 1.0, "margin": 0.5}),
        result,
        rerank("red", ["red fox"], reranker=None),
        InputError("empty_query", "the query is empty"),
    ]
    for value in values:
        for again in (pickle.loads(pickle.dumps(value)), copy.deepcopy(value)):
            assert type(again) is type(value)
            if not isinstance(value, Exception):
                assert again == value
    error = pickle.loads(pickle.dumps(values[-1]))
    assert (error.code, str(error)) == ("empty_query", "the query is empty")


def test_arguments_are_not_changed() -> None:
    document = Document(id="a", text="red fox", metadata={"k": [1]}, vector=[3.0] * 32)
    mapping = {"id": "b", "text": "red hen", "title": "", "extra": {"k": [1]}, "cosine": 0.5}
    candidate = Candidate(id="c", text="red dog", metadata={"k": [1]}, cosine=0.25)
    vector, allow, deny = [1.0] * 32, ["a"], {"z"}
    given: list[Any] = [document, mapping, candidate, vector, allow, deny]
    # By their text, since a copy may share the changed values.
    before = repr(given)
    index = Index.build([document], embedder=WordEmbedder())
    router = Router(index, reranker=LengthReranker(), profile=Profile())
    router.route(QUERY, vector=vector, allow=allow, deny=deny)
    result = rerank("red", [mapping, candidate], reranker=LengthReranker())
    assert len(result.hits) == 2
    assert repr(given) == before


# Profiles.


def test_clear_winner_skips_the_reranker(index: Index) -> None:
    reranker = LengthReranker()
    profile = Profile(winner={"agreed": 0.0, "disagreed": 0.0})
    result = Router(index, reranker=reranker, profile=profile).route(QUERY)
    assert (result.verdict, result.reason) == ("confident", "confident_winner")
    assert result.ids[0] == "csv-cleaner"
    assert reranker.calls == []


def test_profile_fitted_for_other_models_is_refused(index: Index) -> None:
    fitted = Profile(name="mine", embedder="words@2")
    message = refused("profile_mismatch", lambda: Router(index, reranker=None, profile=fitted))
    assert "mine" in message
    assert "words@1" in message
    assert "words@2" in message
    fitted = Profile(reranker="length@2")
    refused("profile_mismatch", lambda: Router(index, reranker=LengthReranker(), profile=fitted))
    refused(
        "profile_mismatch",
        lambda: rerank("red", ["red"], reranker=LengthReranker(), profile=fitted),
    )
    # A profile for another reranker is accepted if no reranker is used.
    Router(index, reranker=None, profile=Profile(embedder="words@1", reranker="length@2"))


def test_models_without_a_fitted_profile_use_the_default(index: Index) -> None:
    result = Router(index, reranker=LengthReranker()).route(QUERY)
    assert [note.code for note in result.degraded] == ["no_profile"]
    assert "words@1" in result.degraded[0].detail
    assert "length@1" in result.degraded[0].detail
    assert result.stage == 2
    assert Profile.from_dict(dict(result.trace["profile"])) == Profile()


def test_profile_beside_the_index_is_used(index: Index, tmp_path: Path) -> None:
    file = tmp_path / "skills.cgx"
    index.save(file)
    assert Router(index, reranker=LengthReranker()).profile == Profile()  # no profile beside it yet
    write_profile(tmp_path / "skills.profile.json", Profile(name="mine", reranker="length@1"))
    assert Router(index, reranker=LengthReranker()).profile.name == "mine"
    opened = Index.open(file, embedder=index.load_embedder())
    result = Router(opened, reranker=LengthReranker()).route(QUERY)
    assert result.trace["profile"]["name"] == "mine"
    assert not result.degraded
    assert Router(opened, reranker=LengthReranker(), profile=Profile()).profile == Profile()
    write_profile(tmp_path / "skills.profile.json", Profile(name="mine", reranker="other@1"))
    refused("profile_mismatch", Router, opened, reranker=LengthReranker())


def test_profile_is_read_from_a_file(index: Index, tmp_path: Any) -> None:
    path = tmp_path / "profile.json"
    fitted = Profile(
        name="mine",
        any_fits={"stage1": {"intercept": -9.0}},
        answer={"rerank_threshold": 0.5},
    )
    path.write_text(json.dumps(profile_values(fitted)))
    for name in (path, str(path)):
        result = Router(index, reranker=None, profile=name).route(QUERY)
        assert result.reason == "improbable"
        assert result.trace["profile"]["name"] == "mine"
    refused("profile_missing", Router, index, reranker=None, profile=tmp_path / "absent.json")


@pytest.mark.parametrize("kind", ["profile", "policy"])
def test_unreadable_file_is_not_reported_as_missing(
    index: Index, tmp_path: Path, kind: str
) -> None:
    def code_of(path: Path) -> str:
        given: Any = {kind: path}
        with pytest.raises(ProfileError) as caught:
            Router(index, reranker=None, **given)
        return caught.value.code

    assert code_of(tmp_path) == f"{kind}_unreadable"
    (tmp_path / "large").write_bytes(b" " * 2_000_000)
    assert code_of(tmp_path / "large") == f"{kind}_unreadable"
    (tmp_path / "latin").write_bytes(b'{"name": "caf\xe9"}')
    assert code_of(tmp_path / "latin") == f"{kind}_malformed"


def test_policy_is_read_from_a_file(index: Index, tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    path.write_text('{"schema": "crossgate-policy/2", "floors": {"default": 0.99}}')
    for policy in (path, str(path), Policy(floors={"default": 0.99})):
        router = Router(index, reranker=None, profile=Profile(), policy=policy)
        assert router.policy == Policy(floors={"default": 0.99})
        result = router.route(QUERY)
        assert (result.verdict, result.reason) == ("nothing_relevant", "below_floor")
        given = [{"text": "a csv", "cosine": 0.5}]
        assert rerank(QUERY, given, reranker=None, policy=policy).reason == "below_floor"
    assert Router(index, reranker=None, profile=Profile()).policy == Policy()
    for call in (Router, lambda *_, **options: rerank("red", ["red"], **options)):
        refused("policy_missing", call, index, reranker=None, policy=tmp_path / "absent.json")
    path.write_text('{"schema": "crossgate-policy/2", "floor": 0.99}')
    assert "floor" in refused("policy_malformed", Router, index, reranker=None, policy=path)
    path.write_text('{"schema": "crossgate-policy/9"}')
    refused("policy_version", Router, index, reranker=None, policy=path)


def test_embedder_of_another_model_is_refused(index: Index) -> None:
    class Other(WordEmbedder):
        identity = "words@2"

    said = refused(
        "embedder_mismatch", Router, index, embedder=Other(), reranker=None, profile=Profile()
    )
    assert "crossgate index" in said


BAD_QUERIES = [
    ("", "empty_query"),
    ("  \t\r\n ", "empty_query"),
    ("\u3000\u00a0\u2003", "empty_query"),
    ("\0\0", "empty_query"),
    (" \0 ", "empty_query"),
    ("x" * 65_537, "query_too_long"),
    ("word " * 210_000, "query_too_long"),
    ("half \ud83d", "invalid_text"),
    ("half \udc80", "invalid_text"),
]


@pytest.mark.parametrize(("query", "code"), BAD_QUERIES, ids=lambda value: repr(value)[:24])
def test_invalid_queries_are_refused(index: Index, query: str, code: str) -> None:
    router = Router(index, reranker=None, profile=Profile())
    refused(code, lambda: rerank(query, ["red"], reranker=None))
    if code != "empty_query":
        refused(code, lambda: router.route(query))
        return
    # An empty prompt is answered, since people send them.
    result = router.route(query)
    assert (result.verdict, result.reason) == ("nothing_relevant", "no_candidates")
    assert (list(result.ids), list(result.hits), list(result.degraded)) == ([], [], [])
    assert [warning.code for warning in result.warnings] == ["empty_query"]
    assert cascade.replay(result.trace)["decision"]["reason"] == "no_candidates"


def test_empty_index_is_refused(index: Index) -> None:
    router = Router(index, reranker=None, profile=Profile())
    index.delete(list(LIBRARY))
    refused("no_documents", lambda: router.route(QUERY))


@pytest.mark.parametrize(
    "query",
    [
        "נקה את קובץ ה csv",
        "نظّف ملف csv",
        "清理這個 csv 檔案",
        "csv を整形して",
        "csv 🧹🦀✨",
        "csv\0csv",
        "csv" + "!" * 2_000,
        "csv\u202eReversed\u202c",
        "e\u0301" * 500 + " csv",
        "x" * 65_530 + " csv",
    ],
    ids=lambda query: repr(query)[:24],
)
def test_unusual_queries_are_accepted(index: Index, query: str) -> None:
    router = Router(index, reranker=LengthReranker(), profile=Profile())
    result = router.route(query)
    assert result.degraded == ()
    assert next(hit for hit in result.hits if hit.bm25 > 0).id == "csv-cleaner"
    json.dumps(result.to_dict(trace=True), allow_nan=False)


# Candidates of another retriever.


def test_rerank_takes_texts() -> None:
    result = rerank("red fox", ["blue hen", "a red fox", "red"], reranker=None)
    assert result.ids == ["1", "2", "0"]
    assert [hit.document.text for hit in result.hits] == ["a red fox", "red", "blue hen"]
    assert all(hit.cosine is None for hit in result.hits)


def test_rerank_takes_mappings() -> None:
    found: list[dict[str, Any]] = [
        {"id": "x", "title": "Fox", "text": "red", "source": "wiki", "metadata": {"n": 1}},
        {"_id": "y", "text": "blue"},
        {"text": "green"},
        {"id": 7, "text": "black"},
        {"id": None, "text": "white"},
    ]
    result = rerank("red fox", found, reranker=None)
    assert sorted(hit.id for hit in result.hits) == ["2", "4", "7", "x", "y"]
    assert result.ids[0] == "x"
    assert result.hits[0].document.title == "Fox"
    assert dict(result.hits[0].document.metadata) == {"source": "wiki", "n": 1}


def test_rerank_takes_candidates_and_documents() -> None:
    candidate = Candidate(id="c", text="red fox", metadata={"n": 1})
    document = Document(id="d", title="T", text="blue hen", metadata={"n": 2})
    found: list[Any] = [document, candidate]
    result = rerank("red fox", found, reranker=None)
    assert result.ids == ["c", "d"]
    assert result.hits[0].document == candidate
    again = result.hits[1].document
    assert (again.title, again.text, dict(again.metadata)) == ("T", "blue hen", {"n": 2})


def test_cosines_of_candidates_are_blended() -> None:
    found = [
        Candidate(id="a", text="same", cosine=0.25),
        Candidate(id="b", text="same", cosine=0.75),
    ]
    result = rerank("query", found, reranker=None)
    assert result.ids == ["b", "a"]
    assert [(hit.cosine, hit.bm25) for hit in result.hits] == [(0.75, 0.0), (0.25, 0.0)]
    assert [hit.blend for hit in result.hits] == pytest.approx([0.7 * 0.75, 0.7 * 0.25])


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e300])
def test_scores_of_any_scale_count_by_rank(scale: float) -> None:
    found = [
        Candidate(id=id, text="same query", score=score * scale)
        for id, score in (("a", -3.0), ("b", 5.0), ("c", 5.0), ("d", 0.5))
    ]
    result = rerank("query", found, reranker=None)
    assert result.ids == ["b", "c", "d", "a"]
    assert [hit.blend for hit in result.hits] == [1.0, 0.75, 0.5, 0.25]
    assert all(hit.cosine is None for hit in result.hits)


def test_partial_vectors_give_the_same_outcome_in_any_order() -> None:
    found: list[dict[str, Any]] = [
        {"id": "a", "text": "red", "vector": [1.0, 0.0]},
        {"id": "b", "text": "red fox"},
    ]

    def outcome(order: list[dict[str, Any]]) -> object:
        try:
            result = rerank("red", order, vector=[1.0, 0.0], reranker=None)
            return without_times(unplaced(result))
        except InputError as error:
            return error.code

    assert outcome(found) == outcome(found[::-1])


def test_empty_candidates_give_an_empty_result() -> None:
    reranker = LengthReranker()
    result = rerank("red", [], reranker=reranker, profile=Profile())
    assert (result.verdict, result.reason) == ("nothing_relevant", "no_candidates")
    assert (result.hits, result.degraded, reranker.calls) == ((), (), [])
    assert is_replayable(result.trace)
    assert rerank("red", iter(()), vector=[1.0], reranker=reranker).hits == ()


@pytest.mark.parametrize("score", [None, 0.5])
def test_candidates_without_a_common_word_are_read(score: float | None) -> None:
    reranker = TableReranker({"a car dealership": 5.0})
    found = [
        Candidate(id="a", text="bread", score=score),
        Candidate(id="b", text="a car dealership", score=score),
    ]
    result = rerank("automobile", found, reranker=reranker, profile=REPLACE)
    assert (result.stage, result.reason) == (2, "reranked")
    assert result.ids == ["b", "a"]


def test_language_selects_the_stemmer() -> None:
    found = ["die Automaten", "das Haus"]
    german = rerank("Automat", found, reranker=None, language="german")
    assert german.hits[0].bm25 > 0
    plain = rerank("Automat", found, reranker=None, language="none")
    assert [hit.bm25 for hit in plain.hits] == [0.0, 0.0]
    refused("out_of_range", lambda: rerank("a", ["b"], reranker=None, language="klingon"))


@given(st.permutations(list(LIBRARY)), st.sampled_from(["cosine", "score", "vector", "none"]))
def test_order_of_candidates_does_not_change_the_result(order: list[str], kind: str) -> None:
    def candidate(id: str) -> Candidate:
        number = (len(id) % 3) / 4
        extra: dict[str, Any] = {kind: [1.0, number] if kind == "vector" else number}
        return Candidate(id=id, text=LIBRARY[id], **({} if kind == "none" else extra))

    def run(ids: list[str]) -> str:
        options: dict[str, Any] = {"reranker": LengthReranker(), "limit": 2}
        result = rerank(QUERY, [candidate(id) for id in ids], vector=[1.0, 0.0], **options)
        assert [ids[hit.index or 0] for hit in result.hits] == [hit.id for hit in result.hits]
        return without_times(unplaced(result))

    assert run(order) == run(list(LIBRARY))


BAD_CANDIDATES: dict[str, tuple[Any, str]] = {
    "a number": ([5], "malformed_candidate"),
    "None": ([None], "malformed_candidate"),
    "a pair": ([("id", "text")], "malformed_candidate"),
    "bytes": ([b"text"], "malformed_candidate"),
    "a text that is a number": ([{"text": 5}], "malformed_candidate"),
    "a score that is infinite": ([{"text": "a", "score": math.inf}], "malformed_candidate"),
    "metadata that are text": ([{"text": "a", "metadata": "b"}], "malformed_candidate"),
    "an empty id": ([{"id": "", "text": "a"}], "malformed_candidate"),
    **{
        f"{value!r} for the {field} of a Candidate": (
            [Candidate(id="a", text="red", **{field: value}), Candidate(id="b", text="red")],  # type: ignore[arg-type]
            "malformed_candidate",
        )
        for field in ("cosine", "score")
        for value in (math.nan, math.inf, -math.inf)
    },
    **{
        f"{str(value)[:9]} for the {field}": ([{"text": "a", field: value}], "malformed_candidate")
        for field in ("cosine", "score")
        for value in (10**400, -(10**400), True, "1", math.nan, [1.0])
    },
    "None for the list": (None, "malformed_candidate"),
    "a number for the list": (3, "malformed_candidate"),
    "two of one id": ([{"id": "a", "text": "b"}, {"id": "a", "text": "c"}], "duplicate_id"),
    "an id that is a position": ([{"id": "1", "text": "b"}, "c"], "duplicate_id"),
    "half a letter": (["half \ud83d"], "invalid_text"),
    "half a letter in an id": ([{"id": "\udc80", "text": "a"}], "invalid_text"),
    "half a letter in a title": ([{"title": "\udc80", "text": "a"}], "invalid_text"),
    "one text, not a list": ("red fox", "malformed_candidate"),
    "one mapping, not a list": ({"id": "a", "text": "b"}, "malformed_candidate"),
}


@pytest.mark.parametrize("kind", BAD_CANDIDATES)
def test_invalid_candidates_are_refused(kind: str) -> None:
    found, code = BAD_CANDIDATES[kind]
    refused(code, lambda: rerank("red", found, reranker=LengthReranker()))


def test_candidate_with_only_a_body_is_searched_by_it() -> None:
    rows = [{"id": "dog", "text": "a brown dog"}, {"id": "fox", "body": "a red fox"}]
    result = rerank("red fox", rows, reranker=None, embed=False)
    assert (result.hits[0].id, result.hits[0].bm25 > 0) == ("fox", True)


@pytest.mark.parametrize(
    ("vector", "code"),
    [
        ([math.nan, 1.0], "not_finite"),
        ([0.0, 0.0], "zero_vector"),
        ([1.0, 0.0, 0.0], "wrong_dimension"),
    ],
)
def test_invalid_candidate_vectors_are_refused(vector: list[float], code: str) -> None:
    good: Any = [{"text": "a", "vector": [1.0, 0.0]}]
    bad: Any = [{"text": "a", "vector": vector}]
    refused(code, lambda: rerank("red", bad, vector=[1.0, 0.0], reranker=None))
    refused(code, lambda: rerank("red", good, vector=vector, reranker=None))


@pytest.mark.parametrize("value", [{1, 2}, math.nan, object()], ids=["set", "NaN", "object"])
def test_metadata_of_candidates_is_returned_whatever_its_type(value: Any) -> None:
    hit = rerank("red", [{"text": "red", "extra": value}], reranker=None).hits[0]
    assert hit.document.metadata["extra"] is value


def test_unknown_reranker_is_refused() -> None:
    message = refused("unknown_model", lambda: rerank("red", ["red"], reranker="no-such-model"))
    assert "no-such-model" in message
    assert "crossgate-router-minilm-l12" in message


# The bundled models, end to end.


def test_rerank_uses_the_model_for_passages() -> None:
    result = rerank(
        "how many nodes does staging have",
        ["Staging is blue.", "The staging cluster has three nodes.", "Bread needs salt."],
    )
    assert result.stage == 2
    assert result.ids[0] == "1"
    # The model for passages is bundled, so nothing is downloaded.
    assert {hit.provider for hit in result.hits} == {"crossgate-passages-minilm-l12"}
    assert result.degraded == ()
    assert rerank("red", ["red", "fox"], profile=Profile()).degraded == ()


def test_trace_holds_how_many_documents_were_compared() -> None:
    index = build()
    router = Router(index, reranker=None)
    query = "merge two pdf files"

    def compared(**options: object) -> tuple[object, object]:
        trace = router.route(query, **options).trace  # type: ignore[arg-type]
        return trace["request"]["documents"], trace["gate"]["signals"]["documents"]

    assert compared() == (len(index), len(index))
    two = [document.id for document in documents()][:2]
    assert compared(allow=two) == (2, 2)
    assert compared(allow=[*two, "absent"], deny=[two[0], "absent"]) == (1, 1)
    assert compared(deny=[two[0], "absent"]) == (len(index) - 1, len(index) - 1)
    texts = ["merge pdf files", "write a poem", "resize a picture"]
    trace = rerank(query, texts, reranker=None).trace
    assert trace["request"]["documents"] is None
    assert trace["gate"]["signals"]["documents"] == len(texts)
