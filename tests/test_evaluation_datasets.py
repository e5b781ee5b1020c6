"""Labelled datasets: BEIR folders, samples, and every kind of bad input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from beir_folder import QRELS, QUERIES, write_beir
from crossgate import CrossgateError
from crossgate._evaluation.label_files import read_dataset


def code_of(path: Path, **options: Any) -> tuple[str, str]:
    """Return code and message of the error that reading raises."""
    with pytest.raises(CrossgateError) as raised:
        read_dataset(path, **options)
    return raised.value.code, str(raised.value)


def test_beir_folder_is_read_with_all_fields(tmp_path: Path) -> None:
    candidates = [{"query": "q2", "candidates": ["pdf-toolkit", "translator"]}]
    dataset = read_dataset(write_beir(tmp_path / "mine", candidates=candidates))
    assert (dataset.name, dataset.split, len(dataset.documents)) == ("mine", "test", 6)
    queries = {query.id: query for query in dataset.queries}
    assert list(queries) == ["q1", "q2", "q3", "n1", "n2"]
    assert queries["q1"].relevant == {"csv-cleaner": 2, "spreadsheet": 1}
    assert (queries["q1"].kind, queries["q1"].mentions_name) == ("direct", None)
    assert queries["q2"].mentions_name is True
    assert queries["q2"].candidates == ("pdf-toolkit", "translator")
    assert queries["q3"].wrong == {"pdf-toolkit"}
    assert queries["n1"].relevant == queries["n2"].relevant == {}
    assert queries["n1"].wrong == set()
    assert queries["n2"].wrong == {"csv-cleaner"}
    assert dataset.problems == ()
    assert any(note.startswith("left out 1 query with neither") for note in dataset.notes)


def test_no_match_query_belongs_to_its_split_or_to_all(tmp_path: Path) -> None:
    queries: list[dict[str, Any]] = [
        {"_id": "q", "text": "merge pdf files"},
        {"_id": "here", "text": "weather", "metadata": {"no_match": True, "split": "dev"}},
        {"_id": "there", "text": "joke", "metadata": {"no_match": True, "split": "train"}},
        {"_id": "all", "text": "news", "metadata": {"no_match": True}},
    ]
    qrels = {split: ["q\tpdf-toolkit\t1"] for split in ("train", "dev")}
    folder = write_beir(tmp_path, queries=queries, qrels=qrels, negatives={})
    dataset = read_dataset(folder)
    assert dataset.split == "dev"
    assert [query.id for query in dataset.queries] == ["q", "here", "all"]
    assert "1 no-match query without a split: in every split" in dataset.notes


def test_default_split_is_test_then_dev(tmp_path: Path) -> None:
    rows = ["q1\tcsv-cleaner\t1"]
    for splits, chosen in (("train dev test", "test"), ("train dev", "dev"), ("odd", "odd")):
        qrels = dict.fromkeys(splits.split(), rows)
        folder = write_beir(tmp_path / splits, qrels=qrels, negatives={})
        assert read_dataset(folder).split == chosen
        assert read_dataset(folder, split=splits.split()[0]).split == splits.split()[0]
    two = write_beir(tmp_path / "two", qrels=dict.fromkeys("ab", rows), negatives={})
    assert code_of(two) == ("unknown_split", f"{two} has the splits a, b: choose one with --split")
    assert code_of(two, split="test")[0] == "unknown_split"
    none = write_beir(tmp_path / "none", qrels={}, negatives={})
    assert "has no labels" in code_of(none)[1]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("{not json", "not JSON"),
        ('["a"]', "must be a JSON object"),
        ('{"text": "no id"}', "has no _id"),
        ('{"_id": "x"}', "has no text"),
        ('{"_id": "x", "text": " "}', "empty"),
        ('{"_id": "x", "text": "y", "metadata": []}', ""),
        ('{"_id": "x", "text": "y", "metadata": [1]}', "metadata"),
        ('{"_id": "x", "text": "y", "metadata": {"mentions_name": "yes"}}', "mentions_name"),
        ('{"_id": "q1", "text": "again"}', "occurs twice"),
    ],
)
def test_malformed_query_is_reported_with_its_line(tmp_path: Path, bad: str, reason: str) -> None:
    folder = write_beir(tmp_path, queries=[*QUERIES, bad])
    dataset = read_dataset(folder)
    assert len(dataset.queries) == 5
    if not reason:  # an empty value counts as missing
        assert dataset.problems == ()
        return
    assert [(problem.path, problem.line) for problem in dataset.problems] == [
        (str(folder / "queries.jsonl"), 7)
    ]
    assert reason in dataset.problems[0].reason
    code, message = code_of(folder, strict=True)
    assert code == "malformed_row"
    assert message.startswith(f"{folder / 'queries.jsonl'}:7: ")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("q1\tcsv-cleaner", "has 2 columns"),
        ("q1\t0\tcsv-cleaner\t1\tx", "has 5 columns"),
        ("q1\tcsv-cleaner\t0.5", "'0.5' is not a whole number"),
        ("q1\tcsv-cleaner\tinf", "'inf' is not a whole number"),
        ("q1\tabsent\t1", "no document has the id 'absent'"),
        ("absent\tcsv-cleaner\t1", "no query has the id 'absent'"),
        ("q1\tcsv-cleaner\tgood", "'good' is not a whole number"),
        ("n1\tcsv-cleaner\t1", "marked no_match"),
    ],
)
def test_malformed_judgement_is_reported_with_its_line(
    tmp_path: Path, row: str, reason: str
) -> None:
    folder = write_beir(tmp_path, qrels={"test": [*QRELS, row]})
    dataset = read_dataset(folder)
    assert [problem.line for problem in dataset.problems] == [6]
    assert reason in dataset.problems[0].reason
    assert code_of(folder, strict=True)[0] == "malformed_row"


@pytest.mark.parametrize("separator", ["\t", " "])
def test_judgements_of_trec_are_read(tmp_path: Path, separator: str) -> None:
    folder = write_beir(tmp_path, negatives={})
    rows = [["q1", "0", "csv-cleaner", "1.0"], ["q2", "Q0", "pdf-toolkit", "2"]]
    (folder / "qrels" / "test.tsv").write_text("\n".join(map(separator.join, rows)))
    dataset = read_dataset(folder)
    assert dataset.problems == ()
    assert [query.relevant for query in dataset.queries[:2]] == [
        {"csv-cleaner": 1},
        {"pdf-toolkit": 2},
    ]


def test_missing_document_leaves_the_query_without_a_label(tmp_path: Path) -> None:
    folder = write_beir(tmp_path, qrels={"test": [*QRELS[:2], "q2\tabsent\t1"]})
    # The query is not taken for one that nothing fits.
    assert [query.id for query in read_dataset(folder).queries] == ["q1", "q3", "n1", "n2"]


def test_table_without_header_keeps_its_first_row(tmp_path: Path) -> None:
    folder = write_beir(tmp_path, negatives={})
    (folder / "qrels" / "test.tsv").write_text("q1\tcsv-cleaner\t1\n")
    dataset = read_dataset(folder)
    assert dataset.queries[0].relevant == {"csv-cleaner": 1}
    assert "no header line" in dataset.problems[0].reason


def test_document_with_grade_0_does_not_fit(tmp_path: Path) -> None:
    rows = ["q1\tcsv-cleaner\t1", "q1\tspreadsheet\t0", "q2\tpdf-toolkit\t-1"]
    dataset = read_dataset(write_beir(tmp_path, qrels={"test": rows}, negatives={}))
    assert {query.id: query.relevant for query in dataset.queries} == {
        "q1": {"csv-cleaner": 1},
        "n1": {},
    }


def test_unlabelled_queries_are_counted(tmp_path: Path) -> None:
    queries = [{"_id": id, "text": f"query {id}"} for id in ("fits", "zero", "train", "bare")]
    qrels = {
        "test": ["fits\tcsv-cleaner\t1", "zero\tcsv-cleaner\t0"],
        "train": ["train\tcsv-cleaner\t1", "zero\tpdf-toolkit\t1"],
    }
    dataset = read_dataset(write_beir(tmp_path, queries=queries, qrels=qrels, negatives={}))
    assert [query.id for query in dataset.queries] == ["fits"]
    # The query of another split is not counted.
    assert [note for note in dataset.notes if note.startswith("left out 2 queries with neither")]


def test_ids_may_begin_with_a_blank_and_cells_may_be_padded(tmp_path: Path) -> None:
    folder = write_beir(
        tmp_path,
        texts={" a": "one", "b": "two"},
        queries=[{"_id": "q", "text": "which one"}],
        qrels={"test": ["q\t a\t1", " q \t b \t1"]},
        negatives={},
    )
    [query] = read_dataset(folder).queries
    assert query.relevant == {" a": 1, "b": 1}


def test_labels_of_a_skipped_query_are_skipped(tmp_path: Path) -> None:
    queries = [*QUERIES[1:], {"_id": "q1", "text": ""}]
    dataset = read_dataset(write_beir(tmp_path, queries=queries))
    assert [query.id for query in dataset.queries] == ["q2", "q3", "n1", "n2"]
    assert len(dataset.problems) == 1


def test_malformed_candidate_list_is_counted(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"query": "q1"},
        {"query": "absent", "candidates": ["spreadsheet"]},
        {"query": "q1", "candidates": ["absent"]},
    ]
    dataset = read_dataset(write_beir(tmp_path, candidates=rows))
    assert [problem.line for problem in dataset.problems] == [1, 2, 3]
    assert all(query.candidates is None for query in dataset.queries)


def test_empty_split_is_refused(tmp_path: Path) -> None:
    folder = write_beir(tmp_path, queries=QUERIES[:3], qrels={"test": []}, negatives={})
    assert code_of(folder)[0] == "empty_split"


def test_path_that_is_not_a_dataset_is_refused(tmp_path: Path) -> None:
    assert code_of(tmp_path / "nowhere")[0] == "source_missing"
    assert code_of(write_beir(tmp_path / "a"), limit=0)[0] == "out_of_range"
    (tmp_path / "table.csv").write_text("a,b\n")
    assert code_of(tmp_path / "table.csv")[0] == "source_unknown"
    folder = write_beir(tmp_path / "b")
    (folder / "queries.jsonl").unlink()
    assert code_of(folder)[0] == "source_missing"
    (folder / "queries.jsonl").write_bytes(b'{"_id": "q\xff"}')
    assert code_of(folder)[0] == "source_unreadable"


def test_sample_depends_on_the_seed_and_is_noted(tmp_path: Path) -> None:
    queries = [{"_id": f"q{place}", "text": f"query {place}"} for place in range(40)]
    rows = [f"q{place}\tcsv-cleaner\t1" for place in range(40)]
    folder = write_beir(tmp_path, queries=queries, qrels={"test": rows}, negatives={})
    ids = [
        [query.id for query in read_dataset(folder, limit=10, seed=seed).queries]
        for seed in (1, 1, 2)
    ]
    assert len(set(ids[0])) == 10
    assert ids[0] == ids[1] != ids[2]
    assert ids[0] == sorted(ids[0], key=lambda id: int(id[1:]))
    assert read_dataset(folder, limit=10).notes[-1].startswith("a sample of 10 of 40")
    assert read_dataset(folder, limit=40).notes == ()


def test_fingerprint_depends_on_labels_but_not_on_their_order(tmp_path: Path) -> None:
    first = read_dataset(write_beir(tmp_path / "a")).fingerprint
    turned = write_beir(tmp_path / "b", queries=QUERIES[::-1], qrels={"test": QRELS[::-1]})
    assert read_dataset(turned).fingerprint == first
    other = write_beir(tmp_path / "c", qrels={"test": [*QRELS, "q2\ttranslator\t1"]})
    assert read_dataset(other).fingerprint != first
