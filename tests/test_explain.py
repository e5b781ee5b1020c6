"""`Router.explain`: the step that lost a document, and remedies that work when they are applied."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands import checked
from conftest import LIBRARY, FunctionReranker, LengthReranker, build, refused
from crossgate import (
    Document,
    Explanation,
    Index,
    PairScore,
    Policy,
    Profile,
    Router,
    RouteResult,
)
from crossgate._cli.demo import SKILLS
from crossgate._retrieval import document_index
from crossgate._telemetry.log import JsonLinesLog

QUERIES = [
    "merge pdf files",
    "clean up this messy csv",
    "convert text",
    "squash git commits in excel",
]
TEACH = "teach the query as an example of it (`crossgate teach`, `Index.teach`)"
WITH_VECTORS, WITHOUT_VECTORS = build(), build(embedder=None)
_SETTING = re.compile(
    r"set `([\w.]+)`(?: of the (profile|policy))? to at (?:most|least) (\S+?)(?=[,;]|$)"
)


def nested(values: dict[str, Any], name: str, value: float) -> None:
    """Set a value by its name with dots; a section's name is the rest."""
    head, _, rest = name.partition(".")
    if rest:
        nested(values[head], rest, value)
    else:
        values[head] = value


def applied(explanation: Explanation, router: Router, query: str, **options: Any) -> RouteResult:
    """Decide again with all settings that a remedy names."""
    profile, policy = router.profile.to_dict(), router.policy.to_dict()
    for name, where, value in _SETTING.findall(explanation.remedy):
        number: float = int(value) if value.isdigit() else float(value)
        nested({"profile": profile, "policy": policy}.get(where, options), name, number)
    if "pass no `min_confidence`" in explanation.remedy:
        options["min_confidence"] = None
    reranker = next(iter(router._rerankers), None)
    changed = Router(
        router.index,
        reranker=reranker,
        profile=Profile.from_dict(profile),
        policy=Policy.from_dict(policy),
    )
    return changed.route(query, **options)


def expected(result: RouteResult, id: str) -> str:
    """Return the step that the hits of a decision say; empty for no hit."""
    outcome = [hit.dropped or "selected" for hit in result.hits if hit.id == id]
    return outcome[0] if outcome else "not_a_candidate"


number = st.none() | st.none() | st.sampled_from([0.0, 0.1, 0.3, 0.6, 0.9])
policies = st.builds(
    lambda floor, section, relax, core, agreement, least, margin: Policy(
        floors={"default": floor, "relax": relax}
        | ({} if section is None else {"sections": {"exit": section}}),
        cliff_core=core,
        agreement=agreement,
        rerank_min=least,
        rerank_margin=margin,
    ),
    number,
    number,
    st.sampled_from([0.0, 0.05, 0.2]),
    st.sampled_from([None, 1, 2]),
    number,
    number,
    number,
)
profiles = st.builds(
    lambda rerank, threshold, confidence, winner, stage1, stage2, relevance, pool: Profile(
        per_channel=4,
        pool=pool,
        any_fits={
            "stage1": {"intercept": -1.0, "log_mean": 1.0},
            "stage2": {"intercept": -1.0, "log_mean": 1.0},
        },
        relevance={
            "stage1": {"cosine": 3.0, "bm25": 1.0},
            "stage2": {"cosine": 2.0, "rerank_score": 0.5},
            "threshold": relevance,
        },
        answer={"rerank_threshold": rerank, "threshold": threshold, "confidence": confidence},
        winner={"agreed": winner, "disagreed": winner},
        runner_up={"stage1": stage1, "stage2": stage2},
    ),
    number,
    number,
    number,
    number,
    number,
    number,
    number,
    st.integers(1, 4),
)
options = st.fixed_dictionaries(
    {},
    optional={
        "limit": st.integers(1, 3),
        "section": st.sampled_from(["exit", "entry"]),
        "grade": st.sampled_from(["A", "D"]),
        "min_confidence": st.sampled_from([0.1, 0.5, 1.0]),
    },
)


@given(
    query=st.sampled_from(QUERIES),
    id=st.sampled_from(sorted(LIBRARY)),
    profile=profiles,
    policy=policies,
    options=options,
    reranker=st.sampled_from([None, "length"]),
    vectors=st.booleans(),
)
def test_explanation_agrees_with_the_decision_and_its_remedy_works(
    query: str,
    id: str,
    profile: Profile,
    policy: Policy,
    options: dict[str, Any],
    reranker: str | None,
    vectors: bool,
) -> None:
    index = WITH_VECTORS if vectors else WITHOUT_VECTORS
    chosen = LengthReranker() if reranker else None
    router = Router(index, reranker=chosen, profile=profile, policy=policy)
    result = router.route(query, **options)
    explanation = router.explain(query, id, **options)
    assert replace(explanation.result, timings=result.timings) == result
    assert explanation.step == expected(result, id)
    assert explanation.text
    if explanation.step == "selected":
        assert explanation.remedy == ""
        return
    if explanation.remedy == TEACH:
        assert result.reason == "no_overlap"
        return
    again = applied(explanation, router, query, **options)
    if explanation.step == "not_a_candidate":
        assert id in [hit.id for hit in again.hits]
    elif explanation.remedy.endswith("stage 2 would decide"):
        assert again.verdict == "ambiguous"
        assert again.trace["stage2"] != result.trace["stage2"]
    else:
        assert id in again.ids, (explanation, again)


