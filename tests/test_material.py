"""Requests and pasted material: their effect on decisions, the trace, and warnings about words."""

from __future__ import annotations

import json

import pytest

from conftest import TableReranker, build, documents
from crossgate import Index, Router, rerank
from crossgate._core import split

REQUEST = "merge and compress these pdf files"
LOG = "2026-02-03 10:11:12,001 ERROR export: the git commit of translate.xlsx failed\n" * 12
CODE = "```python\ndef resize(pictures):\n    return [translate(one) for one in pictures]\n```"


def decided(router: Router, query: str, **options: object) -> dict[str, object]:
    """Return the parts of a decision that do not depend on the prompt's text."""
    trace = router.route(query, **options).trace  # type: ignore[arg-type]
    ours = {"query_sha256", "prompt"}
    return {key: value for key, value in trace.items() if key not in ours}


@pytest.fixture
def router() -> Router:
    return Router(build(), reranker=TableReranker({}))


@pytest.mark.parametrize("material", [LOG, CODE])
def test_material_changes_nothing(router: Router, material: str) -> None:
    alone = decided(router, REQUEST)
    assert decided(router, f"{REQUEST}\n\n{material}") == alone
    assert decided(router, f"{material}\n\n{REQUEST}") == alone
    assert decided(router, f"{material}\n\n{REQUEST}\n\n{material}") == alone
    assert decided(router, REQUEST, material=material) == alone
    assert decided(router, REQUEST, material=[material, material]) == alone


def test_trace_holds_places_and_no_text(router: Router) -> None:
    query = f"{REQUEST}\n\n{CODE}"
    prompt = router.route(query).trace["prompt"]
    [piece] = prompt["material"]
    assert (piece["kind"], query[piece["start"] : piece["end"]]) == ("code", CODE)
    assert [query[start:end].strip() for start, end in prompt["request"]] == [REQUEST]
    assert prompt["searched"] == "request"
    assert "resize" not in json.dumps(prompt)


def test_request_that_names_nothing_searches_the_material(router: Router) -> None:
    result = router.route("fix this", material="merge split rotate and compress pdf files")
    assert result.trace["prompt"]["searched"] == "prompt"
    first = min(result.hits, key=lambda hit: hit.stage1_rank)
    assert first.id == "pdf-toolkit"


@pytest.mark.parametrize("remark", ["thanks, that works now", "lgtm", "great, it's fixed", "hi"])
def test_remark_that_asks_for_nothing_is_not_answered_by_its_material(
    router: Router, remark: str
) -> None:
    for prompt in (f"{remark}\n\n{LOG}", f"{LOG}\n\n{remark}", f"{remark}:\n```\n{LOG}\n```"):
        result = router.route(prompt)
        assert result.trace["prompt"]["searched"] == "request"
        assert result.selected == router.route(remark).selected
    assert router.route(remark, material=LOG).selected == router.route(remark).selected


def test_rerank_takes_material_and_splits_nothing() -> None:
    candidates = ["merge pdf files", "git commit history"]
    given = rerank("merge files", candidates, reranker=None, material=LOG)
    assert [piece["kind"] for piece in given.trace["prompt"]["material"]] == ["given"]
    whole = rerank(f"merge files\n\n{LOG}", candidates, reranker=None)
    assert whole.trace["prompt"]["material"] == []


def test_misspelt_word_is_read_as_a_word_of_the_candidates() -> None:
    index = Index.build(documents(), embedder=None)
    result = Router(index, reranker=None).route("edit the spreadsheet worbkooks")
    assert result.hits[0].id == "spreadsheet"
    assert [warning.code for warning in result.warnings] == ["spelling"]
    assert "'workbooks'" in result.warnings[0].detail


@pytest.mark.parametrize(
    ("query", "codes"),
    [
        ("bitte verbinde die drei Dateien zu einer und drehe sie", ["unsupported_language"]),
        ("把这三个文件合并", ["unsupported_language"]),
        ("merge these files", []),
        (f"merge these files\n\n> {'und das ist nicht der Text für mich ' * 3}", []),
        # Only the start of a long query is read.
        ("merge these files with the others " * 60 + "und drehe sie mit der anderen " * 300, []),
    ],
)
def test_language_that_the_index_does_not_read_gets_a_warning(query: str, codes: list[str]) -> None:
    router = Router(Index.build(documents(), embedder=None), reranker=None)
    assert [warning.code for warning in router.route(query).warnings] == codes


def test_index_in_the_language_of_the_query_gets_no_warning() -> None:
    index = Index.build(documents(), embedder=None, language="german")
    query = "bitte verbinde die drei Dateien zu einer und drehe sie"
    assert Router(index, reranker=None).route(query).warnings == ()


