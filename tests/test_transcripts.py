"""Tests of reading transcripts, as labels."""

from __future__ import annotations

import json
import os
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from conftest import LIBRARY, refused, skills
from crossgate._cli import run
from crossgate._evaluation.label_files import OPENED, UNOPENED, read_labels
from crossgate._sources.transcripts import read_turns, transcripts_below


def said(text: str | Sequence[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """Return a line of a person, or of the agent in a person's name."""
    return {"type": "user", "message": {"role": "user", "content": text}, **more}


def called(name: str, **given: Any) -> dict[str, Any]:
    """Return a line in which the agent calls a tool."""
    block = {"type": "tool_use", "id": "toolu_01", "name": name, "input": given}
    text = {"type": "text", "text": "Skill(skill: other) and other/SKILL.md, in words alone."}
    return {"type": "assistant", "message": {"role": "assistant", "content": [text, block]}}


def result(text: str) -> dict[str, Any]:
    """Return a line with what a tool gave."""
    return said([{"type": "tool_result", "tool_use_id": "toolu_01", "content": text}])


def transcript(path: Path, *lines: dict[str, Any] | str) -> Path:
    """Write a transcript."""
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = [item if isinstance(item, str) else json.dumps(item) for item in lines]
    path.write_text("\n".join(texts) + "\n")
    return path


def heard(path: Path) -> list[tuple[str, tuple[str, ...]]]:
    """Return the prompts of a transcript with the opened skills."""
    return [(item.text, item.opened) for item in read_turns(path)]


def test_an_opened_skill_belongs_to_the_previous_prompt(tmp_path: Path) -> None:
    path = transcript(
        tmp_path / "a.jsonl",
        {"type": "summary", "summary": "Merging"},
        said("merge these"),
        called("Skill", skill="docs:pdf-toolkit", args="x"),
        result("Launching skill: pdf-toolkit"),
        said([{"type": "text", "text": "Base directory for this skill: /s/pdf"}], isMeta=True),
        called("Read", file_path="/home/me/.claude/skills/csv-cleaner/SKILL.md"),
        called("Bash", command="cat 'C:\\skills\\git-history\\SKILL.md' | head"),
        called("Skill", skill="docs:pdf-toolkit"),
        # Written files may quote any path.
        called("Write", file_path="notes.md", content="see other/SKILL.md"),
        said([{"type": "text", "text": "now "}, {"type": "text", "text": "the next"}]),
        said("and this"),
        called("Skill", command="/deploy"),
    )
    assert heard(path) == [
        ("merge these", ("docs:pdf-toolkit", "csv-cleaner", "git-history")),
        ("now \nthe next", ()),
        ("and this", ("deploy",)),
    ]
    assert [item.line for item in read_turns(path)] == [2, 10, 11]


@pytest.mark.parametrize(
    "line",
    [
        said("<command-name>/compact</command-name>"),
        said("<local-command-stdout>done</local-command-stdout>"),
        said("[Request interrupted by user]"),
        said("This session is being continued from a previous conversation that ran out"),
        said("Caveat: The messages below were generated", isMeta=True),
        said("a summary", isCompactSummary=True),
        said("what one agent asks another", isSidechain=True),
        said("   "),
        said([{"type": "image", "source": {}}]),
        result("42"),
        {"type": "user"},
        {"type": "user", "message": {"content": 5}},
        {"type": "user", "message": {"content": [5, {"type": "text", "text": 5}]}},
        {**called("Skill", skill="x"), "isSidechain": True},
        called("Skill", skill=5),
        {"type": "assistant", "message": {"content": [{"type": "tool_use", "input": []}]}},
        '{"type": "user", "mess',
        "[1, 2]" * 40_000,
        '{"type": "user", "a": ' + "[" * 100_000,
    ],
)
def test_agent_messages_and_damaged_lines_are_skipped(
    tmp_path: Path, line: dict[str, Any] | str
) -> None:
    path = transcript(tmp_path / "a.jsonl", line, said("hello"), line)
    assert heard(path) == [("hello", ())]


def test_a_file_that_the_editor_adds_is_not_part_of_the_prompt(tmp_path: Path) -> None:
    added = "<ide_opened_file>The user opened /x/y.py in the IDE.</ide_opened_file>"
    blocks = [{"type": "text", "text": text} for text in (added, "mend this")]
    assert heard(transcript(tmp_path / "a.jsonl", said(blocks))) == [("mend this", ())]


def test_skills_opened_after_a_command_are_ignored(tmp_path: Path) -> None:
    path = transcript(
        tmp_path / "a.jsonl", said("hi"), said("/deploy staging"), called("Skill", skill="deploy")
    )
    assert heard(path) == [("hi", ())]


def test_an_endless_line_is_skipped_in_little_memory(tmp_path: Path) -> None:
    path = transcript(tmp_path / "a.jsonl", said("first"))
    with path.open("ab") as file:
        file.write(b'{"type": "user", "message": {"content": "')
        file.truncate(file.tell() + 200 * 2**20)  # takes no room on disk
        file.seek(0, os.SEEK_END)
        file.write(b'"}}\n' + json.dumps(said("last")).encode() + b"\n")
    tracemalloc.start()
    try:
        assert heard(path) == [("first", ()), ("last", ())]
        assert tracemalloc.get_traced_memory()[1] < 64 * 2**20
    finally:
        tracemalloc.stop()


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    there = transcript(tmp_path / "there" / "a.jsonl", said("first"))
    outside = transcript(tmp_path / "outside" / "b.jsonl", said("secret"))
    (there.parent / "b.jsonl").symlink_to(outside)
    (there.parent / "below").symlink_to(outside.parent)
    (there.parent / "c.jsonl").symlink_to(there)
    assert transcripts_below(there.parent) == [there, there.parent / "c.jsonl"]


@pytest.fixture(name="skills")
def written_skills(tmp_path: Path) -> Path:
    """Return a folder of skills."""
    return skills(tmp_path / "skills")


NAMES = list(LIBRARY)


def conversations(folder: Path) -> Path:
    """Write some transcripts about the library."""
    transcript(
        folder / "-home-me" / "item.jsonl",
        said("do the first"),
        called("Skill", skill=f"docs:{NAMES[0]}"),
        said("thanks"),
        said("yes"),
        called("Skill", skill=NAMES[1]),
    )
    transcript(
        folder / "-home-me-other" / "two.jsonl",
        said("yes"),
        said("yes"),
        said("do the second"),
        called("Read", file_path=f"/x/{NAMES[1]}/SKILL.md"),
        said("do another"),
        called("Skill", skill="elsewhere"),
    )
    return folder


def test_prompts_are_labelled_by_opened_skills(tmp_path: Path, skills: Path) -> None:
    found = read_labels(skills, [], transcripts=conversations(tmp_path / "t"))
    assert {item.text: (dict(item.relevant), item.kind) for item in found.queries} == {
        "do the first": ({NAMES[0]: 1}, OPENED),
        "thanks": ({}, UNOPENED),
        # One of three: chance.
        "yes": ({}, UNOPENED),
        "do the second": ({NAMES[1]: 1}, OPENED),
    }
    assert (found.split, len(found.problems)) == ("transcripts", 1)
    assert "no document has the id 'elsewhere'" in str(found.problems[0])
    assert any(note.startswith("2 prompts for which the agent opened no") for note in found.notes)


def test_labels_of_a_person_take_precedence(tmp_path: Path, skills: Path) -> None:
    labels = tmp_path / "labels.jsonl"
    labels.write_text(json.dumps({"query": "yes", "relevant": [NAMES[2]]}) + "\n")
    found = read_labels(skills, [labels], transcripts=conversations(tmp_path / "t"))
    (yes,) = (item for item in found.queries if item.text == "yes")
    assert dict(yes.relevant) == {NAMES[2]: 1}
    assert len(found.queries) == 4


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda path: None, "source_missing"),
        (lambda path: path.mkdir(), "no_transcripts"),
        (lambda path: transcript(path / "a.jsonl", said("/clear")), "empty_split"),
    ],
)
def test_a_folder_without_prompts_is_refused(
    tmp_path: Path, skills: Path, make: Any, code: str
) -> None:
    make(tmp_path / "t")
    refused(code, read_labels, skills, [], transcripts=tmp_path / "t")


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="there are no named pipes")
def test_a_folder_in_place_of_a_transcript_is_skipped(tmp_path: Path, skills: Path) -> None:
    folder = conversations(tmp_path / "t")
    os.mkfifo(folder / "pipe.jsonl")
    (folder / "loop.jsonl").symlink_to(folder / "loop.jsonl")
    assert len(transcripts_below(folder)) == 2
    assert len(read_labels(skills, [], transcripts=folder).queries) == 4


def test_calibrate_and_eval_read_transcripts(
    tmp_path: Path, skills: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = conversations(tmp_path / "t")
    given = [str(skills), "--from-transcripts", str(folder), "--embedder", "none"]
    assert run(["eval", *given, "--modes", "never"]) == 0
    assert "2 queries with a match, 2 without" in " ".join(capsys.readouterr().out.split())
    # Four prompts are too few to fit a profile.
    assert run(["calibrate", *given, "-o", str(tmp_path / "p.json")]) == 2
    assert "error[" in capsys.readouterr().err
    assert not (tmp_path / "p.json").exists()
