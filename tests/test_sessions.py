"""The profile for sessions: most prompts of a session with an agent need no skill."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossgate import (
    Context,
    Document,
    Index,
    InputError,
    OnnxEmbedder,
    PrecomputedVectors,
    ProfileError,
    Router,
    _core,
    read_profile,
)
from crossgate._agents.hook.options import HookOptions, anchored
from crossgate._values.profile_files import BUNDLED_PROFILES

LIBRARY = {
    "debugging": "Finds the root cause of failures, crashes and bugs. Use when something breaks, a "
    "test fails, or an earlier fix did not work.",
    "commit": "Writes commit messages and commits the staged changes.",
    "planning": "Breaks a feature into tasks and writes an implementation plan before any code.",
    "csv-cleanup": "Cleans up messy CSV files: duplicate rows, broken quotes, mixed encodings.",
    "slides": "Makes slide decks from notes and reports.",
}
REMARKS = (
    "thanks, that works",
    "go on",
    "yes, do it",
    "no, the other file",
    "what did you change?",
)
PROMPTS = (
    "the upload crashes again after your third fix, find out why it really happens",
    "write an implementation plan for the new billing feature before you touch any code",
    "clean up this messy CSV file, it is full of duplicate rows",
)


@pytest.fixture(scope="module")
def index() -> Index:
    return Index.build([Document(id=id, title=id, text=text) for id, text in LIBRARY.items()])


@pytest.fixture(scope="module")
def router(index: Index) -> Router:
    return Router(index, profile="session", reranker=None)


def test_remarks_of_a_session_need_no_document(router: Router) -> None:
    for remark in REMARKS:
        result = router.route(remark, context=Context(history=PROMPTS))
        assert result.ids == []
        assert result.any_fits is not None
        assert result.any_fits < 0.4


def test_a_task_is_likelier_to_need_a_document_than_a_remark(router: Router) -> None:
    remarks = [router.route(remark).any_fits or 0.0 for remark in REMARKS]
    assert min(router.route(prompt).any_fits or 0.0 for prompt in PROMPTS) > max(remarks)


def test_earlier_requests_do_not_raise_the_probability_of_a_remark(router: Router) -> None:
    alone = router.route("go on", context=Context(history=("hello",)))
    after = router.route("go on", context=Context(history=PROMPTS))
    assert (after.any_fits, after.confidence) == (alone.any_fits, alone.confidence)


def test_the_project_orders_candidates_and_makes_no_prompt_a_request(index: Index) -> None:
    documents = [
        Document(id="swift", title="swift", text="Reviews Swift code for mistakes and style."),
        Document(id="rust", title="rust", text="Reviews Rust code for mistakes and style."),
    ]
    router = Router(Index.build(documents), profile="session", reranker=None)
    prompt = "review my code for mistakes"
    results = {
        name: router.route(prompt, context=Context(technologies=(name,)))
        for name in ("swift", "rust")
    }
    assert [results[name].hits[0].id for name in results] == ["swift", "rust"]
    plain = router.route(prompt)
    for result in results.values():
        assert result.any_fits == pytest.approx(plain.any_fits)


def test_another_technology_counts_against_a_skill_in_a_session_unless_the_prompt_names_it() -> (
    None
):
    native = Document(
        id="native",
        title="react-native-expert",
        text="Builds lists and settings of mobile apps with React Native.",
    )
    library = Index.build([native, *(Document(id=i, title=i, text=t) for i, t in LIBRARY.items())])
    project = Context(technologies=("swift",))

    def of_native(router: Router, prompt: str) -> dict[str, float]:
        rows = router.route(prompt, context=project).trace["stage1"]
        return next(row.get("evidence", {}) for row in rows if row["id"] == "native")

    session = Router(library, profile="session", reranker=None)
    prompt = "the list of the mobile app stays empty until i open the settings"
    assert of_native(session, prompt).get("other_technology") == 1.0
    assert "other_technology" not in of_native(session, "write the list again in react native")
    assert "other_technology" not in of_native(Router(library, reranker=None), prompt)


def test_a_name_that_is_an_ordinary_word_is_not_named_in_a_session_and_keeps_its_place() -> None:
    cancel = Document(
        id="cancel", title="cancel", text="Stops the running agents and clears their state."
    )
    library = Index.build([cancel, *(Document(id=i, title=i, text=t) for i, t in LIBRARY.items())])
    profile = read_profile("session")
    without = profile.replace(evidence=profile.evidence.replace(plain_name=0.0))
    prompt = "cancel my gym membership"
    doubted, plain = (
        Router(library, profile=each, reranker=None).route(prompt) for each in (profile, without)
    )
    assert (doubted.ids, plain.ids) == ([], ["cancel"])
    assert [hit.id for hit in doubted.hits] == [hit.id for hit in plain.hits]


def test_the_first_prompt_of_a_session_is_read_as_such(router: Router) -> None:
    prompt = PROMPTS[1]
    first = router.route(prompt)
    later = router.route(prompt, context=Context(history=("hello",)))
    assert first.any_fits != later.any_fits


def test_usefulness_is_evidence_only_in_a_session(index: Index, router: Router) -> None:
    def usefulness(rows: list[dict[str, Any]]) -> dict[str, float]:
        return {row["id"]: row.get("evidence", {}).get("usefulness", 0.0) for row in rows}

    session = usefulness(router.route(PROMPTS[0]).trace["stage1"])
    assert session["debugging"] > session["slides"]
    request = usefulness(Router(index, reranker=None).route(PROMPTS[0]).trace["stage1"])
    assert set(request.values()) == {0.0}


def test_usefulness_depends_on_the_prompt_and_on_its_place_in_the_session(router: Router) -> None:
    def of_debugging(prompt: str, *history: str) -> float:
        result = router.route(prompt, context=Context(history=history))
        rows = {row["id"]: row for row in result.trace["stage1"]}
        return float(rows["debugging"]["evidence"]["usefulness"])

    failing = "the build fails again with the same error and i do not know why"
    first, later = of_debugging(failing), of_debugging(failing, "hello")
    other = of_debugging("make slides about the errors of the build for monday")
    assert len({first, later, other}) == 3
    assert first > other


@pytest.mark.parametrize(("intercept", "length"), [(0.3, 0.5), (-1.5, 9.0), (2.0, 9.0)])
def test_usefulness_is_a_linear_model_limited_to_0_and_1(
    index: Index, intercept: float, length: float
) -> None:
    weights = np.random.default_rng(0).normal(size=index.dimension)
    weights *= length / np.linalg.norm(weights)
    vector = OnnxEmbedder().embed(["a"])[0]
    # One document has the direction of the weights, so that their product is as large as it can be.
    own = Document(id="own", text="own", vector=weights.tolist())
    documents = [*(index[id] for id in LIBRARY), own]
    found = Index.build(documents).search("a", vector, usefulness=(intercept, weights.tolist()))
    assert len(found.scored) == len(documents)
    for scored in found.scored:
        of_document = weights / length if scored.id == "own" else index._core.vector(scored.id)
        expected = np.clip(intercept + np.asarray(of_document) @ weights, 0, 1)
        assert scored.evidence.usefulness == pytest.approx(expected, abs=1e-5)


def test_weights_of_another_dimension_or_without_a_value_are_refused(index: Index) -> None:
    vector = OnnxEmbedder().embed(["a"])[0]
    with pytest.raises(InputError) as refused:
        index.search("a", vector, usefulness=(0.0, [1.0, 2.0]))
    assert refused.value.code == "wrong_dimension"
    with pytest.raises(InputError) as refused:
        index.search("a", vector, usefulness=(0.0, [float("nan")] * len(vector)))
    assert refused.value.code == "out_of_range"
    with pytest.raises(InputError) as refused:
        _core.needs_document_in_session(vector, [1.0], 0.0, [0.0] * len(vector), [1.0, 2.0])
    assert refused.value.code == "wrong_dimension"


@pytest.mark.parametrize("name", BUNDLED_PROFILES)
def test_a_file_of_the_working_folder_does_not_replace_a_bundled_profile(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).mkdir()
    assert read_profile(name).session == (name == "session")
    assert anchored(HookOptions(profile=name)).profile == name
    assert anchored(HookOptions(profile=f"./{name}")).profile == str(tmp_path / name)
    for path in (f"./{name}", Path(name)):
        with pytest.raises(ProfileError) as refused:
            read_profile(path)
        assert refused.value.code == "profile_unreadable"


def test_vectors_of_another_model_leave_a_session_to_the_scores() -> None:
    embedder = PrecomputedVectors("other", 2)
    documents = [
        Document(id="csv", text=LIBRARY["csv-cleanup"], vector=[1.0, 0.0]),
        Document(id="slides", text=LIBRARY["slides"], vector=[0.0, 1.0]),
    ]
    profile = read_profile("session").replace(embedder=None)
    router = Router(Index.build(documents, embedder=embedder), profile=profile, reranker=None)
    result = router.route(PROMPTS[2], vector=[0.9, 0.1])
    assert result.hits[0].id == "csv"
    assert result.trace["request"]["needs_document"] is None
    assert not any("usefulness" in row.get("evidence", {}) for row in result.trace["stage1"])


def test_a_remark_does_not_reach_stage_2(index: Index) -> None:
    router = Router(index, profile="session")
    assert {router.route(remark).verdict for remark in REMARKS} == {"nothing_relevant"}