MINUTES = """# Weekly sync 12 May

**Attendees:** Jo, Pim, Lena

## Decisions

- Ship the importer on Friday
- Pim writes the migration guide

## Open points

The staging database is slow since Tuesday. Lena looks at the indexes.
"""
README = """# fastgrid

[![build](https://img.example/b.svg)](https://ci.example)

A small grid component for React.

## Installation

```
npm install fastgrid
```

## Usage

Import the component and pass rows to it.
"""
CHANGES = """# Changelog

## 2.3.0

### Added
- export to PDF
- dark mode

### Fixed
- crash when the deck is empty
"""
TICKET = """PROJ-123: Checkout fails for guests
===================================

Description
-----------

Guests see a white page after paying with a card.

Steps to reproduce
------------------

1. Add a book to the cart
2. Pay as a guest
"""
RESULTS = """## Q3 results

Revenue rose by 12 % to 4.1 million. Costs stayed flat.

## Outlook

We expect two more customers in the north.
"""


def test_most_pasted_documents_are_told_apart() -> None:
    below = (
        "turn this into a slide deck",
        "summarise the notes below for the team",
        "translate this into French",
        "write a reply to the customer about this ticket",
        "can you make a one page pdf from the following report?",
    )
    above = (request.replace("below", "above").replace("following ", "") for request in below)
    right = [
        split(prompt).request.strip().rstrip(":") == request
        for first, last in zip(below, above, strict=True)
        for document in (MINUTES, README, CHANGES, TICKET, RESULTS)
        for prompt, request in (
            (f"{first}:\n\n{document}", first),
            (f"{first}\n\n{document}", first),
            (f"{document}\n\n{last}", last),
            (f"{document}\n---\n{last}", last),
        )
    ]
    assert len(right) == 100
    assert sum(right) >= 88


PROSE = (
    "For two years we kept every service in its own repository. Releases were slow, and nobody "
    "could say which version ran where.\n\nToday a change to the API is reviewed together with its "
    "callers. The build takes six minutes, and the release is a button.",
    "The ferry leaves at 7:15 and takes fifty minutes. Most visitors stay for a day, walk to the "
    "lighthouse and take the last boat back.",
    "When I came to this school, I knew three words of English. Mrs Okafor taught me the fourth, "
    "which was please.\n\nThank you all for coming tonight. I have never seen so many of "
    "you awake.",
    "Either party may end this agreement with a notice of thirty days in writing. The liability of "
    "the supplier is limited to the fees that the customer paid in the twelve months before.",
    "The council approved the tram on Tuesday by nine votes to eight. Work on the first section "
    "begins in May; the shops along the canal keep their parking until then.",
)


@pytest.mark.parametrize(
    "request_",
    [
        "summarise this article in three bullets",
        "translate this into French",
        "turn this into a poster",
        "write a linkedin post about this",
        "please proofread this, british spelling",
        "can you make a quiz from this text?",
        "summarise it",
        "Shorten this to fifty words. The tone should stay friendly.",
    ],
)
def test_a_request_beside_a_plain_text_is_told_apart(request_: str) -> None:
    for text in PROSE:
        for prompt in (
            f"{request_}\n\n{text}",
            f"{request_}:\n{text}",
            f"{request_}:\n\n{text}",
            f"{text}\n\n{request_}",
        ):
            assert split(prompt).request.strip().rstrip(":") == request_


@pytest.mark.parametrize(
    "prompt",
    [
        "Write a blog post about our bakery.\n\nWe are a small place in Leeds, open "
        "since 1987. Our "
        "customers love the rye bread and the cardamom buns. Keep it under 600 words.",
        "The login page stays white after an update of the browser. I cleared the "
        "cookies and tried "
        "another profile, and nothing helped at all so far.\n\nFix this.",
        "I need a landing page for my bakery. It should have a hero picture, our opening hours and "
        "a map, and it has to look good on phones as well.\n\nThen translate it into French.",
        "Our API returns 500 whenever the cart is empty. It started on Tuesday after the release, "
        "and only guests see it.\n\nFind the cause and explain it to me.",
        "Plan a trip to Norway for four people in June.\n\nWe like hiking, trains and "
        "good food, and "
        "we would rather not drive. Two of us are vegetarians and one is afraid of heights.",
        "Build this for me.\n\nA command line tool that reads a folder of photos, finds duplicates "
        "by their content and moves them into a folder named after the day.",
        "Explain the difference between a mutex and a semaphore.\n\nI have used both in "
        "C++ but never "
        "understood when one is better, and the interviewer asked me about exactly that.",
    ],
)
def test_a_prompt_of_several_paragraphs_stays_whole(prompt: str) -> None:
    assert not split(prompt).material
