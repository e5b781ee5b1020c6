"""Runs the examples of README, docs and public docstrings, offline, in a new folder."""

from __future__ import annotations

import importlib
import inspect
import io
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import sysconfig
from contextlib import redirect_stdout
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from notebooks import printed, read, stored
from website import exported

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"),
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "examples" / "README.md",
]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
CROSSGATE = Path(sysconfig.get_path("scripts")) / "crossgate"
MODULES = [
    "crossgate",
    "crossgate.calibration",
    "crossgate.evaluation",
    "crossgate.lint",
    "crossgate.models",
    "crossgate.pipelines",
    "crossgate.rerankers",
    "crossgate.telemetry",
]
SKILLS = {
    "csv-cleaner": "Clean up messy CSV files: broken quotes, duplicate rows",
    "pdf-toolkit": "Merge, split and fill in PDF files",
    "git-history": "Squash, reorder and reword the commits of a branch",
}
_BLOCK = re.compile(
    r"(?:<!-- not run: (?P<reason>[^>]+) -->\n)?```(?P<kind>python|sh)\n(?P<text>.*?)```", re.DOTALL
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, with the reason if it is not run."""

    kind: str
    text: str
    reason: str | None


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = _BLOCK.finditer(text)
    return [Block(match["kind"], match["text"], match["reason"]) for match in found]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with skills and candidates, as the working directory, without a network."""

    def refuse(_: socket.socket, address: object) -> None:
        raise AssertionError(f"an example connects to {address}")

    for name, description in SKILLS.items():
        skill = tmp_path / "skills" / name / "SKILL.md"
        skill.parent.mkdir(parents=True)
        skill.write_text(f"---\nname: {name}\ndescription: {description!r}\n---\nDo it.\n")
    tool = {"name": "issue_search", "description": "Find issues", "inputSchema": {}}
    (tmp_path / "tools.json").write_text(json.dumps({"tools": [tool]}))
    rows = ["Production runs on twelve nodes.", "The staging cluster has five nodes."]
    (tmp_path / "candidates.jsonl").write_text(
        "".join(json.dumps({"text": t}) + "\n" for t in rows)
    )
    monkeypatch.setattr(socket.socket, "connect", refuse)
    # Commands are separate processes, so a proxy on a closed port blocks their connections.
    for variable in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable in [
        variable for variable in os.environ if re.match("CROSSGATE_|.*_API_KEY$", variable)
    ]:
        monkeypatch.delenv(variable)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_line(line: str, folder: Path) -> None:
    """Run one line of a shell block; a comment may name the exit code that it should have."""
    expected = re.search(r"# exits with (\d)", line)
    command = shlex.split(line, comments=True)
    assert command[0] == "crossgate"
    done = subprocess.run(
        [CROSSGATE, *(argument.replace("~", str(folder), 1) for argument in command[1:])],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == int(expected[1] if expected else 0), (line, done.stderr)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_runs_from_top_to_bottom(page: Path, folder: Path) -> None:
    if page.name == "integrations.md":
        for framework in ("haystack", "langchain_core", "llama_index.core", "rerankers"):
            pytest.importorskip(framework, reason=f"{framework} is not installed")
    for block in blocks(page):
        if block.reason:
            continue
        if block.kind == "python":
            exec(compile(block.text, page.name, "exec"), {})
            continue
        for line in block.text.splitlines():
            if line.startswith("crossgate "):
                run_line(line, folder)


def test_examples_have_no_errors_of_types(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="mypy is not installed")
    for page in PAGES:
        for number, block in enumerate(blocks(page)):
            if block.kind == "python" and not block.reason:
                (tmp_path / f"{page.stem}_{number}.py").write_text(block.text, encoding="utf-8")
    files = sorted(path.name for path in tmp_path.glob("*.py"))
    assert len(files) > 20
    options = ["--strict", "--ignore-missing-imports", "--explicit-package-bases"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *files],
        cwd=tmp_path,
        env=os.environ | {"MYPYPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_have_a_target(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_each_promise_names_tests_that_exist() -> None:
    section = (ROOT / "SECURITY.md").read_text("utf-8").split("## Promises")[1].split("\n## ")[0]
    tests = "".join(path.read_text("utf-8") for path in (ROOT / "tests").glob("test_*.py"))
    rows = re.findall(r"^\| .* \| (`.*`) \|$", section, re.MULTILINE)
    assert len(rows) == section.count("\n| ") - 2  # without the head of the table
    for name in re.findall(r"`(\w+)`", "".join(rows)):
        assert f"def {name}(" in tests, name


def test_all_notebooks_are_listed() -> None:
    listed = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    assert len(NOTEBOOKS) == 5
    assert all(f"({path.name})" in listed for path in NOTEBOOKS)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_cells_print_the_stored_outputs(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if path.stem == "tool_search_in_frameworks":
        for framework in ("fastmcp", "langchain", "langgraph", "pydantic_ai"):
            pytest.importorskip(framework, reason=f"{framework} is not installed")
    monkeypatch.setenv("PATH", str(CROSSGATE.parent), prepend=os.pathsep)
    shown = [stored(cell) for cell in read(path) if cell["cell_type"] == "code"]
    assert printed(path) == shown
    assert any(shown)


def test_outage_example_runs_as_documented(folder: Path) -> None:
    page = (ROOT / "docs/rerankers.md").read_text(encoding="utf-8")
    (block,) = (
        block.text for block in blocks(ROOT / "docs/rerankers.md") if "HTTP 503" in block.text
    )
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(block, "rerankers.md", "exec"), {})
    shown = page.split(block)[1].split("```text\n")[1].split("```")[0]
    assert [line.rstrip() for line in printed.getvalue().splitlines()] == shown.splitlines()


def test_demo_output_equals_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = subprocess.run([CROSSGATE, "demo"], capture_output=True, text=True, check=True)
    for line in shown.stdout.split("Now with your own")[0].splitlines():
        # Times differ from run to run.
        pattern = r"\(\d+ ms\)".join(map(re.escape, re.split(r"\(\d+ ms\)", line)))
        assert re.search(f"^ *{pattern}$", readme, re.MULTILINE), line


@pytest.mark.parametrize("name", MODULES)
def test_reference_lists_every_public_name(name: str) -> None:
    short = "__init__" if name == "crossgate" else name.removeprefix("crossgate.")
    listed = {public for public, _ in exported(short)}
    assert listed == set(importlib.import_module(name).__all__)


def test_profile_page_lists_every_setting() -> None:
    from crossgate import Policy, Profile

    page = (ROOT / "docs/profile.md").read_text(encoding="utf-8")
    for part, title in ((Profile(), "## Profile"), (Policy(), "## Policy")):
        section = page.split(title)[1].split("\n## ")[0]
        for setting in part.to_dict():
            assert re.search(rf"`{setting}[`.]", section), setting


def test_core_describes_every_number_of_a_profile() -> None:
    """The page sends readers to `help`."""
    from crossgate import Policy, Profile

    groups: list[object] = [Profile(), Policy()]
    for group in groups:
        for name, described in vars(type(group)).items():
            if inspect.isgetsetdescriptor(described):
                assert described.__doc__, (type(group).__name__, name)
                value = getattr(group, name)
                if type(value).__module__ == type(group).__module__:
                    groups.append(value)
    assert len(groups) > 10


def test_command_page_lists_every_environment_variable() -> None:
    page = (ROOT / "docs/commands.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"`([A-Z][A-Z0-9_]{5,})`", page))
    pattern = r"""["'`$]((?:CROSSGATE|HF|XDG|ORT|OPENAI)_[A-Z_]+[A-Z]|[A-Z]+_API_KEY|NO_COLOR)\b"""
    used = set()
    for path in (ROOT / "python/crossgate").rglob("*.py"):
        used |= set(re.findall(pattern, path.read_text(encoding="utf-8")))
    assert {"CROSSGATE_CACHE", "VOYAGE_API_KEY", "OPENAI_BASE_URL"} <= used
    assert used - listed == set()


@pytest.mark.parametrize("name", ["crossgate", "crossgate.pipelines", "crossgate.rerankers"])
def test_docstring_example_runs(name: str, folder: Path) -> None:
    from crossgate import Document, Index

    example = (importlib.import_module(name).__doc__ or "").split("\n\n", 1)[1]
    assert "from crossgate" in example
    names = {
        "index": Index.build([Document(id="pdf", text="Merge, split and fill PDF files")]),
        "query": "join these two PDF files",
        "now": datetime(2031, 3, 15, tzinfo=UTC),
    }
    exec(compile(example, name, "exec"), names)
    assert names["result"].ids == ["pdf"]  # type: ignore[attr-defined]
