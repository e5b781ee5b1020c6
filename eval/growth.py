"""Measures how the cost of each step before stage 2 grows with the text, over 170 shapes of text.

    python eval/growth.py                # a quarter of an hour
    python eval/growth.py split route   # some steps

A cost is the processor time of the step; descriptions have an eighth of the text. The exit code is
1 if a cost at 64 KB is more than 1.6 times that of a step that is linear in those at 16 and 32 KB;
a quadratic step has twice that cost.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from time import thread_time
from typing import Any

import crossgate._core as core
from crossgate import Context, Document, Index, Router, rerank
from crossgate._agents.hook.agents import AGENTS, read_hook_prompt
from crossgate._retrieval.document_index import bundled_embedder
from crossgate._retrieval.passages import windows
from crossgate._retrieval.spelling import corrected_to
from crossgate._sources.projects import technologies_of
from crossgate._sources.transcripts import last_requests
from crossgate._values.inputs import read_prompt

SIZES = (16_384, 32_768, 65_536)
GROWTH = 1.6
LEAST_MS = 20.0
"""A smaller cost at the largest size is not measured precisely."""

PIECES = r"""y|it|them.|Do it.|de la|Maria de|x;|fox|not|except|(for|do not use for|use when
e.g.|v1.2.3|1. x|2024-01-02 10:11:12|3 May 2024|1,234.5|://|https://e.org/a?b=c|a@b.c|/usr/lib/x
(|)|([{|"|'|“1|`|```|~~~py|<a>|</a>|<ide_x>|&amp;|\|- x|> q|# h|---|| a | b |
At f(x.py:1)|ERROR: é|a=1|{"a":|[project]"""
LETTERS = ("e\u0301", "\u0301", "é", "字", "😀", "\u200d", "\0")
SEPARATORS = ("", " ", "\n")

ORDINARY = "merge the three PDF files into one, and translate it into German"
DOCUMENTS = [
    Document(id=f"d{number}", text=f"Handle files of kind {number}: merge, split, translate")
    for number in range(20)
]


def shapes() -> dict[str, str]:
    """Return texts of the largest size by the name of their shape."""
    most = SIZES[-1]
    pieces = [piece for line in PIECES.split("\n") for piece in line.split("|") if piece]
    units = [piece + end for piece, end in product([*pieces, *LETTERS], SEPARATORS)]
    found = {repr(unit): unit * (most // len(unit) + 1) for unit in units}
    syllables = ("bdfglmnprst", "aeiou") * 2
    found["distinct words"] = " ".join(map("".join, product(*syllables, "bdfglmnprst")))
    found["distinct versions"] = "".join(f"Python {number}.1 " for number in range(9_000))
    found["one long word"] = "except" * most
    found["a request behind a fence"] = "fix this\n```\n" + "x = 1\n" * most
    found["two paragraphs"] = "notes\n\n" + "translate this " * most
    return {name: text[:most] for name, text in found.items()}


def steps(folder: Path) -> Mapping[str, Callable[[str], object]]:
    """Return each step by its name, as a function of a text."""
    index = Index.build(DOCUMENTS)
    router = Router(index, reranker=None)
    session = Router(index, reranker=None, profile="session")
    history = Context(history=(ORDINARY,) * 8)

    def document(**fields: Any) -> Document:
        return Document(**({"id": "a", "text": "Merge files"} | fields))

    def indexed(**fields: Any) -> Index:
        return Index.build([document(**fields)], embedder=None)

    def written(name: str, text: str) -> Path:
        (folder / name).write_text(text, encoding="utf-8")
        return folder / name

    def manifest(text: str) -> object:
        return technologies_of(written("pyproject.toml", text).parent)

    def description(text: str) -> str:
        return "a " + text[: len(text) // 8]

    def hooked(text: str) -> object:
        return read_hook_prompt(AGENTS["claude"], json.dumps({"prompt": text}).encode())

    return {
        "hook's prompt": hooked,
        "split": read_prompt,
        "language": core.language,
        "form": lambda text: core.form(text, text, True),
        "history": lambda text: core.history_weights(text, 8, 0.2),
        "courtesy": core.is_courtesy,
        "terms": lambda text: core.analyze(text, "english"),
        "embed": lambda text: bundled_embedder().embed([text]),
        "manifest": manifest,
        "transcript": lambda text: last_requests(written("t.jsonl", text)),
        "spelling of a query": lambda text: corrected_to(text, DOCUMENTS, "english"),
        "spelling of a document": lambda text: corrected_to(
            "pfd mergge", [document(text=text)], "english"
        ),
        "spelling of both": lambda text: corrected_to(text, [document(text="x" + text)], "english"),
        "index a text": lambda text: indexed(text="a " + text),
        "index a description": lambda text: indexed(text=description(text), body="Do it."),
        "index a body": lambda text: indexed(body=text),
        "index a title": lambda text: indexed(title=text),
        "index a trigger": lambda text: indexed(triggers=(text,)),
        "search": lambda text: index.search(text, embed=False),
        "search in a description": lambda text: indexed(
            text=description(text), body="Do it."
        ).search(text, embed=False),
        "windows of a query": lambda text: windows(text, [document(text="red fox. " * 2_000)]),
        "windows of a text": lambda text: windows(ORDINARY, [document(text=text)]),
        "windows of a body": lambda text: windows(ORDINARY, [document(body=text)]),
        "route": router.route,
        "route in a session": session.route,
        "route behind a request": lambda text: router.route(text, context=history),
        "route behind texts": lambda text: router.route(
            "do it again", context=Context(history=(text,) * 8)
        ),
        "rerank": lambda text: rerank("a" + text[1:], ["red fox", "hen"], reranker=None),
        "rerank a text": lambda text: rerank(ORDINARY, ["red fox", text], reranker=None),
        "rerank parts": lambda text: rerank(
            ORDINARY, [text[at : at + 2_000] for at in range(0, len(text), 2_000)], reranker=None
        ),
    }


def cost(step: Callable[[str], object], text: str, tries: int = 1) -> float:
    """Return the least processor time of a step, in milliseconds."""
    found = []
    for _ in range(tries):
        start = thread_time()
        step(text)
        found.append((thread_time() - start) * 1000)
    return min(found)


def growth_of(costs: list[float]) -> float:
    """Return the cost at the largest size as a multiple of that of a linear step."""
    small, middle, large = costs
    return large / max(4 * small, 2 * middle) if large >= LEAST_MS else 0.0


def main(names: list[str]) -> int:
    """Print a table, and return 1 if a step costs more than allowed."""
    failed = 0
    texts = shapes()
    print(f"| step | most ms at 64 KB, of {len(texts)} shapes | of | most growth | of |")
    with tempfile.TemporaryDirectory() as made:
        for name, step in steps(Path(made)).items():
            if names and name not in names:
                continue
            step("warm up")
            slowest, steepest = (0.0, ""), (0.0, "")
            for shape, text in texts.items():
                costs = [cost(step, text[:size]) for size in SIZES]
                # A growth that is measured once may be noise.
                if growth_of(costs) > GROWTH:
                    costs = [cost(step, text[:size], 3) for size in SIZES]
                growth = growth_of(costs)
                slowest = max(slowest, (costs[-1], shape))
                steepest = max(steepest, (growth, shape))
                failed += growth > GROWTH
            print(f"| {name} | {slowest[0]:.0f} | `{slowest[1]}`", end=" | ")
            print(f"{steepest[0]:.1f} | `{steepest[1]}` |", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
