"""Grades a sample of skills with the audit, and lists every alarm for a person to judge.

    python eval/audit_rate.py FOLDER [--count N] [--seed N]

`FOLDER` is a folder of skills or one in BEIR's layout. Only skills with a body are drawn.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter

from crossgate._lint.audit import GRADES, audit, grade_of
from crossgate._sources.reading import read_sources


def main() -> None:
    """Reads the arguments, and prints alarms and counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="a folder of skills, or one in BEIR's layout")
    parser.add_argument("--count", type=int, default=500, help="size of the sample (default: 500)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the sample (default: 1)")
    options = parser.parse_args()
    documents = [found for found in read_sources([options.folder]).documents if found.body]
    count = min(options.count, len(documents))
    sample = random.Random(options.seed).sample(documents, count)
    grades: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for document in sample:
        alarms = audit(document)
        grades[grade_of(alarms)] += 1
        reasons.update({f"{alarm.grade}: {alarm.reason}" for alarm in alarms})
        for alarm in alarms:
            value = getattr(document, alarm.field)
            shown = " ".join(value[max(0, alarm.start - 100) : alarm.start + 160].split())
            print(f"{document.id}: {alarm.grade}: {alarm.reason}: {shown!a}")
    print(f"{count} of {len(documents)} skills")
    for grade in GRADES:
        print(f"{grade}: {grades[grade]} ({grades[grade] / count:.1%})")
    for reason, number in reasons.most_common():
        print(f"  {number} {reason}")


if __name__ == "__main__":
    main()
