"""Label files of a library: every format, and every kind of bad row."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from conftest import LIBRARY, refused
from crossgate import CrossgateError
from crossgate._cli.labelled import Subject, dataset_of, labelled_options, subjects_of
from crossgate._evaluation.label_files import (
    BACKGROUND,
    background_queries,
    is_labels,
    read_labels,
)


@pytest.fixture
def skills(tmp_path: Path) -> Path:
    """Return a folder of skills."""
    for name, text in LIBRARY.items():
        (tmp_path / "skills" / name).mkdir(parents=True)
        page = f"---\nname: {name}\ndescription: {text}\n---\nDo it.\n"
        (tmp_path / "skills" / name / "SKILL.md").write_text(page)
    return tmp_path / "skills"


def written(path: Path, *rows: object) -> Path:
    """Write JSON lines."""
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("\n".join(lines) + "\n")
    return path


def refusal(skills: Path, *labels: Path, **options: Any) -> tuple[str, str]:
    """Return code and message of the error that reading raises."""
    with pytest.raises(CrossgateError) as raised:
        read_labels(skills, labels, **options)
    return raised.value.code, str(raised.value)


ROWS: list[dict[str, Any]] = [
    {"query": "repair this csv", "relevant": ["csv-cleaner", "spreadsheet"], "kind": "direct"},
    {"query": "merge pdf files", "relevant": {"pdf-toolkit": 2, "translator": 0}},
    {"query": "what is the weather", "relevant": []},
]


def test_json_lines_and_csv_rows_give_the_same_labels(skills: Path, tmp_path: Path) -> None:
    lines = read_labels(skills, [written(tmp_path / "labels.jsonl", *ROWS)])
    queries = {query.text: query for query in lines.queries}
    assert queries["repair this csv"].relevant == {"csv-cleaner": 1, "spreadsheet": 1}
    assert queries["repair this csv"].kind == "direct"
    assert queries["merge pdf files"].relevant == {"pdf-toolkit": 2}
    assert queries["what is the weather"].relevant == {}
    assert (lines.name, lines.split, len(lines.documents)) == ("skills", "labels", len(LIBRARY))
    table = tmp_path / "labels.csv"
    table.write_text(
        "\ufeffQuery,relevant,kind\r\n"
        "repair this csv,csv-cleaner; spreadsheet,direct\r\n"
        '"merge pdf files",pdf-toolkit,\r\n'
        "what is the weather,,\r\n",
        encoding="utf-8",
    )
    cells = {
        query.text: (set(query.relevant), query.kind)
        for query in read_labels(skills, [table]).queries
    }
    assert cells == {query.text: (set(query.relevant), query.kind) for query in lines.queries}


@pytest.mark.parametrize("separator", [";", "\t"])
def test_csv_with_other_separators_is_read(skills: Path, tmp_path: Path, separator: str) -> None:
    table = tmp_path / "labels.csv"
    rows = ["prompt", "expected_skill"], ["merge, then sort", "pdf-toolkit|translator"]
    table.write_text("\n".join(separator.join(row) for row in rows))
    (query,) = read_labels(skills, [table]).queries
    wanted = {"pdf-toolkit"} if separator == ";" else {"pdf-toolkit", "translator"}
    assert query.text == "merge, then sort"
    assert set(query.relevant) >= wanted


def test_unclosed_quote_is_refused(skills: Path, tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    for rest in ("x" * 200_000, "merge pdfs,pdf-toolkit\nsort,csv-cleaner\n"):
        path.write_text('query,relevant\n"' + rest)
        code, message = refusal(skills, path)
        assert code == "malformed_row"
        assert "is a quote left open?" in message


def test_negative_grade_is_reported(skills: Path, tmp_path: Path) -> None:
    path = written(tmp_path / "labels.jsonl", {"query": "merge", "relevant": {"pdf-toolkit": -1}})
    code, message = refusal(skills, path)
    assert code == "empty_split"
    assert "grades of 0 or more" in message


def test_table_without_column_names_is_refused(skills: Path, tmp_path: Path) -> None:
    table = tmp_path / "labels.csv"
    table.write_text("merge pdf files,pdf-toolkit\n")
    code, message = refusal(skills, table)
    assert code == "malformed_row"
    assert f"{table}:1: the first line must name the columns" in message


@pytest.mark.parametrize(
    "wrapped", [lambda rows: rows, lambda rows: {"skill_name": "pdf-toolkit", "evals": rows}]
)
@pytest.mark.parametrize("named", ["row", "folder", "file"])
def test_trigger_evals_of_a_skill_are_read(
    skills: Path, tmp_path: Path, wrapped: Any, named: str
) -> None:
    rows = [
        {"query": "join two scans", "should_trigger": True},
        {"query": "translate this", "should_trigger": False},
    ]
    if named == "row":
        rows = [{**row, "skill": "pdf-toolkit"} for row in rows]
    folder = skills / "pdf-toolkit" / "evals" if named == "folder" else tmp_path
    folder.mkdir(exist_ok=True)
    path = folder / "triggers.json"
    path.write_text(json.dumps(wrapped(rows)))
    if named == "file" and isinstance(wrapped(rows), list):
        assert "of which skill?" in refusal(skills, path)[1]
        return
    dataset = read_labels(skills, [path])
    join, translate = dataset.queries
    assert (join.relevant, join.wrong) == ({"pdf-toolkit": 1}, frozenset())
    assert not translate.relevant
    assert translate.wrong == {"pdf-toolkit"}
    assert any(
        "1 query with only one skill that must not trigger" in note for note in dataset.notes
    )


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        ("pdf-toolkit", {"pdf-toolkit"}),
        ("PDF-Toolkit", {"pdf-toolkit"}),
        ("office:pdf-toolkit", {"pdf-toolkit"}),
        ("skills/pdf-toolkit/SKILL.md", {"pdf-toolkit"}),
        (["pdf-toolkit", "translator"], {"pdf-toolkit", "translator"}),
        ("none", set()),
        (None, set()),
        ("", set()),
    ],
)
def test_expected_skill_is_found_by_name_plugin_or_path(
    skills: Path, tmp_path: Path, expected: object, found: set[str]
) -> None:
    path = written(tmp_path / "a.jsonl", {"prompt": "join scans", "expected_skill": expected})
    assert is_labels(path)
    (query,) = read_labels(skills, [path]).queries
    assert set(query.relevant) == found


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("{not json", "not JSON"),
        ([1], "must be a JSON object"),
        ({"relevant": []}, "has no query"),
        ({"query": " ", "relevant": []}, "empty"),
        ({"query": "x"}, "has none of relevant"),
        ({"query": "x", "relevant": 3}, "relevant must be"),
        ({"query": "x", "relevant": ["pdf-tolkit"]}, "is it 'pdf-toolkit'?"),
        ({"query": "x", "should_trigger": "perhaps", "skill": "pdf-toolkit"}, "true or false"),
        ({"query": "x", "should_trigger": True}, "of which skill?"),
        ({"query": "x", "relevant": [], "mentions_name": "no"}, "mentions_name"),
        ({"query": "x", "relevant": {"pdf-toolkit": 0.5}}, "grades of 0 or more"),
        ({"query": "x", "relevant": [], "wrong": 3}, "wrong must be"),
        ({"query": "x", "relevant": [], "kind": 3}, "the kind must be a string"),
        ({"query": "x", "relevant": [], "candidates": "pdf-toolkit"}, "a list of ids"),
    ],
)
def test_bad_row_is_reported_with_its_line(
    skills: Path, tmp_path: Path, bad: object, reason: str
) -> None:
    path = written(tmp_path / "labels.jsonl", ROWS[0], bad)
    assert is_labels(path)
    dataset = read_labels(skills, [path])
    assert len(dataset.queries) == 1
    (problem,) = dataset.problems
    assert (problem.path, problem.line) == (str(path), 2)
    assert reason in problem.reason
    assert refusal(skills, path, strict=True)[0] == "malformed_row"


def test_query_in_several_files_counts_once_with_all_labels(skills: Path, tmp_path: Path) -> None:
    text = "sum up this table"
    first = written(
        tmp_path / "a.jsonl", {"query": text, "should_trigger": False, "skill": "translator"}
    )
    second = written(
        tmp_path / "b.jsonl", {"query": text, "should_trigger": True, "skill": "spreadsheet"}
    )
    for files in ([first, second], [second, first]):
        dataset = read_labels(skills, files)
        (query,) = dataset.queries
        assert query.relevant == {"spreadsheet": 1}
        assert query.wrong == {"translator"}
        assert dataset.notes == ()


def test_queries_of_files_with_the_same_name_have_different_ids(
    skills: Path, tmp_path: Path
) -> None:
    paths = []
    for name in ("pdf-toolkit", "translator"):
        (skills / name / "evals").mkdir()
        rows = [{"query": f"{name} {n}", "should_trigger": True} for n in range(3)]
        paths.append(skills / name / "evals" / "evals.json")
        paths[-1].write_text(json.dumps(rows))
    # Another file has an id equal to a generated id, and an id equal to that of a shipped prompt.
    rows = [{"query": id, "id": id, "relevant": []} for id in ("evals:1#2", "background:1")]
    paths.append(written(tmp_path / "more.jsonl", *rows))
    dataset = read_labels(skills, paths, background=True)
    ids = [query.id for query in dataset.queries]
    assert ids[:6] == ["evals:1", "evals:2", "evals:3", "evals:1#2", "evals:2#2", "evals:3#2"]
    assert len(set(ids)) == len(ids)


def test_split_keeps_the_rows_without_a_split(skills: Path, tmp_path: Path) -> None:
    rows = [{**row, "split": split} for row, split in zip(ROWS, ("a", "b", ""), strict=True)]
    path = written(tmp_path / "labels.jsonl", *rows)
    assert len(read_labels(skills, [path]).queries) == 3
    assert len(read_labels(skills, [path], split="a").queries) == 2
    code, message = refusal(skills, path, split="c")
    assert (code, "a, b" in message) == ("unknown_split", True)


def test_background_prompts_are_unique_and_clean() -> None:
    texts = [query.text for query in background_queries()]
    assert 290 <= len(texts) <= 320
    assert len({text.casefold() for text in texts}) == len(texts)
    assert all(text == text.strip() and text for text in texts)
    assert all(not query.relevant and query.kind == BACKGROUND for query in background_queries())


def test_label_files_belong_to_the_path_before_them(skills: Path, tmp_path: Path) -> None:
    labels = written(tmp_path / "labels.jsonl", *ROWS)
    more = tmp_path / "more.csv"
    more.write_text("query,relevant\n")
    documents = written(tmp_path / "documents.jsonl", {"id": "pdf", "text": "PDF tools"})
    paths = [str(path) for path in (skills, labels, more, documents, tmp_path)]
    assert subjects_of(paths) == [
        Subject(skills, (labels, more), documents),
        Subject(documents),
        Subject(tmp_path),
    ]
    said = refused("no_documents", subjects_of, [str(labels), str(skills)])
    assert f"skills/ {labels}" in said


def options(*given: str) -> argparse.Namespace:
    """Return the options that reading needs."""
    parser = argparse.ArgumentParser()
    labelled_options(parser)
    return parser.parse_args(given)


def test_folder_without_labels_is_refused(skills: Path, tmp_path: Path) -> None:
    said = refused("empty_split", dataset_of, Subject(skills), options())
    assert "--background" in said
    alone = dataset_of(Subject(skills), options("--background"))
    assert {query.kind for query in alone.queries} == {BACKGROUND}
    labels = written(tmp_path / "labels.jsonl", *ROWS)
    joined = dataset_of(Subject(skills, (labels,)), options("--background"))
    assert len(joined.queries) == len(alone.queries) + len(ROWS)
    assert len(dataset_of(Subject(skills, (labels,)), options("--limit", "2")).queries) == 2
