"""Messages agree with their numbers, name types as users write them, and end with a remedy."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import crossgate
from commands import CROSSGATE, Run, environment
from crossgate import CrossgateError
from crossgate._cli import COMMANDS
from crossgate._runtime.models import manifest
from crossgate._support.wording import article, counted, did_you_mean, share_of, type_of
from test_wrong_types import WRONG, calls

PACKAGE = Path(crossgate.__file__).parent
NO_NOUNS = {
    *("is", "was", "has", "as", "this", "its", "ms", "us", "runs", "needs", "reads", "sees"),
    *("calls", "shows", "lists", "exceeds", "names", "returns", "wins", "occurs", "contains"),
    *(
        "uses",
        "differs",
        "holds",
        "takes",
        "lacks",
        "ranks",
        "switches",
        "finds",
        "raises",
        "exists",
        "fits",
        "does",
        "xmlns",
        "of",
        "what",
        "such",
    ),
}
# A plural after a value that may be 1: "{count} queries", "{part} of {whole} queries".
PLURAL = re.compile(r" ((?:[a-z]+-)?[a-z]+s)\b")
COUNTED = re.compile(
    r" (?:[a-z-]+ ){1,2}(?:queries|documents|prompts|skills|tools|candidates|passages|decisions)\b"
)
# A verb after a count agrees only with one form: use a participle instead, or name the count last.
COUNT = re.compile(r"\{(counted|share_of)\(")
VERB = re.compile(r" (?:have|has|are|is|were|was|do|does|say|says)\b")
UNGRAMMATICAL = re.compile(
    r"\b1 (?!is\b|was\b|has\b|as\b|ms\b|finds\b)[a-z]+s\b|NoneType|\ba (?=[aeio][a-z]+\b)(?!one\b)"
    r"|\ban (?![aeiou]|h|x\b|[A-Z`'])|<class|object at 0x"
)


def run(arguments: list[str], folder: Path) -> Run:
    """Run the command in a folder."""
    done = subprocess.run(
        [CROSSGATE, *arguments], cwd=folder, env=environment(folder), capture_output=True, text=True
    )
    return Run(done.returncode, done.stdout, done.stderr)


def f_strings(path: Path) -> Iterator[ast.JoinedStr]:
    """Yield the f-strings of a module."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            yield node


def may_be_one(value: ast.FormattedValue) -> bool:
    """Return whether a placeholder may hold the whole number 1.

    Constants are larger than 1; numbers with a format are durations, shares and scores, except
    those with a comma between thousands.
    """
    shown = value.value
    name = shown.id if isinstance(shown, ast.Name) else getattr(shown, "attr", "")
    constant = name == "same" or name.isupper() or name in {"body", "chars"}
    spec = ast.unparse(value.format_spec) if value.format_spec else ""
    called = isinstance(shown, ast.Call) and getattr(shown.func, "id", "") not in {"len", "sum"}
    is_text = isinstance(shown, ast.IfExp | ast.JoinedStr) or value.conversion == ord("r")
    return not (constant or called or is_text or (spec and "," not in spec))


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_noun_after_a_count_agrees_with_the_count(path: Path) -> None:
    wrong = []
    for text in f_strings(path):
        for value, after in zip(text.values, text.values[1:], strict=False):
            if not isinstance(value, ast.FormattedValue) or not isinstance(after, ast.Constant):
                continue
            words = str(after.value)
            noun = PLURAL.match(words) or COUNTED.match(words)
            if COUNT.match(ast.unparse(value)) and (verb := VERB.match(words)):
                wrong.append(f"line {value.lineno}: {ast.unparse(value)}{verb[0]}")
            if noun and noun[0].split()[0] not in NO_NOUNS and may_be_one(value):
                wrong.append(f"line {value.lineno}: {ast.unparse(value)}{noun[0]}")
    assert not wrong, f"use counted() of _support/wording.py: {wrong}"


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_no_message_spells_an_article_before_a_type(path: Path) -> None:
    for text in f_strings(path):
        parts = [str(part.value) if isinstance(part, ast.Constant) else "" for part in text.values]
        for value, before in zip(text.values[1:], parts, strict=False):
            if isinstance(value, ast.FormattedValue) and before.endswith((" a ", " an ")):
                assert "__name__" not in ast.unparse(value), f"use type_of(): line {value.lineno}"


