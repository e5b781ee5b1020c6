"""Counts turns of phrase that hide the subject of a sentence, per 1,000 words of prose.

    python release/prose.py          a density for each folder; exits with 1 above the limits
    python release/prose.py --lines  each place with file and line

Prose is Markdown outside of code, comments and docstrings of Python and Rust, and messages. A hit
is a place to read again, not always a fault, so the limits are above zero. `make lint` runs this.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

MOST = 1.5
"""Hits per 1,000 words, over all files."""
MOST_IN_A_FOLDER = 3.0
"""Hits per 1,000 words of one folder; folders with fewer than 1,000 words count as 1,000."""

_VERBS = (
    "is|are|was|were|has|had|does|can|may|must|will|would|it|they|he|of|no|nobody|comes?|came|fits?"
    "|calls?|reads?|asks?|stands?|passes|runs?|makes?|made|decides?|needs?|goes"
)
_THINGS = (
    "it|file|profile|index|result|trace|message|module|test|docs?|page|name|table|report|card|code"
    "|core|gate|cascade"
)
HABITS = {
    "a relative clause without a noun": (
        r"(?:(?<![?\w])(?:what|whatever|whoever)"
        r"|(?:^|[.,:;(\"]\s*|\b(?:of|to|for|by|from|with|than|and|or|only|as)\s+)(?:who|whom))\s+"
        rf"(?:{_VERBS})\b(?![^.\n]*\?)"
    ),
    "is no, is nothing": (
        r"(?<!there )\b(?:is|are|was|were|be)\s+(?:no|nothing|nobody)\b"
        r"(?!\s+(?:longer|more\b|such\b|relevant\b|fits\b))"
    ),
    "a thing that speaks": (
        rf"\b(?:{_THINGS})\s+(?:says|knows|tells|speaks|believes|minds|forgets|wants)\b"
    ),
    "nobody": r"\b(?:nobody|no one|noone|whoever)\b",
    "an old phrase": (
        r"\b(?:of no use|for want of|by way of|all the same|so many|so long as|such a one"
        r"|the like|thereof|therein|thereby|whence|hence)\b"
    ),
    "a thing that stands or lies": (
        r"\b(?:stands?|lies)\s+(?:in|there|beside|before|behind|for|where|aside)\b|\bgoes by\b"
    ),
    "but for": r"\bbut for\b|\bnothing but\b|\ball but\b",
    "a passive without an actor": (
        r"\b(?:is|are|was|were)\s+(?:told|held by|kept by|meant|left alone|passed over)\b"
    ),
}
_PATTERNS = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in HABITS.items()}
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]+")
_CODE = re.compile(r"`[^`]*`|\{[^}]*\}")


def markdown(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a page that are not code, with their numbers."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith("    "):
            yield number, _CODE.sub("X", line)


def python(text: str) -> Iterator[tuple[int, str]]:
    """Yield comments, docstrings and messages."""
    strings = {tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# ")
        elif token.type in strings and " " in token.string:
            for number, line in enumerate(token.string.splitlines(), token.start[0]):
                yield number, _CODE.sub("X", line)


def rust(text: str) -> Iterator[tuple[int, str]]:
    """Yield comments."""
    for number, line in enumerate(text.splitlines(), 1):
        if comment := re.search(r"//[/!]?\s?(.*)", line):
            yield number, _CODE.sub("X", comment[1])


READERS = {".md": markdown, ".py": python, ".rs": rust}


def main() -> int:
    """Print the densities, or each hit; return 1 if a limit is exceeded."""
    command = ["git", "ls-files"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603
    words: dict[str, int] = defaultdict(int)
    hits: dict[str, int] = defaultdict(int)
    for path in map(Path, listed.splitlines()):
        reader = READERS.get(path.suffix)
        if reader is None or not path.is_file() or path == Path("release/prose.py"):
            continue
        folder = "/".join(path.parts[:3]) if len(path.parts) > 3 else str(path.parent)
        for number, prose in reader(path.read_text(encoding="utf-8")):
            words[folder] += len(_WORD.findall(prose))
            for name, pattern in _PATTERNS.items():
                for _ in pattern.finditer(prose):
                    hits[folder] += 1
                    if "--lines" in sys.argv:
                        print(f"{path}:{number}: {name}: {prose.strip()[:140]}")
    density = {
        folder: 1000 * hits[folder] / max(count, 1000) for folder, count in words.items() if count
    }
    total = 1000 * sum(hits.values()) / sum(words.values())
    for folder, value in sorted(density.items(), key=lambda pair: -pair[1]):
        if value > MOST_IN_A_FOLDER or "--lines" not in sys.argv:
            print(f"{value:6.1f}  {folder}")
    print(f"{total:6.1f}  in all; at most {MOST:g}, and {MOST_IN_A_FOLDER:g} in a folder")
    return int(total > MOST or max(density.values()) > MOST_IN_A_FOLDER)


if __name__ == "__main__":
    sys.exit(main())
