"""The tables of the model cards equal the figures of `crossgate eval` and the cascade."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_tables_equal_the_report() -> None:
    stored = ROOT / "eval/baselines.json"
    done = subprocess.run(
        [sys.executable, str(ROOT / "models/holdouts.py"), str(stored), str(stored)],
        capture_output=True,
        text=True,
        check=True,
    )
    sets, kinds = (table.splitlines() for table in done.stdout.split("\n\n"))
    report = json.loads(stored.read_text(encoding="utf-8"))["reports"][0]
    for table in (sets, kinds):
        assert len({line.count("|") for line in table}) == 1
    assert len(sets) == 2 + 2 * 2

    cells = [cell.strip() for cell in sets[2].split("|")]
    assert cells[1:3] == ["skills test", f"{report['queries']}, {report['matched']}"]
    for place, mode in enumerate(("never", "gated", "always")):
        recall_without_thresholds, held = (
            report["recall_without_thresholds"][mode],
            report["quality"][mode]["recall@1"],
        )
        assert cells[3 + place] == f"{recall_without_thresholds['value']:.3f}"
        assert cells[7 + place] == f"{held['value']:.3f}"
    gain = 100 * report["stage2_gain"]["always"]["value"]
    assert cells[6].startswith(f"{gain:+.1f} [")
    assert cells[10] == f"{report['quality']['gated']['false_positive_rate']['value']:.3f}"
    assert "skills: near_miss" not in done.stdout
    assert "skills: direct" in done.stdout


def test_first_picks_are_those_of_the_cascade(tmp_path: Path) -> None:
    documents = {
        "merge": "Merge several PDF files into one",
        "split": "Split a PDF file into single pages",
        "tune": "Find out why a database query is slow",
    }
    asked = {"join these PDF files": "merge", "cut the PDF into pages": "split"}
    made = tmp_path / "made"
    (made / "qrels").mkdir(parents=True)
    rows = [{"_id": id, "title": id, "text": text} for id, text in documents.items()]
    (made / "corpus.jsonl").write_text("\n".join(map(json.dumps, rows)))
    rows = [{"_id": id, "text": text} for text, id in asked.items()]
    (made / "queries.jsonl").write_text("\n".join(map(json.dumps, rows)))
    qrels = "".join(f"{id}\t{id}\t1\n" for id in asked.values())
    (made / "qrels/test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{qrels}")
    crossgate = Path(sysconfig.get_path("scripts")) / "crossgate"
    runs = tmp_path / "runs"
    subprocess.run(
        [crossgate, "eval", made, "--modes", "always", "--runs", runs],
        check=True,
        capture_output=True,
    )
    run = runs / "made-test.run.jsonl"
    model = ROOT / "python/crossgate/_weights/crossgate-router-minilm-l12"

    def compared() -> str:
        script = [sys.executable, str(ROOT / "models/compare_first_picks.py")]
        done = subprocess.run(
            [*script, str(model), str(tmp_path), str(run)],
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    assert compared() == (
        "made: recall@1 stored 1.000, stored alone 1.000, other 1.000, other alone 1.000; "
        "first pick changed 0 of 2; logits moved 0.000 at most, 0.000 on average"
    )

    # The run's model prefers a document that does not fit, for one of the two queries.
    header, first, second = run.read_text().splitlines()
    query = json.loads(first)
    for pair in query["stage2"]:
        pair["score"] += 90.0 * (pair["id"] == "tune")
    run.write_text("\n".join([header, json.dumps(query), second]) + "\n")
    assert compared() == (
        "made: recall@1 stored 0.500, stored alone 0.500, other 1.000, other alone 1.000; "
        "first pick changed 1 of 2; logits moved 90.000 at most, 15.000 on average"
    )
