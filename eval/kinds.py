"""Prints how often `rerank` selects the right one of four or five passages, by kind of question.

    python eval/kinds.py [CASES]

"right first" counts right passages in first place, selected or not; "refused" the questions without
an answer that got no passage; "wrong" the selected passages that do not answer.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from crossgate import rerank

CASES = Path(__file__).parent / "kinds" / "cases.jsonl"
ROW = "{:14}{:>8}{:>13}{:>16}{:>9}{:>7}"


def outcome(case: dict[str, Any]) -> Counter[str]:
    """Return what a case counts as."""
    result = rerank(case["question"], case["passages"], limit=1)
    answerable = case["right"] is not None
    right, selected = str(case["right"]), result.ids[0] if result.ids else None
    return Counter(
        answerable=int(answerable),
        unanswerable=int(not answerable),
        first=int(result.hits[0].id == right),
        selected=int(selected == right),
        refused=int(not answerable and selected is None),
        wrong=int(selected not in (right, None)),
    )


def main() -> None:
    """Rerank the passages of each case, and print a table with a row for each kind."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="?", type=Path, default=CASES)
    kinds: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for line in parser.parse_args().cases.read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        counts = outcome(case)
        kinds[case["kind"]] += counts
        kinds["all"] += counts
    print(ROW.format("kind", "cases", "right first", "right selected", "refused", "wrong"))
    for kind in sorted(kinds, key=lambda kind: kind == "all"):
        counts = kinds[kind]
        first, selected = (
            f"{counts[name]}/{counts['answerable']}" for name in ("first", "selected")
        )
        refused = f"{counts['refused']}/{counts['unanswerable']}"
        cases = counts["answerable"] + counts["unanswerable"]
        print(ROW.format(kind, cases, first, selected, refused, counts["wrong"]))


if __name__ == "__main__":
    main()