def test_document_that_stage_1_did_not_keep_has_its_ranks() -> None:
    router = Router(Index.build(SKILLS))
    explanation = router.explain("merge two PDF files", "sql-tuning")
    assert explanation.step == "not_a_candidate"
    figures = explanation.figures
    assert figures["documents"] == len(SKILLS)
    assert figures["per_channel"] == router.profile.per_channel < figures["cosine_rank"]
    assert f"cosine rank {figures['cosine_rank']} of 12 documents" in explanation.text
    every = router.index.search("merge two PDF files", per_channel=len(SKILLS)).scored
    cosines = sorted((scored.cosine or 0.0 for scored in every), reverse=True)
    assert cosines[int(figures["cosine_rank"]) - 1] == figures["cosine"]


def test_counterexample_is_named_and_its_removal_selects_the_document() -> None:
    query, index = "merge two PDF files", Index.build(SKILLS)
    index.teach(query, "pdf-toolkit", fits=False)
    explanation = Router(index).explain(query, "pdf-toolkit")
    assert explanation.step == "counterexample"
    assert repr(query) in explanation.text
    assert explanation.text.endswith("it would be selected")
    index.teach(query, "pdf-toolkit")  # replaces the counterexample
    assert Router(index).explain(query, "pdf-toolkit").step == "selected"


def test_prompt_that_no_document_fits_is_named_and_its_removal_selects_the_document() -> None:
    query, index = "merge two PDF files", Index.build(SKILLS)
    assert Router(index).explain(query, "pdf-toolkit").step == "selected"
    index.teach("fax a form", "pdf-toolkit", fits=False)
    index.teach("wow, what a table", None)
    index.teach(query, None)
    router = Router(index)
    explanation = router.explain(query, "pdf-toolkit")
    assert explanation.step == "counterexample"
    assert f"similar to a prompt that no document fits: {query!r}; without" in explanation.text
    assert explanation.text.endswith("it would be selected")
    assert explanation.remedy.startswith("remove it from the file of examples")
    # The removal of the prompt would not select another document.
    other = next(hit.id for hit in explanation.result.hits if hit.id != "pdf-toolkit")
    assert router.explain(query, other).step != "counterexample"


def test_document_that_the_caller_left_out() -> None:
    router = Router(WITH_VECTORS, reranker=None)
    query = "merge split pdf files"
    denied = router.explain(query, "pdf-toolkit", deny=iter(["pdf-toolkit"]))
    assert (denied.step, denied.remedy) == ("denied", "take it out of `deny`")
    assert denied.result.ids == router.route(query, deny=["pdf-toolkit"]).ids
    outside = router.explain(query, "pdf-toolkit", allow=["translator"], limit=1)
    assert (outside.step, outside.result.ids) == ("not_allowed", ["translator"])
    assert router.explain(query, "pdf-toolkit", allow=["pdf-toolkit"]).step == "selected"


def test_empty_query_searches_nothing() -> None:
    explanation = Router(WITH_VECTORS).explain(" ", "translator")
    assert (explanation.step, explanation.figures) == ("no_candidates", {"candidates": 0})


def test_document_without_a_score_of_stage_2() -> None:
    texts = {id: f"merge {text}" for id, text in LIBRARY.items()}
    last = len(LIBRARY) - 1
    most = FunctionReranker(lambda _, texts: [*[PairScore(1.0)] * last, None])
    router = Router(build(texts), reranker=most, profile=Profile())
    lost = router.route("merge").hits[-1]
    explanation = router.explain("merge", lost.id)
    assert explanation.step == lost.dropped == "not_reranked"
    assert "partial_scores" in explanation.text


def test_document_is_named_by_id_or_title_and_an_unknown_one_by_similar_names() -> None:
    index = Index.build([Document(id="a1", title="Pdf Toolkit", text="merge")], embedder=None)
    router = Router(index, reranker=None)
    assert router.explain("merge", "Pdf Toolkit").id == "a1"
    assert "did you mean Pdf Toolkit" in refused(
        "unknown_document", router.explain, "merge", "Pdf Tolkit"
    )
    assert "did you mean" not in refused("unknown_document", router.explain, "x", "Pdf " * 2_000)
    refused("invalid_text", router.explain, "merge", 7)
    refused("out_of_range", router.explain, "merge", "a1", limit=0)


def test_an_unknown_name_is_not_compared_with_those_of_a_large_index(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(document_index, "_MOST_COMPARED", 1)
    index = Index.build([Document(id=id, text="merge") for id in ("ab", "b")], embedder=None)
    assert "did you mean" not in refused("unknown_document", document_index.id_of, index, "aa")


def test_explanation_is_not_logged(tmp_path: Path) -> None:
    log = tmp_path / "decisions.jsonl"
    Router(WITH_VECTORS, reranker=None, telemetry=JsonLinesLog(log)).explain("merge", "translator")
    assert not log.exists()


def test_command_line_explains_one_document(run: Any, words: Path) -> None:
    arguments = ("route", "-i", words, "--reranker", "none", "merge pdf files", "--why")
    shown = run(*arguments, "translator")
    assert shown.code == 0
    assert shown.out.startswith("translator: ")
    assert "to change that: " in shown.out
    values = checked(run(*arguments, "translator", "--json"), "explanation")
    assert values["step"] == shown.out.splitlines()[0].removeprefix("translator: ")
    picked = checked(run(*arguments, "pdf-toolkit", "--json"), "explanation")
    assert (picked["step"], picked["selected"][0]) == ("selected", "pdf-toolkit")
    unknown = run(*arguments, "pdf-tolkit")
    assert (unknown.code, unknown.error) == (2, "unknown_document")
    assert "did you mean pdf-toolkit" in unknown.err
