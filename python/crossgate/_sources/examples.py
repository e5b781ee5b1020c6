"""Files of examples: prompts that should, or should not, select a skill."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from crossgate._retrieval.document_index import Index
from crossgate._sources.common import Unusable, decoded, is_unicode, place_of, printable
from crossgate._sources.rows import parse_json
from crossgate._support.errors import IndexFileError, InputError, SourceError
from crossgate._support.files import EXAMPLES, cannot_write, file_lock, read_source
from crossgate._support.limits import SKILL_BYTES, SKILL_EXAMPLES

LOCK_SECONDS = 60.0
"""Time to wait for other processes that change the same examples."""


class Example(NamedTuple):
    """A prompt that should, or should not, select a document.

    Attributes:
        prompt: The prompt.
        skill: Id of the document; None if no document fits the prompt.
        fits: Whether the prompt should select the document.
    """

    prompt: str
    skill: str | None
    fits: bool = True

    def line(self) -> str:
        """Return the example as a line of a file beside an index."""
        row: dict[str, str | bool | None] = {"prompt": self.prompt, "skill": self.skill}
        if self.skill is not None:
            row["fits"] = self.fits
        return f"{json.dumps(row, ensure_ascii=False)}\n"


def examples_beside(index: Path) -> Path:
    """Return the path of the examples of an index: `skills.examples.jsonl` for `skills.cgx`."""
    return index.with_suffix(f".{EXAMPLES}")


def read_examples(path: Path) -> list[Example]:
    """Read the examples beside an index: lines of `{"prompt": ..., "skill": ..., "fits": ...}`.

    `skill` is an id, or null if no document fits; `fits` is true by default. A missing file has no
    examples.

    Raises:
        InputError: `malformed_example`, naming file and line.
        SourceError: `source_unreadable`.
    """
    examples: list[Example] = []
    try:
        for number, line in _lines(path):
            try:
                examples.append(parse_example(line, has_skill=True))
            except Unusable as error:
                raise Unusable(str(error), number) from None
    except FileNotFoundError:
        return []
    except OSError as error:
        message = f"{printable(str(path))} cannot be read: {error.strerror}"
        raise SourceError("source_unreadable", message) from error
    except Unusable as error:
        place = place_of(printable(str(path)), error.line)
        raise InputError("malformed_example", f"{place}: {error}") from None
    return examples


def examples_of_skill(folder: str) -> Iterator[Example | Unusable]:
    """Yield the examples in the folder of a skill, and the lines that cannot be used.

    The first `SKILL_EXAMPLES` lines are read: each example is embedded, and draws prompts to the
    skill, so its author must not list any number of them.

    Raises:
        Unusable: If the file cannot be read.
    """
    try:
        for count, (number, line) in enumerate(_lines(Path(folder, EXAMPLES))):
            if count == SKILL_EXAMPLES:
                yield Unusable(f"only the first {SKILL_EXAMPLES} examples are read", number)
                return
            try:
                yield parse_example(line, has_skill=False)
            except Unusable as error:
                yield Unusable(str(error), number)
    except FileNotFoundError:
        return
    except OSError as error:
        raise Unusable(f"cannot be read: {error.strerror}") from None


def parse_example(line: str, *, has_skill: bool) -> Example:
    """Parse one line of a file.

    Args:
        line: A JSON object.
        has_skill: Whether the line names the skill; in a skill's folder it does not.

    Raises:
        Unusable: If it is not an example.
    """
    row = parse_json(line)
    if not isinstance(row, dict):
        raise Unusable('must be an object such as {"prompt": "...", "fits": true}')
    prompt, fits, skill = row.get("prompt"), row.get("fits", True), row.get("skill")
    if not isinstance(prompt, str) or not prompt.strip() or not is_unicode(prompt):
        raise Unusable("needs a prompt, which is a text that is not empty")
    if not isinstance(fits, bool):
        raise Unusable("fits must be true or false")
    if has_skill and (
        "skill" not in row or not isinstance(skill, str | None) or not is_unicode(skill or "")
    ):
        raise Unusable("needs a skill, which is an id, or null if none fits")
    return Example(prompt, skill if has_skill else None, fits)


@contextmanager
def examples_lock(path: Path) -> Iterator[None]:
    """Keep other processes from changing a file of examples, and an index that is taught them.

    Raises:
        IndexFileError: `index_unwritable` if another process has the lock for longer than
            `LOCK_SECONDS`, or the folder cannot be written.
    """
    lock = path.with_name(f".{path.name}.lock")
    try:
        with file_lock(lock, seconds=LOCK_SECONDS) as free:
            if not free:
                message = f"another process is changing {path}: try again when it has ended"
                raise IndexFileError("index_unwritable", message)
            yield
    except OSError as error:
        raise IndexFileError("index_unwritable", cannot_write(lock, error)) from error


def teach_examples(index: Index, path: Path) -> list[str]:
    """Teach an index the examples in a file.

    Returns:
        The skills of examples that the index does not have.

    Raises:
        InputError: `malformed_example`, naming file and line.
        SourceError: `source_unreadable`.
        ModelError: If the embedder cannot be loaded or run.
    """
    unknown: dict[str, None] = {}
    for example in read_examples(path):
        if example.skill is not None and example.skill not in index:
            unknown[example.skill] = None
        else:
            index.teach(example.prompt, example.skill, fits=example.fits)
    return list(unknown)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line that is not blank."""
    if os.path.isdir(path):
        raise FileNotFoundError(path)
    for number, line in enumerate(decoded(read_source(path, SKILL_BYTES)).split("\n"), 1):
        if line.strip():
            yield number, line
