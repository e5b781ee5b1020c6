"""Examples: taught by command, in a file beside the index, and in the folder of a skill."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from commands import CROSSGATE
from conftest import build
from crossgate import Index, InputError, Router
from crossgate._sources import read_sources
from crossgate._sources.examples import read_examples
from hook_home import Home

SKILLS = {
    "slides": "Make and edit presentations and slide decks.",
    "sheets": "Make and edit spreadsheets and formulas.",
    "translate": "Translate texts between languages.",
}
PROMPT = "get the Heron numbers onto the wall for Monday's round"


@pytest.fixture
def index(tmp_path: Path) -> Path:
    path = tmp_path / "skills.cgx"
    build(SKILLS, embedder="default").save(path)
    return path


def teach(*arguments: str | Path, command: str = "teach") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [CROSSGATE, command, *arguments], capture_output=True, text=True, check=False
    )


def test_a_taught_prompt_selects_the_skill_at_once(index: Path) -> None:
    assert "slides" not in Router(Index.open(index)).route(PROMPT).ids
    done = teach(PROMPT, "-i", index, "--skill", "slides", "--json")
    assert done.returncode == 0, done.stderr
    learned = json.loads(done.stdout)
    assert learned["new"]
    assert learned["selected"] == ["slides"]
    assert learned["changed"] == []
    opened = Index.open(index)
    assert opened["slides"].examples == (PROMPT,)
    assert Router(opened).route(PROMPT).ids == ["slides"]
    assert not json.loads(teach(PROMPT, "-i", index, "--skill", "slides", "--json").stdout)["new"]
    assert len(read_examples(index.with_suffix(".examples.jsonl"))) == 1


def test_a_prompt_is_taught_to_select_nothing_or_not_a_skill(index: Path) -> None:
    prompt = "make a slide deck"
    assert Router(Index.open(index)).route(prompt).ids == ["slides"]
    assert teach(prompt, "-i", index, "--not", "slides").returncode == 0
    assert "slides" not in Router(Index.open(index)).route(prompt).ids
    done = teach("hang the numbers on the wall", "-i", index, "--nothing")
    assert "selects nothing now" in done.stdout
    assert "of 1 known prompt" in done.stdout


def test_a_sure_pick_is_taught_to_select_nothing(index: Path) -> None:
    done = teach("translate texts between languages", "-i", index, "--nothing")
    assert "selects nothing now" in done.stdout


def test_teach_reports_known_prompts_that_change(index: Path) -> None:
    teach(PROMPT, "-i", index, "--skill", "slides")
    done = teach(f"{PROMPT} please", "-i", index, "--not", "slides", "--json")
    learned = json.loads(done.stdout)
    assert learned["known"] == 1
    assert [row["prompt"] for row in learned["changed"]] in ([], [PROMPT])


def test_examples_beside_an_index_survive_a_rebuild(tmp_path: Path) -> None:
    folder = Home(tmp_path)
    for name, text in SKILLS.items():
        folder.skill(name, text)
    output = tmp_path / "skills.cgx"
    source = tmp_path / ".claude" / "skills"
    assert teach(source, "-o", output, command="index").returncode == 0
    teach(PROMPT, "-i", output, "--skill", "slides")
    assert teach(source, "-o", output, command="index").returncode == 0
    assert Index.open(output)["slides"].examples == (PROMPT,)


def test_a_broken_line_beside_an_index_is_named(index: Path) -> None:
    path = index.with_suffix(".examples.jsonl")
    path.write_text('{"prompt": "a", "skill": "slides"}\n\n{"prompt": 1}\n')
    done = teach(PROMPT, "-i", index, "--skill", "slides")
    assert done.returncode == 2
    assert "malformed_example" in done.stderr
    assert f"{path}:3" in done.stderr
    for bad in ("{", "[]", '{"prompt": "a"}', '{"prompt": "a", "skill": "x", "fits": 1}'):
        path.write_text(f"{bad}\n")
        with pytest.raises(InputError, match=r"examples\.jsonl:1"):
            read_examples(path)


def test_examples_in_the_folder_of_a_skill_are_read(tmp_path: Path) -> None:
    file = Home(tmp_path).skill("slides", SKILLS["slides"])
    rows = [{"prompt": PROMPT}, {"prompt": "a poster", "fits": False}]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (file.parent / "examples.jsonl").write_text(f"{lines}no JSON\n")
    loaded = read_sources([tmp_path / ".claude" / "skills"])
    (document,) = loaded.documents
    assert document.examples == (PROMPT,)
    assert document.counterexamples == ("a poster",)
    (problem,) = loaded.problems
    assert problem.path == os.path.join(file.parent, "examples.jsonl")
    assert problem.line == 3


def test_an_unknown_skill_gets_similar_names(index: Path) -> None:
    done = teach(PROMPT, "-i", index, "--skill", "slide")
    assert done.returncode == 2
    assert "did you mean slides" in done.stderr
    assert not index.with_suffix(".examples.jsonl").exists()


def test_feedback_teaches_the_query_of_the_last_decision(index: Path, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    teach(PROMPT, "-i", index, "--log", log, "--log-text", command="route")
    done = teach("wrong", "--skill", "slides", "-i", index, "--log", log, command="feedback")
    assert done.returncode == 0, done.stderr
    assert Router(Index.open(index)).route(PROMPT).ids == ["slides"]


def test_feedback_finds_the_prompt_of_a_log_without_texts(index: Path, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    folder = tmp_path / "claude" / "projects" / "p"
    folder.mkdir(parents=True)
    teach(PROMPT, "-i", index, "--log", log, command="route")
    line: list[str | Path] = [
        CROSSGATE,
        "feedback",
        "wrong",
        "--skill",
        "slides",
        "-i",
        index,
        "--log",
        log,
    ]
    environment = {**os.environ, "CLAUDE_CONFIG_DIR": str(tmp_path / "claude")}
    done = subprocess.run(line, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 2
    assert "crossgate teach" in done.stderr
    said = {"type": "user", "message": {"role": "user", "content": PROMPT}}
    (folder / "a.jsonl").write_text(json.dumps(said) + "\n")
    done = subprocess.run(line, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert Index.open(index)["slides"].examples == (PROMPT,)
