"""Checks of what callers hand in, before any of it reaches the core or a model."""

from __future__ import annotations

from collections.abc import Iterable

from crossgate._errors import InputError

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
    if isinstance(ids, str):
        raise InputError("out_of_range", f"{what} is one text, {ids!r}: pass a list of ids")
    found = list(ids)
    for id in found:
        check_text(f"an id in {what}", id)
    return set(found)


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
        InputError: `out_of_range` if the limit is below 1.
    """
    if limit is not None and limit < 1:
        raise InputError("out_of_range", f"the limit is {limit}: it must be at least 1")


def check_request(section: str | None, grade: str | None) -> None:
    """Refuse a section or a grade that is no text; which ones mean something is the profile's.

    Raises:
        InputError: `invalid_text`.
    """
    for what, value in (("the section", section), ("the grade", grade)):
        if value is not None:
            check_text(what, value)
