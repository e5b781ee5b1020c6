"""Examples: taught by command, in a file beside the index, and in the folder of a skill."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands import CROSSGATE
from conftest import WordEmbedder, build
from crossgate import Document, Index, InputError, Router
from crossgate._agents.learning.lessons import index_file
from crossgate._agents.learning.lessons import teach as learn
from crossgate._retrieval.document_index import hint_texts
from crossgate._sources.examples import examples_beside, read_examples, teach_examples
from crossgate._sources.reading import read_sources
from crossgate._support.limits import SKILL_EXAMPLES
from hook_home import Home, furnished

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


@pytest.mark.parametrize("count", [SKILL_EXAMPLES, SKILL_EXAMPLES + 1, 3 * SKILL_EXAMPLES])
def test_further_examples_in_the_folder_of_a_skill_are_left_out(tmp_path: Path, count: int) -> None:
    file = Home(tmp_path).skill("slides", SKILLS["slides"])
    rows = [{"prompt": f"job {number}", "fits": number % 2 == 0} for number in range(count)]
    lines = [json.dumps(row) for row in rows]
    (file.parent / "examples.jsonl").write_text("\n\n".join(lines))
    loaded = read_sources([tmp_path / ".claude" / "skills"])
    (document,) = loaded.documents
    assert len(document.examples) + len(document.counterexamples) == SKILL_EXAMPLES
    # The lines between the examples are blank.
    left_out = [(problem.line, problem.reason) for problem in loaded.problems]
    reason = f"only the first {SKILL_EXAMPLES} examples are read"
    assert left_out == [(2 * SKILL_EXAMPLES + 1, reason)] * (count > SKILL_EXAMPLES)


def test_an_unknown_skill_gets_similar_names(index: Path) -> None:
    done = teach(PROMPT, "-i", index, "--skill", "slide")
    assert done.returncode == 2
    assert "did you mean slides" in done.stderr
    assert not index.with_suffix(".examples.jsonl").exists()


SAME = (
    ("glue the page", "Glue pages", "pages: glue!"),
    ("stitch the scan", "stitch scans"),
    ("?!",),
    ("...",),
)
"""Prompts with the same words, and prompts without words."""
BINDER = Document(
    id="binder",
    text="Join sheets. Do not use for maps or posters.",
    examples=("Glue pages", "stitch scans", "?!"),
    counterexamples=("pages: glue!", "fold a map"),
)
STAPLER = Document(id="stapler", text="Hold sheets together.", examples=("glue the page",))
LESSONS = st.lists(
    st.tuples(
        st.sampled_from([prompt for prompts in SAME for prompt in prompts]),
        st.sampled_from(["binder", "stapler", None]),
        st.booleans(),
    ),
    min_size=1,
    max_size=6,
)


def evidence(index: Index, prompt: str) -> dict[str, dict[str, float]]:
    scored = index.search(prompt).scored
    return {hit.id: hit.to_dict().get("evidence", {}) for hit in scored}


def are_same(prompt: str, other: str) -> bool:
    return any(prompt in prompts and other in prompts for prompts in SAME)


def has(texts: Sequence[str], prompt: str) -> bool:
    return any(are_same(prompt, text) for text in texts)


@given(lessons=LESSONS)
def test_the_last_lesson_about_a_prompt_wins(lessons: list[tuple[str, str | None, bool]]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, "skills.cgx")
        Index.build([BINDER, STAPLER], embedder=None).save(path)
        for prompt, id, fits in lessons:
            learn(index_file(path), prompt, id, fits=fits and id is not None, reranker=None)
        index, rebuilt = Index.open(path), Index.build([BINDER, STAPLER], embedder=None)
        teach_examples(rebuilt, examples_beside(path))
    assert rebuilt.nothing == index.nothing
    assert [rebuilt[id] for id in rebuilt] == [index[id] for id in index]
    last: dict[int, tuple[str, str | None, bool]] = {}
    for lesson in lessons:
        last[next(n for n, prompts in enumerate(SAME) if lesson[0] in prompts)] = lesson
    for prompt, id, fits in last.values():
        taught = [index[one] for one in (index if id is None else [id])]
        if id is None:
            assert prompt in index.nothing
        elif fits:
            assert prompt in index[id].examples
            assert not has(index.nothing, prompt)
            assert not has(index[id].counterexamples, prompt)
        else:
            assert prompt in index[id].counterexamples
        if id is None or not fits:
            assert not any(has(document.examples, prompt) for document in taught)
    for prompt in (prompt for prompts in SAME[:2] for prompt in prompts):
        found = evidence(index, prompt)
        assert found == evidence(rebuilt, prompt)
        for id, pieces in found.items():
            document = index[id]
            is_against = has([*document.counterexamples, *index.nothing], prompt)
            assert (pieces.get("example") == 1.0) == has(document.examples, prompt)
            assert (pieces.get("counterexample") == 1.0) == is_against


@given(lessons=LESSONS)
def test_vectors_of_hints_belong_to_their_texts(
    lessons: list[tuple[str, str | None, bool]],
) -> None:
    embedder: Any = WordEmbedder()
    index = Index.build([BINDER, STAPLER], embedder=embedder)
    # The hints of a document with a vector from the caller have no vectors of their own.
    (vector,) = embedder.embed(["folders"])
    own = Document(id="own", text="Folders.", vector=vector, examples=("Glue pages", "fold"))
    index.upsert([own])
    for prompt, id, fits in [*lessons, ("a folder", "own", True)]:
        index.teach(prompt, id, fits=fits)
    rebuilt = Index.build([index[id] for id in index], embedder=embedder, reuse=index)
    for read, id in itertools.product((index, rebuilt), index):
        stored = read._core.hint_vectors(id)
        for texts, vectors in zip(hint_texts(index[id]), stored, strict=True):
            assert len(vectors) == len(texts)
            for text, found in zip(texts, vectors, strict=True):
                if found is None:
                    assert read is index
                    assert text in own.examples
                    continue
                (expected,) = embedder.embed([text])
                length = sum(value * value for value in expected) ** 0.5
                assert found == pytest.approx([value / length for value in expected], abs=0.01)


def test_lessons_of_eight_processes_are_all_kept(index: Path) -> None:
    prompts = [f"{PROMPT}, number {number}" for number in range(8)]
    line = (CROSSGATE, "teach", "-i", index, "--skill", "slides", "--reranker", "none")
    running = [subprocess.Popen((*line, prompt)) for prompt in prompts]
    assert [process.wait(timeout=120) for process in running] == [0] * 8
    assert sorted(Index.open(index)["slides"].examples) == prompts
    written = read_examples(index.with_suffix(".examples.jsonl"))
    assert sorted(example.prompt for example in written) == prompts
    assert not list(index.parent.glob(".*"))  # no lock is left


def test_teach_changes_what_the_hook_says(tmp_path: Path) -> None:
    home = furnished(tmp_path / "home")
    prompt = "get the Heron numbers onto the wall for Monday's round"
    assert home.run("teach", prompt, "--skill", "csv-cleaner").returncode == 2  # no hook here
    done = home.run("teach", prompt, "--agent", "claude", "--skill", "csv-cleaner", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["agent"] == "claude"
    assert "- csv-cleaner" in home.run("hook", "try", prompt).stdout
    assert home.run("hook", "install").returncode == 0
    done = home.run("teach", prompt, "--not", "csv-cleaner")
    assert (done.returncode, done.stdout.count("hook of claude")) == (0, 1), done.stderr
    assert "- csv-cleaner" not in home.run("hook", "try", prompt).stdout


def test_an_agent_without_skills_cannot_be_taught(tmp_path: Path) -> None:
    home = furnished(tmp_path / "home", {})
    done = home.run("teach", PROMPT, "--agent", "codex", "--nothing")
    assert (done.returncode, done.stdout) == (2, "")
    assert "codex has no skills here" in done.stderr


def test_a_lesson_reaches_the_hook_in_other_folders(tmp_path: Path) -> None:
    home = furnished(tmp_path / "home")
    prompt = "get the Heron numbers onto the wall for Monday's round"
    other = home.path / "other"
    home.skill("deploy", "Ship the service to staging", below="other/.claude")
    home.run("teach", prompt, "--agent", "claude", "--skill", "csv-cleaner")
    tried = home.run("hook", "try", prompt, CLAUDE_PROJECT_DIR=str(other))
    assert "- csv-cleaner" in tried.stdout
    home.run("teach", prompt, "--agent", "claude", "--nothing")
    tried = home.run("hook", "try", prompt, CLAUDE_PROJECT_DIR=str(other))
    assert "- csv-cleaner" not in tried.stdout


def test_teach_says_which_index_it_changed(index: Path, tmp_path: Path) -> None:
    home = furnished(tmp_path / "home")
    assert home.run("hook", "install").returncode == 0
    done = home.run("teach", PROMPT, "-i", index, "--skill", "slides")
    assert str(index) in done.stdout
    assert "without -i" in done.stdout
    done = home.run("teach", PROMPT, "--skill", "slides")
    assert (done.returncode, done.stdout) == (2, "")
    assert "error[unknown_document]" in done.stderr
