"""Prompts that name a skill or a tool exactly."""

from __future__ import annotations

import pytest

from crossgate import Document, Index, Profile, Router, ToolRouter
from crossgate._decision.cascade import replay

TEXTS = {
    "pdf-toolkit": "Merge, split and fill in PDF files",
    "csv-cleaner": "Clean up messy CSV files: broken quotes, duplicate rows",
    "interview": "Clarify vague requirements in a dialogue",
}
DOCUMENTS = [
    *(Document(id=id, title=id, text=text) for id, text in TEXTS.items()),
    Document(id="7", title="rotate-keys", text="Replace keys", metadata={"implicit": False}),
]


@pytest.fixture(scope="module")
def router() -> Router:
    return Router(Index.build(DOCUMENTS))


@pytest.mark.parametrize(
    ("prompt", "ids"),
    [
        ("/interview merge these PDF files", ["interview"]),
        ("use the csv-cleaner skill to merge these PDF files", ["csv-cleaner"]),
        ("call mcp__files__pdf_toolkit on the messy CSV", ["pdf-toolkit"]),
        ("`csv-cleaner` and then `pdf-toolkit`", ["csv-cleaner", "pdf-toolkit"]),
        ("use the rotate keys skill", ["7"]),
    ],
)
def test_named_documents_are_selected_alone(router: Router, prompt: str, ids: list[str]) -> None:
    result = router.route(prompt)
    assert (result.reason, sorted(result.ids), result.confidence) == ("named", ids, 1.0)
    assert [hit.id for hit in result.shortlist] == result.ids
    assert replay(result.trace)["decision"]["selected"] == result.ids
    # Neither a profile nor a threshold decides otherwise.
    assert router.route(prompt, min_confidence=1.0).ids == result.ids
    assert Router(router.index, profile=Profile(), reranker=None).route(prompt).ids == result.ids


def test_a_denied_document_is_not_selected_by_its_name(router: Router) -> None:
    assert router.route("/interview", deny=["interview"]).ids == []
    assert router.route("/interview", allow=["csv-cleaner"]).ids == []


@pytest.mark.parametrize("prompt", ["/pdf-toolkt a.pdf", "use the pdf-toolkt skill on a.pdf"])
def test_an_unknown_name_gets_the_nearest_one_as_the_answer(router: Router, prompt: str) -> None:
    result = router.route(prompt)
    assert (result.reason, result.ids, len(result.shortlist)) == ("unknown_name", [], 0)
    assert "'pdf-toolkit'" in result.warnings[-1].detail


def test_in_a_session_an_unknown_name_is_only_noted(router: Router) -> None:
    session = Router(router.index, profile="session", reranker=None)
    result = session.route("use the pdf-toolkt skill on a.pdf")
    assert result.reason != "unknown_name"
    assert [hit.id for hit in result.hits][:1] == ["pdf-toolkit"]
    assert "'pdf-toolkit'" in result.warnings[-1].detail


def test_a_reserved_document_is_not_suggested(router: Router) -> None:
    assert "7" not in [hit.id for hit in router.route("rotate keys: replace keys").hits]


def test_passages_have_no_names() -> None:
    chunks = [Document(id="a", text="Our search is slow.", is_description=False)]
    assert Index.build(chunks, embedder=None).named("/a and /b") == ([], None)


def test_the_tool_router_puts_a_named_tool_first() -> None:
    tools = [{"name": name, "description": text} for name, text in TEXTS.items()]
    router = ToolRouter(tools)
    assert router.select("run the interview tool on these PDF files") == [tools[2]]
    several = router.select("merge these PDF files, then use csv-cleaner on the messy table")
    assert several[:2] == [tools[1], tools[0]]
