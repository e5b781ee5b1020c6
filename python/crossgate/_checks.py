"""Checks of what callers hand in, before any of it reaches the core or a model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from crossgate._errors import InputError

Item = TypeVar("Item")

MAX_QUERY_CHARACTERS = 65_536


def check_text(what: str, text: object) -> None:
    """Refuse what is no Unicode text.

    Args:
        what: Names the text in the error, such as `the query`.
        text: The text.

    Raises:
        InputError: `invalid_text` if it is no `str`, or holds half of a surrogate pair.
    """
    if not isinstance(text, str):
        raise InputError("invalid_text", f"{what} is a {type(text).__name__}: it must be a str")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            "invalid_text",
            f"{what} holds a lone surrogate, U+{ord(text[error.start]):04X}, at position "
            f"{error.start}: decode the bytes it came from as UTF-8, with errors='replace' if "
            "need be",
        ) from error


def is_text(text: str) -> bool:
    """Return whether a text holds no half of a surrogate pair."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def check_ids(what: str, ids: Iterable[str]) -> set[str]:
    """Refuse what is no collection of ids, and return them.

    Args:
        what: Names the collection in the error, such as `allow`.
        ids: The ids.

    Raises:
        InputError: `out_of_range` for a single text, `invalid_text` for an id that is none.
    """
    found = collected(what, ids)
    for id in found:
        check_text(f"an id in {what}", id)
    return set(found)


def collected(what: str, ids: Iterable[Item]) -> list[Item]:
    """Return the ids of a collection.

    Raises:
        InputError: `out_of_range` for a single text, and for what is no collection.
    """
    if isinstance(ids, str):
        raise InputError("out_of_range", f"{what} is one text, {ids!r}: pass a list of ids")
    if not isinstance(ids, Iterable):
        raise InputError(
            "out_of_range", f"{what} is {shown(ids)}: pass a list of ids, an empty one for none"
        )
    return list(ids)


def shown(value: object) -> str:
    """Return a value as an error names it: short, and also where it cannot be written out."""
    try:
        text = repr(value)
    except Exception:  # an integer of 5,000 digits, or a repr that fails
        return f"a {type(value).__name__} that cannot be shown"
    return text if len(text) <= 80 else f"{text[:79]}…"


def check_query(query: str) -> None:
    """Refuse a query that is empty, too long or no Unicode text.

    Raises:
        InputError: `empty_query`, `query_too_long` or `invalid_text`.
    """
    check_text("the query", query)
    if not query.replace("\0", "").strip():
        raise InputError("empty_query", "the query is empty: say what is wanted")
    if len(query) > MAX_QUERY_CHARACTERS:
        raise InputError(
            "query_too_long",
            f"the query has {len(query):,} characters, at most {MAX_QUERY_CHARACTERS:,} are read: "
            "pass the part that says what is wanted",
        )


def check_limit(limit: int | None) -> None:
    """Refuse a limit that selects nothing.

    Raises:
        InputError: `out_of_range` if the limit is no whole number, or below 1.
    """
    if limit is None:
        return
    if type(limit) is not int:
        raise InputError(
            "out_of_range",
            f"the limit is {shown(limit)}: it must be a whole number of at least 1, or None for "
            "all that pass",
        )
    if limit < 1:
        raise InputError("out_of_range", f"the limit is {shown(limit)}: it must be at least 1")


def check_request(section: str | None, grade: str | None) -> None:
    """Refuse a section or a grade that is no text; which ones mean something is the profile's.

    Raises:
        InputError: `invalid_text`.
    """
    for what, value in (("the section", section), ("the grade", grade)):
        if value is not None:
            check_text(what, value)
