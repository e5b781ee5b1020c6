"""Questions and orders over tools, names that are ordinary words, and other languages."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossgate import Document, Index, Router
from crossgate._sources.tools import tool_from
from crossgate.evaluation import read_dataset

EVAL = Path(__file__).parents[1] / "eval"


def router_of(name: str) -> Router:
    return Router(Index.build(read_dataset(EVAL / name).documents))


@pytest.mark.parametrize(
    ("name", "annotations", "only_reads"),
    [
        ("get_update_log", {}, True),
        ("calendar_list_events", {}, True),
        ("shopping_list_add", {}, False),
        ("DeleteBranch", {}, False),
        ("weather", {}, None),
        ("get_token", {"readOnlyHint": False}, False),
        ("delete_cache", {"readOnlyHint": True}, True),
    ],
)
def test_hints_or_else_the_verb_of_the_name_say_whether_a_tool_reads(
    name: str, annotations: dict[str, bool], only_reads: bool | None
) -> None:
    document = tool_from({"name": name, "annotations": annotations})
    assert document.metadata.get("read_only") is only_reads


def test_questions_get_tools_that_read_and_orders_those_that_act() -> None:
    router = router_of("codehost")
    first = among_eight = 0
    queries = read_dataset(EVAL / "codehost").queries
    for query in queries:
        result = router.route(query.text)
        (right,) = query.relevant
        ids = [hit.id for hit in result.hits]
        first += ids[0] == right
        among_eight += right in ids[:8]
        if query.kind == "question":
            picks = (hit.document.metadata["read_only"] for hit in result)
            assert result.verdict != "confident" or all(picks), query.text
    assert (first >= 14, among_eight) == (True, len(queries))


def test_a_question_is_never_a_clear_case_for_a_tool_that_acts() -> None:
    documents = [
        Document(id=name, title=name, text=text, metadata={"destructive": True})
        for name, text in (("merge_branch", "Merge a branch"), ("drop_table", "Drop a table"))
    ]
    router = Router(Index.build(documents))
    assert router.route("merge the branch of the new login").verdict == "confident"
    assert router.route("was the branch of the new login merged").verdict != "confident"


def test_an_ordinary_word_in_a_prompt_selects_no_skill_of_that_name() -> None:
    router = router_of("names")
    queries = read_dataset(EVAL / "names").queries
    picked = [query.text for query in queries if not query.relevant and router.route(query.text)]
    right = sum(router.route(query.text).ids == [*query.relevant] for query in queries)
    assert (len(picked) <= 3, right >= 27) == (True, True), picked


@pytest.mark.parametrize(
    ("prompt", "ids"),
    [
        ("파드가 CrashLoopBackOff 상태로 계속 재시작되고 로그에 오류가 나옵니다", []),
        ("どうして CrashLoopBackOff になるのか教えてください", []),
        ("파드 로그를 pod-doctor 로 확인하고 /pod-doctor 를 실행해 주세요", ["pod-doctor"]),
    ],
)
def test_a_language_that_the_models_do_not_read_selects_by_names_and_triggers_only(
    prompt: str, ids: list[str]
) -> None:
    texts = {
        "pod-doctor": "Find out why a Kubernetes pod is in CrashLoopBackOff",
        "log-reader": "Sum up errors in logs of a pod in CrashLoopBackOff",
    }
    documents = [Document(id=id, title=id, text=text) for id, text in texts.items()]
    result = Router(Index.build(documents)).route(prompt)
    assert result.ids == ids
    assert "unsupported_language" in [warning.code for warning in result.warnings]