COMMAND = re.compile(r"`crossgate ([a-z]+)")


def literals(path: Path) -> Iterator[str]:
    """Yield the string literals of a module; those that stand side by side are one."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_messages_and_docs_name_commands_that_exist() -> None:
    texts = [text for path in PACKAGE.rglob("*.py") for text in literals(path)]
    root = Path(__file__).parents[1]
    pages = [*root.glob("*.md"), *root.glob("docs/*.md"), *root.glob("eval/*.md")]
    texts += [page.read_text(encoding="utf-8") for page in pages]
    named = {name for text in texts for name in COMMAND.findall(text)}
    assert len(named) > 5
    assert named <= COMMANDS.keys()


def test_errors_of_wrong_arguments_are_grammatical(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    messages = set()
    for function, positional, named in calls(tmp_path):
        for place in range(len(positional)):
            for value in WRONG:
                given: list[Any] = [*positional]
                given[place] = value
                try:
                    function(*given, **named)
                except CrossgateError as error:
                    messages.add(str(error).replace(repr(value), "VALUE"))
                except Exception:  # of another type, which other tests judge
                    continue
    assert len(messages) > 50
    assert not [message for message in messages if UNGRAMMATICAL.search(message)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one skill, its index, a file of labels, and files of other content."""
    home = tmp_path_factory.mktemp("messages")
    skill = home / "skills" / "pdf" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: pdf\ndescription: Merge PDF files.\n---\n", encoding="utf-8")
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
        (["calibrate", "skills", "labels.jsonl", "-o", "p.json"], "for 1 query of the half"),
        (
            ["route", "merge", "-i", "skills.cgx", "--reranker", "ms-marco-minilm-l6"],
            "did you mean 'ms-marco-minilm-l6-v2'?",
        ),
        (["models", "pull", "bge-reranker-bass"], "did you mean 'bge-reranker-base'?"),
        (["eval", "compare", "one.json"], "1 file to compare"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_command_error_gives_a_remedy(folder: Path, arguments: list[str], said: str) -> None:
    done = run(arguments, folder)
    assert done.code in (1, 2)
    assert said in done.err
    assert not UNGRAMMATICAL.search(done.err)


def test_nothing_that_fits_is_said_once(folder: Path) -> None:
    done = run(["route", "what time is it", "-i", "skills.cgx"], folder)
    assert done.code == 1
    assert re.fullmatch(r"nothing fits: [^\n]+ \(\d+ ms\)\n", done.out)
    assert len(re.findall("nothing", done.out)) == 1


def test_report_of_one_query_is_grammatical(folder: Path) -> None:
    done = run(["eval", "skills", "labels.jsonl"], folder)
    assert done.code == 0, done.err
    assert not UNGRAMMATICAL.search(done.out)


def test_unknown_model_without_a_similar_name_gets_all_names() -> None:
    said = manifest.similar("zzzz")
    assert all(model.name in said for model in manifest.known())


def test_count_and_type_are_worded() -> None:
    assert counted(1, "query") == "1 query"
    assert counted(0, "query") == "0 queries"
    assert counted(12_345, "day") == "12,345 days"
    assert share_of(1, 1, "first match") == "1 of 1 first match"
    assert share_of(1, 2, "first match") == "1 of 2 first matches"
    values: tuple[object, ...] = (None, 3, [], {}, "x")
    assert [type_of(value) for value in values] == [
        *("None", "an int", "a list", "a dict", "a str"),
    ]
    assert article("embedder") == "an embedder"
    assert did_you_mean("pfd", ["pdf", "csv"]) == ": did you mean 'pdf'?"
    assert did_you_mean("zzz", ["pdf", "csv"]) == ""
