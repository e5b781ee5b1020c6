"""Prints how large the project is, beside its size at the last release.

It informs and never fails; `make lint` runs it. A release enters the new sizes in `LAST`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
RELEASE = "0.1.0"
LAST = {"package": 34_593, "Rust": 18_656, "tests": 35_703, "documentation": 23_723}


def total(count: Callable[[str], int], *patterns: str) -> int:
    """Return the sum of a count over the files of some patterns."""
    files = {path for pattern in patterns for path in ROOT.glob(pattern)}
    return sum(count(path.read_text(encoding="utf-8")) for path in files)


def lines(text: str) -> int:
    """Return the number of lines of a text."""
    return text.count("\n")


def words(text: str) -> int:
    """Return the number of words of a text."""
    return len(text.split())


def sizes() -> dict[str, int]:
    """Return the size of each part: words of documentation, lines of the others."""
    return {
        "package": total(lines, "python/crossgate/**/*.py"),
        "Rust": total(lines, "rust/**/*.rs"),
        "tests": total(lines, "tests/*.py"),
        "documentation": total(words, "README.md", "docs/*.md"),
    }


if __name__ == "__main__":
    sys.stdout.write(f"lines (words of documentation), and the change since {RELEASE}:\n")
    for part, size in sizes().items():
        sys.stdout.write(f"  {part:13} {size:7,} {size - LAST[part]:+7,}\n")
