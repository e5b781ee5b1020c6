"""One deadline holds for every step before stage 2, and a step that it cuts is named."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

import crossgate._core as _core
from conftest import WordEmbedder
from crossgate import Context, Document, Index, Profile, Router, RouteResult, rerank
from crossgate._decision import plain_names, rerank_candidates, router
from crossgate._reranking.contract import OutOfTime
from crossgate._retrieval import spelling
from crossgate.rerankers import Deadline

LONG = "".join(f"Part {number} of the handbook is about drainage. " for number in range(100))
TEXTS = ["merge pdf files", "clean csv files", LONG]
QUERY = "drianage of pdf files"
CONTEXT = Context(history=("merge the invoices of this year",))


def routed(**options: Any) -> RouteResult:
    documents = [Document(id=str(number), text=text) for number, text in enumerate(TEXTS)]
    index = Index.build(documents, embedder=WordEmbedder())
    return Router(index, reranker=None, profile=Profile()).route(QUERY, **options)


def reranked(**options: Any) -> RouteResult:
    return rerank(QUERY, TEXTS, reranker=None, **options)


def values(result: RouteResult) -> dict[str, Any]:
    read = result.to_dict(trace=True)
    read.pop("timings_ms")
    read["trace"].pop("budget_ms")
    return read


@pytest.mark.parametrize(
    ("decide", "steps"),
    [
        (
            routed,
            (
                "look for misspelt words",
                "read earlier requests",
                "choose the passages of long texts: only their beginnings count",
                "embed 1 long text: only their beginnings have cosines",
                "tell names from ordinary words",
            ),
        ),
        (
            reranked,
            (
                "look for misspelt words",
                "detect the language",
                "look for words that no candidate has: the candidates are not embedded",
                "score the candidates: the retriever's order was kept",
            ),
        ),
    ],
)
def test_each_step_is_cut_when_the_budget_ends_and_is_named(
    decide: Callable[..., RouteResult], steps: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each reading of the clock takes a second, so each budget ends at another step."""
    whole = values(decide(context=CONTEXT))
    assert any(warning["code"] == "spelling" for warning in whole["warnings"])
    seen: set[str] = set()
    for seconds in itertools.count():
        clock = partial(next, itertools.count())
        for module in (router, rerank_candidates):
            monkeypatch.setattr(module, "Deadline", partial(Deadline, clock=clock))
        result = decide(context=CONTEXT, budget_ms=1000 * seconds)
        late = [note.detail for note in result.degraded if note.code == "budget"]
        cut = [detail.removeprefix(f"{1000 * seconds} ms was too short to ") for detail in late]
        # Once the time is up, no later step runs.
        assert cut == [step for step in steps if step in cut], seconds
        assert {hit.id for hit in result.hits} == {"0", "1", "2"}
        seen.update(cut)
        if not cut:
            break
    assert seen == set(steps)
    assert values(result) == whole


def test_names_are_told_from_words_until_the_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"cancel": "Stops the job of an agent.", "gym": "w " * 30_000, "member": "Lists users."}
    documents = [Document(id=id, title=id, text=text) for id, text in texts.items()]
    query, left = "cancel my gym membership", 3
    analysed: list[int] = []

    def check() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OutOfTime

    def analyze(text: str, language: str) -> list[str]:
        analysed.append(len(text))
        return _core.analyze(text, language)

    index = Index.build(documents, embedder=WordEmbedder())
    found = index.search(query)
    core = SimpleNamespace(**{**vars(_core), "analyze": analyze})
    monkeypatch.setattr(plain_names, "_core", core)
    embed = WordEmbedder().embed
    arguments = found.scored, found.documents, query, "english", embed, Profile()
    with pytest.raises(OutOfTime):
        plain_names.with_plain_names(*arguments, check)  # after three candidates
    assert max(analysed) < 1_000  # the text of 60,000 characters describes no skill


def test_words_that_nobody_misspells_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two words of 30,000 letters took minutes."""
    edits = spelling._edits
    lengths = []

    def counted(word: str, other: str, most: int) -> int:
        lengths.append(max(len(word), len(other)))
        return edits(word, other, most)

    monkeypatch.setattr(spelling, "_edits", counted)
    text = "swimming " + "xexcept" * 5_000
    read, corrections = spelling.corrected("swiming " + "except" * 5_000, [text], "english")
    assert corrections == {"swiming": "swimming"}
    assert read.startswith("swimming ")
    assert max(lengths) < 50
