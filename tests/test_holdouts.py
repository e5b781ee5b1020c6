"""The tables of the cards are made from what `crossgate eval --json` prints."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_tables_say_what_the_report_says() -> None:
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
    for place, mode in enumerate(("never", "always", "gated")):
        unheld, held = report["unheld"][mode], report["quality"][mode]["recall@1"]
        assert cells[3 + place].startswith(f"{unheld['value']:.3f} [{unheld['low']:.3f}, ")
        assert cells[6 + place] == f"{held['value']:.3f}"
    assert cells[9] == f"{report['quality']['gated']['false_inject']['value']:.3f}"
    assert "skills: near_miss" not in done.stdout
    assert "skills: direct" in done.stdout
