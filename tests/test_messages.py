"""Messages name what exists, and end with a remedy."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import crossgate
from commands import CROSSGATE, Run, environment
from conftest import skills
from crossgate._cli import COMMANDS
from crossgate._runtime import model_files

PACKAGE = Path(crossgate.__file__).parent


def run(arguments: list[str], folder: Path) -> Run:
    """Run the command in a folder."""
    done = subprocess.run(
        [CROSSGATE, *arguments], cwd=folder, env=environment(folder), capture_output=True, text=True
    )
    return Run(done.returncode, done.stdout, done.stderr)


COMMAND = re.compile(r"`crossgate ([a-z]+)")


def literals(path: Path) -> Iterator[str]:
    """Yield the string literals of a module; those that stand side by side are one."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_messages_and_docs_name_commands_that_exist() -> None:
    texts = [text for path in PACKAGE.rglob("*.py") for text in literals(path)]
    root = Path(__file__).parents[1]
    pages = {*root.glob("*.md"), *root.glob("docs/*.md"), *root.glob("eval/*.md")}
    pages -= {root / "CHANGELOG.md"}  # which names commands that are gone
    texts += [page.read_text(encoding="utf-8") for page in pages]
    named = {name for text in texts for name in COMMAND.findall(text)}
    assert len(named) > 5
    assert named <= COMMANDS.keys()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one skill, its index, a file of labels, and files of other content."""
    home = tmp_path_factory.mktemp("messages")
    skills(home / "skills", {"pdf": "Merge PDF files."})
    (home / "labels.jsonl").write_text('{"query": "merge", "relevant": ["pdf"]}\n', "utf-8")
    (home / "odd.jsonl").write_text('{"question": "merge", "answer": ["pdf"]}\n', "utf-8")
    done = run(["index", "skills", "-o", "skills.cgx"], home)
    assert done.out.startswith("skills.cgx: 1 document, "), done.out
    return home


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["route", "merge", "-i", "skills"], "crossgate index skills -o skills.cgx"),
        (["route", "merge", "my", "files", "-i", "skills.cgx"], '"merge my files"'),
        (["route", "merge", "-i", "skills.cgx", "--deny", "pfd"], "did you mean 'pdf'?"),
        (["route", "merge", "-i", "skills.cgx", "--allow", "pfd"], "did you mean 'pdf'?"),
        (["roote", "merge"], "did you mean 'route'?"),
        (["route", "merge", "-i", "skills.cgx", "--nosuch"], "unrecognized arguments: --nosuch"),
        (["eval", "skills", "odd.jsonl"], "odd.jsonl holds no labels"),
        (["eval", "skills", "nosuch.jsonl"], "no such file or folder: nosuch.jsonl"),
        (["eval", "skills"], "skills holds no labels"),
        (
            [
                "calibrate",
                "skills",
                "labels.jsonl",
                "-o",
                "p.json",
                "--max-false-positive-rate",
                "0.1",
            ],
            "a false-positive rate of 0.1 needs 9",
        ),
        (
            ["route", "merge", "-i", "skills.cgx", "--reranker", "ms-marco-minilm-l6"],
            "did you mean 'ms-marco-minilm-l6-v2'?",
        ),
        (["models", "pull", "bge-reranker-bass"], "did you mean 'bge-reranker-base'?"),
        (["models", "pull", "ms-marco-minilm-l12"], "'crossgate-passages-minilm-l12' replaces it"),
        (["eval", "compare", "one.json"], "1 file to compare"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_command_error_gives_a_remedy(folder: Path, arguments: list[str], said: str) -> None:
    done = run(arguments, folder)
    assert done.code in (1, 2)
    assert said in done.err


def test_unknown_model_without_a_similar_name_gets_all_names() -> None:
    said = model_files.similar("zzzz")
    assert all(model.name in said for model in model_files.known())
