"""Prints the figures of `crossgate eval --json` on several sets as the tables of the cards."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

MODES = ("never", "gated", "always")


def main() -> None:
    """Reads the arguments and prints both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="+", help="outputs of `crossgate eval --json`")
    files = parser.parse_args().files
    reports = [
        report
        for file in files
        for report in json.loads(file.read_text(encoding="utf-8"))["reports"]
    ]
    for line in [*sets(reports), "", *kinds(reports)]:
        print(line)


def sets(reports: list[dict[str, Any]]) -> list[str]:
    """Returns the rows of the table with one row per set."""
    rows = [
        "| | queries, with a match | recall@1 without thresholds: never | gated | always | "
        "always - never, points | at the threshold: never | gated | always | "
        "false-positive rate, gated | skipped | AUC of cosine, logit |",
        "| --- " * 12 + "|",
    ]
    for report in reports:
        header, quality = report["header"], report["quality"]
        strength = {strength["name"]: strength["answer"] for strength in report["strengths"]}
        cells = [
            f"{header['dataset']} {header['split']}",
            f"{report['queries']}, {report['matched']}",
            *(_value(report["recall_without_thresholds"][mode]) for mode in MODES),
            _points(report["stage2_gain"]["always"]),
            *(_value(quality[mode]["recall@1"]) for mode in MODES),
            _value(quality["gated"]["false_positive_rate"]),
            f"{report['economics']['skip_rate']:.0%}".replace("%", " %"),
            ", ".join(_value(strength.get(name)) or "-" for name in ("cosine", "rerank_score")),
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def kinds(reports: list[dict[str, Any]]) -> list[str]:
    """Returns the rows of the table with one row for each kind of query in each set."""
    rows = ["| | queries | recall@1 at the threshold: never | gated | always |", "| --- " * 5 + "|"]
    for report in reports:
        for group in report["groups"]:
            if any(group["recall"].values()):
                values = [_value(group["recall"][mode]) for mode in MODES]
                name = f"{report['header']['dataset']}: {group['name']}"
                rows.append(f"| {name} | {group['queries']} | {' | '.join(values)} |")
    return rows


def _value(metric: dict[str, float] | None) -> str:
    return f"{metric['value']:.3f}" if metric else ""


def _points(metric: dict[str, float]) -> str:
    return "{value:+.1f} [{low:+.1f}, {high:+.1f}]".format(
        **{name: 100 * metric[name] for name in ("value", "low", "high")}
    )


if __name__ == "__main__":
    main()
