"""Lists what the default installation takes on disk, package by package.

    python eval/footprint.py              # in an environment with crossgate
    python eval/footprint.py flashrank    # another package

The sizes are those of the files that each package lists, without bytecode; crossgate's include its
models.
"""

from __future__ import annotations

import re
import sys
from importlib import metadata
from pathlib import Path

NAME = re.compile(r"[A-Za-z0-9._-]+")


def packages(name: str, found: dict[str, float]) -> None:
    """Add a package and those that it requires, with their size in MB."""
    try:
        package = metadata.distribution(name)
    except metadata.PackageNotFoundError:  # for another system or version of Python
        return
    if package.name in found:
        return
    paths = [Path(path.locate()) for path in package.files or () if path.suffix != ".pyc"]
    found[package.name] = sum(path.stat().st_size for path in paths if path.is_file()) / 1e6
    for requirement in package.requires or ():
        match = NAME.match(requirement)
        if match and "extra ==" not in requirement:
            packages(match[0], found)


def main() -> None:
    """Print a table, the largest first."""
    found: dict[str, float] = {}
    packages(sys.argv[1] if len(sys.argv) > 1 else "crossgate", found)
    print("| package | MB |\n| --- | --- |")
    for name, size in sorted(found.items(), key=lambda item: -item[1]):
        print(f"| {name} | {size:.1f} |")
    print(f"| all | {sum(found.values()):.1f} |")


if __name__ == "__main__":
    main()
