"""Hashes of the files that the scripts read and write; a changed file stops them."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Collection
from pathlib import Path

WEIGHTS = "weights.sha256"


def sha256_of(path: Path) -> str:
    """Returns the SHA-256 of a file in hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def check_hash(path: Path, expected: str) -> None:
    """Stops the script, naming the file and both hashes, if a file has another hash."""
    actual = sha256_of(path)
    if actual != expected:
        raise SystemExit(f"{path}: expected sha256 {expected}, found {actual}")


def check_hashes(folder: Path, listing: Path, sets: Collection[str] = ()) -> None:
    """Stops with the name of the first file that is missing or differs from its sha256.

    Args:
        folder: The folder of the files.
        listing: Lines of `sha256  path`, as `sha256sum` writes them.
        sets: The folders below it that are read; all of the listing if none is named.
    """
    for line in listing.read_text(encoding="utf-8").splitlines():
        expected, name = line.split(maxsplit=1)
        if sets and name.split("/")[0] not in sets:
            continue
        path = folder / name
        if not path.is_file():
            raise SystemExit(f"{path}: missing, listed in {listing}")
        check_hash(path, expected)


def check_weights(*folders: Path) -> None:
    """Checks folders of weights against their hashes, and names the folders without hashes."""
    for folder in folders:
        if (folder / WEIGHTS).exists():
            check_hashes(folder, folder / WEIGHTS)
        else:
            sys.stderr.write(f"{folder}: not checked, since it holds no {WEIGHTS}\n")


def list_weights(folder: Path) -> None:
    """Writes the hashes of a folder of weights into it, where `sha256sum -c` finds them too."""
    lines = [
        f"{sha256_of(folder / name)}  {name}\n"
        for name in ("model.safetensors", "config.json", "tokenizer.json")
    ]
    (folder / WEIGHTS).write_text("".join(lines), encoding="utf-8")
