"""The page on `GET /` of the server, in a real browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browser import CHROMIUM, Page, browser
from crossgate import Index
from crossgate._cli.demo import SKILLS
from crossgate._telemetry.log import LoggedUse, read_log

pytest.importorskip("httpx2")
pytest.importorskip("fastapi", reason="the extra serve is not installed")

from crossgate._serving import app
from crossgate._serving.wire_formats import ListRequest
from test_serve import KEY, Served, serving

PROMPT = "make these photos fit on the web page"
in_browser = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("page") / "decisions.jsonl"


@pytest.fixture(scope="module")
def served(log: Path) -> Iterator[Served]:
    """A server with the sample skills and a log, on loopback without a key."""
    index = log.with_name("skills.cgx")
    Index.build(SKILLS).save(index)
    with serving("--port", "0", "--index", str(index), "--log", str(log), key="") as running:
        yield running


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("chromium")) as opened:
        yield opened


def decided(page: Page, served: Served, prompt: str = PROMPT, **sizes: Any) -> None:
    """Open the page, type a prompt and wait for the decision."""
    page.open(f"{served.url}/", **sizes)
    page.evaluate("at('query').focus()")
    page.send("Input.insertText", text=prompt)
    page.wait("!at('result').hidden")


def test_page_allows_only_its_own_script_and_style(served: Served) -> None:
    reply = served.get("/")
    assert reply.status_code == 200
    policy = reply.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert reply.headers["cache-control"] == "no-store"
    assert not re.search(r"""(?:src|href)="(?!data:|docs")""", reply.text)
    assert not re.search(r"localStorage|sessionStorage|indexedDB|innerHTML|cookie", reply.text)


def test_page_needs_no_key_and_its_requests_do() -> None:
    with serving("--port", "0", key=KEY) as running:
        opened = running.get("/")
        asked = running.post("/route", {"query": "x"}, headers={})
    assert (opened.status_code, asked.status_code) == (200, 401)


def test_route_returns_a_trace_only_on_request(served: Served) -> None:
    plain = served.post("/route", {"query": PROMPT}).json()
    traced = served.post("/route", {"query": PROMPT, "trace": True}).json()
    assert "trace" not in plain
    assert traced["trace"]["profile"]["answer"]["threshold"] > 0
    assert PROMPT not in json.dumps(traced)


@in_browser
def test_page_shows_the_decision_that_the_server_made(page: Page, served: Served) -> None:
    decided(page, served)
    answer = served.post("/route", {"query": PROMPT, "trace": True}).json()
    verdict = page.evaluate("at('verdict').textContent")
    assert verdict.startswith(f"{', '.join(answer['selected'])}: {answer['why']}")
    cards = page.evaluate("[...at('picks').children].map(card => card.firstChild.textContent)")
    assert cards == answer["shortlist"]
    rows = page.evaluate("[...at('rows').rows].map(row => row.cells[0].textContent)")
    assert rows == [hit["id"] for hit in answer["hits"]]
    assert page.evaluate("document.querySelectorAll('#gauges .limit').length") == 3
    assert page.said == []


@in_browser
@pytest.mark.parametrize(
    ("prompt", "headline"),
    [("repair the forms", "unsure: "), ("what a lovely morning", "nothing fits: ")],
)
def test_page_tells_unsure_from_nothing_fits(
    page: Page, served: Served, prompt: str, headline: str
) -> None:
    decided(page, served, prompt)
    answer = served.post("/route", {"query": prompt}).json()
    assert answer["selected"] == []
    assert bool(answer["shortlist"]) is (headline == "unsure: ")
    assert page.evaluate("at('verdict').textContent").startswith(headline)


@in_browser
def test_each_threshold_on_the_page_belongs_to_its_number(page: Page, served: Served) -> None:
    decided(page, served)
    answer = served.post("/route", {"query": PROMPT, "trace": True}).json()
    needed = answer["trace"]["profile"]["answer"]
    named = {
        name: value
        for name, value in (("any fits", "any_fits"), ("confidence", "confidence"))
        if answer[value] is not None
    }
    assert len(named) == 2
    gauges = page.evaluate("[...at('gauges').children].map(box => box.textContent)")
    limits = {}
    for name, value in named.items():
        (text,) = [text for text in gauges if text.startswith(f"{name} ")]
        assert text.startswith(f"{name} {answer[value]:.2f}"), text
        limits[name] = "picks need" in text
    assert limits == {
        "any fits": bool(needed["threshold"]),
        "confidence": bool(needed["confidence"]),
    }


@in_browser
def test_page_explains_a_document_that_was_not_selected(page: Page, served: Served) -> None:
    decided(page, served)
    for other in ("sql-tuning", "nosuch"):  # a document that is not a candidate, and an unknown id
        page.evaluate("at('other').value = ''; at('why').textContent = ''; at('other').focus()")
        page.send("Input.insertText", text=other)
        page.wait("at('why').textContent !== ''")
        answer = served.post("/explain", {"query": PROMPT, "id": other}).json()
        expected = answer["text"] if "text" in answer else answer["error"]["message"]
        assert expected in page.evaluate("at('why').textContent")


@in_browser
def test_judgement_is_appended_to_the_log(page: Page, served: Served, log: Path) -> None:
    decided(page, served)
    number = page.evaluate("answer.decision_id")
    page.evaluate("document.querySelector('[data-right=\"\"]').click()")
    page.wait("at('judged').textContent !== ''")
    assert page.evaluate("at('judged').textContent") == "Recorded."
    uses = [line for line in read_log(log) if isinstance(line, LoggedUse)]
    assert [(use.decision, tuple(use.used)) for use in uses][-1] == (number, ())
    assert PROMPT not in log.read_text(encoding="utf-8")


@in_browser
@pytest.mark.parametrize("width", [360, 700, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_fits_every_width(page: Page, served: Served, width: int, scheme: str) -> None:
    decided(page, served, width=width, scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach(box => box.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_documents_are_found_by_all_words_in_the_order_of_the_index(served: Served) -> None:
    everything = served.post("/documents", {"limit": 3}).json()
    found = served.post("/documents", {"search": "PDF text"}).json()
    assert served.post("/documents", {"search": "e " * 101}).status_code == 400
    assert (everything["name"], everything["total"], everything["matching"]) == ("skills", 12, 12)
    assert [one["id"] for one in everything["documents"]] == [one.id for one in SKILLS[:3]]
    assert (found["matching"], found["documents"][0]["id"]) == (1, "pdf-toolkit")
    assert len(set(found["examples"])) == 5


def test_search_of_documents_ends_in_time_and_says_how_many_it_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index = Index.build(SKILLS, embedder=None)
    whole = app._listed(index, ListRequest(search="PDF", limit=3))
    assert (whole["total"], whole["searched"]) == (12, 12)
    monkeypatch.setattr(app, "_SEARCH_SECONDS", 0)
    cut = app._listed(index, ListRequest(search="PDF", limit=3))
    assert (cut["total"], cut["searched"]) == (12, 1)
    unsearched = app._listed(index, ListRequest(search="", limit=3))
    assert unsearched["searched"] == 12


def test_documents_need_the_key() -> None:
    with serving("--port", "0", key=KEY) as running:
        asked = running.post("/documents", {}, headers={})
        known = running.post("/documents", {})
    assert (asked.status_code, known.status_code) == (401, 404)


@in_browser
def test_page_starts_with_documents_to_search_and_prompts_to_try(
    page: Page, served: Served
) -> None:
    page.open(f"{served.url}/")
    page.wait("!at('library').hidden")
    assert page.evaluate("at('about').textContent") == "skills, 12 documents"
    page.evaluate("at('search').focus()")
    page.send("Input.insertText", text="pdf")
    page.wait("at('found').textContent === '1 found'")
    assert page.evaluate("at('list').textContent").startswith("pdf-toolkit")
    page.evaluate("at('examples').children[2].click()")
    page.wait("!at('result').hidden")
    assert page.evaluate("at('query').value === at('examples').children[2].textContent")


@in_browser
def test_page_asks_for_the_key_of_a_server_that_has_one(page: Page, tmp_path: Path) -> None:
    index = tmp_path / "skills.cgx"
    Index.build(SKILLS[:3], embedder=None).save(index)
    with serving("--port", "0", "--index", str(index)) as locked:
        page.open(f"{locked.url}/")
        page.wait("!at('access').hidden")
        assert page.evaluate("at('library').hidden && !at('list').children.length")
        page.evaluate("at('key').focus()")
        page.send("Input.insertText", text=KEY)
        page.evaluate("at('query').focus()")
        page.wait("!at('library').hidden")


@in_browser
def test_corrected_word_is_named_below_the_prompt(page: Page, served: Served) -> None:
    decided(page, served, "squash the comits of my branch")
    assert "'comits'" in page.evaluate("at('notes').textContent")


@in_browser
def test_page_works_by_keyboard_alone(page: Page, served: Served) -> None:
    page.open(f"{served.url}/")
    page.wait("!at('library').hidden")

    def press(key: str, **more: Any) -> None:
        for kind in ("keyDown", "keyUp"):
            page.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, **more)

    def tab_to(selector: str) -> None:
        for _ in range(12):
            if page.evaluate(f"document.activeElement.matches({selector!r})"):
                return
            press("Tab", windowsVirtualKeyCode=9)
        pytest.fail(f"Tab does not reach {selector}")

    tab_to("#examples button")
    press("Enter", windowsVirtualKeyCode=13, text="\r")
    page.wait("!at('result').hidden")
    tab_to("#picks + details summary")
    press("Enter", windowsVirtualKeyCode=13, text="\r")
    tab_to(".scroll")  # so that the arrow keys scroll a table that is wider than the screen
    assert page.evaluate("at('rows').checkVisibility()")


@in_browser
def test_screen_reader_is_told_names_roles_and_changes(page: Page, served: Served) -> None:
    decided(page, served)
    page.evaluate("document.querySelectorAll('details').forEach(box => box.open = true)")
    nodes = [
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in page.send("Accessibility.getFullAXTree")["nodes"]
        if not node["ignored"]
    ]
    assert {("textbox", "Prompt"), ("searchbox", "Search the documents")} <= set(nodes)
    assert ("columnheader", "logit") in nodes
    assert ("rowheader", page.evaluate("answer.hits[0].id")) in nodes
    assert {"status", "alert"} <= {role for role, _ in nodes}
    controls = (
        "textbox",
        "searchbox",
        "combobox",
        "button",
        "link",
        "region",
        "DisclosureTriangle",
    )
    assert [role for role, name in nodes if role in controls and not name] == []


@in_browser
def test_text_of_a_document_is_not_markup(page: Page, tmp_path: Path) -> None:
    hostile = "Merge PDF files <img src=x onerror=alert(1)><script>alert(1)</script>"
    index = tmp_path / "hostile.cgx"
    Index.build([{"id": "<b>pdf</b>", "text": hostile}], embedder=None).save(index)
    with serving("--port", "0", "--index", str(index), key="") as running:
        decided(page, running, "merge PDF files")
        assert (
            page.evaluate("document.querySelectorAll('main img, main script, main b').length") == 0
        )
        assert page.evaluate("at('judge').hidden")  # this server keeps no log


def test_judgement_from_a_form_of_another_site_is_refused(served: Served) -> None:
    body = json.dumps({"decision_id": "0" * 32, "fits": []})
    reply = served.post("/feedback", body.encode(), {"content-type": "text/plain"})
    assert 400 <= reply.status_code < 500


def test_log_needs_a_key_or_loopback(tmp_path: Path) -> None:
    from test_messages import run

    done = run(["serve", "--host", "0.0.0.0", "--port", "0", "--log", "x.jsonl"], tmp_path)
    assert done.code == 2
    assert "out_of_range" in done.err
