"""Checks of arguments, before they reach the core or a model."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence, Sized
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeVar

from crossgate._support.errors import InputError
from crossgate._support.wording import counted, type_of

if TYPE_CHECKING:
    from crossgate._core import Profile

Item = TypeVar("Item")

MAX_QUERY_CHARACTERS = 65_536


def check_text(what: str, text: object) -> None:
    """Check that a value is Unicode text.

    Args:
        what: Name of the value in the error, such as `the query`.
        text: The value.

    Raises:
        InputError: `invalid_text` if it is not a `str`, or contains a lone surrogate.
    """
    if not isinstance(text, str):
        raise InputError("invalid_text", f"{what} must be a string, not {type_of(text)}")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            "invalid_text",
            f"{what} contains a lone surrogate, U+{ord(text[error.start]):04X}, at position "
            f"{error.start}: decode its bytes as UTF-8, with errors='replace' if necessary",
        ) from error


def is_text(text: str) -> bool:
    """Return whether a text contains no lone surrogate."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def without_surrogates(text: str) -> str:
    """Return a text with question marks in place of lone surrogates."""
    return text.encode("utf-8", "replace").decode()


def check_ids(what: str, ids: Iterable[str]) -> set[str]:
    """Check that a value is a collection of ids, and return them.

    Args:
        what: Name of the collection in the error, such as `allow`.
        ids: The ids.

    Raises:
        InputError: `out_of_range` for a string, `invalid_text` for an id that is not text.
    """
    given = collected(what, ids)
    for id in given:
        check_text(f"an id in {what}", id)
    return set(given)


def collected(what: str, ids: Iterable[Item]) -> list[Item]:
    """Return the ids of a collection.

    Raises:
        InputError: `out_of_range` for a string, or for a value that is not a collection.
    """
    if isinstance(ids, str):
        raise InputError("out_of_range", f"{what} is a string, {ids!r}: pass a list of ids")
    if not isinstance(ids, Iterable):
        raise InputError(
            "out_of_range", f"{what} is {safe_repr(ids)}: pass a list of ids, an empty one for none"
        )
    return list(ids)


def safe_repr(value: object) -> str:
    """Return a short `repr` for an error message, which never raises."""
    try:
        text = repr(value)
    except Exception:  # an integer of more than 4,300 digits, or a failing __repr__
        return f"{type_of(value)} that cannot be shown"
    return text if len(text) <= 80 else f"{text[:79]}…"


def check_path(what: str, path: object) -> str:
    """Check that a value is the path of a file, and return it as a string.

    Raises:
        InputError: `out_of_range`.
    """
    try:
        text = os.fspath(path)  # type: ignore[call-overload]
        # Paths that cannot be encoded raise different errors in each function of `os`.
        if isinstance(text, str) and os.fsencode(text) is not None:
            return text
    except (TypeError, ValueError):
        pass
    raise InputError("out_of_range", f"{what} is {safe_repr(path)}: pass the path of a file")


def scalar(value: object) -> Any:
    """Return a scalar of numpy as a number of Python, and anything else as it is.

    Scalars of 16 or 32 bits overflow when they are compared with the limits of a float.
    """
    return value.item() if getattr(value, "ndim", None) == 0 else value  # type: ignore[attr-defined]


def _is_whole(value: object) -> bool:
    return type(scalar(value)) is int


def check_number(
    what: str,
    value: object,
    least: float = -math.inf,
    most: float = math.inf,
    *,
    above: bool = False,
) -> None:
    """Check that a value is a finite number within limits.

    Args:
        what: Name of the value in the error.
        value: The value.
        least: Lower limit.
        most: Upper limit.
        above: Whether the value must be larger than `least`.

    Raises:
        InputError: `out_of_range`.
    """
    value = scalar(value)
    number = isinstance(value, Real) and not isinstance(value, bool)
    # A comparison rejects NaN, and does not overflow for a large Python integer.
    largest = min(most, sys.float_info.max)
    if not (number and max(least, -sys.float_info.max) <= value <= largest) or (  # type: ignore[operator]
        above and value == least
    ):
        limits = "a number"
        if least > -math.inf:
            limits += f" above {least:g}" if above else f" of at least {least:g}"
        if most < math.inf:
            limits += f" and at most {most:g}"
        raise InputError("out_of_range", f"{what} is {safe_repr(value)}: it must be {limits}")


def check_numbers(what: str, values: Any, least: float = -math.inf, *, finite: bool = True) -> None:
    """Check that a value is a list of numbers of at least `least`, finite unless `finite=False`.

    Raises:
        InputError: `out_of_range`.
    """
    # An array of numpy is not a Sequence.
    if isinstance(values, str | bytes | Mapping) or not hasattr(values, "__getitem__"):
        raise InputError("out_of_range", f"{what} is {safe_repr(values)}: pass a list of numbers")
    for value in values:
        if not finite and isinstance(value, float):
            continue
        check_number(f"a number in {what}", value, least)


def check_count(what: str, value: object, least: int = 1, most: int = sys.maxsize) -> None:
    """Check that a value is a whole number within limits.

    Raises:
        InputError: `out_of_range`.
    """
    if not _is_whole(value) or not least <= value <= most:  # type: ignore[operator]
        limits = f"at least {least}"
        if most < sys.maxsize or (_is_whole(value) and value > most):  # type: ignore[operator]
            limits += f" and at most {most:,}"
        raise InputError(
            "out_of_range", f"{what} is {safe_repr(value)}: it must be a whole number of {limits}"
        )


def check_kind(what: str, value: object, kind: Any, remedy: str) -> None:
    """Check that a value is of type `kind`.

    Raises:
        InputError: `out_of_range`, with the remedy "pass `remedy`".
    """
    if not isinstance(value, kind):
        raise InputError("out_of_range", f"{what} is {safe_repr(value)}: pass {remedy}")


_LIMIT_NAMES = {"k", "top_k", "top_n", "n", "n_results", "max_results"}


def check_keywords(function: str, unknown: Iterable[str]) -> None:
    """Refuse unknown keyword arguments; those of other libraries get the right name.

    Raises:
        TypeError: As Python raises it, naming `limit` for `k`, `top_k` or `top_n`.
    """
    for name in unknown:
        remedy = ": use limit=" if name in _LIMIT_NAMES else ""
        raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{remedy}")


def check_vector(vector: object) -> None:
    """Check that a value is a vector; the index checks its dimension and its numbers.

    Raises:
        InputError: `wrong_dimension`.
    """
    listed = isinstance(vector, Sized) and isinstance(vector, Iterable)
    if vector is not None and (not listed or isinstance(vector, str | bytes | Mapping)):
        message = f"the query's vector is {safe_repr(vector)}: pass a list of numbers"
        raise InputError("wrong_dimension", message)


def check_hits(what: str, hits: object) -> None:
    """Check that a value is a list of hits, each with an id.

    Raises:
        InputError: `malformed_candidate`.
    """
    if isinstance(hits, str | bytes | Mapping) or not isinstance(hits, Sequence):
        raise InputError("malformed_candidate", f"{what} is {safe_repr(hits)}: pass a list of hits")
    for position, hit in enumerate(hits):
        id = getattr(hit, "id", None)
        if not isinstance(id, str) or not id:
            raise InputError(
                "malformed_candidate",
                f"hit {position} in {what} is {type_of(hit)} with the id {safe_repr(id)}: "
                "each id must be a non-empty string",
            )


def is_empty(query: str) -> bool:
    """Return whether a query is empty or white space.

    Raises:
        InputError: `invalid_text` if it is not Unicode text.
    """
    check_text("the query", query)
    return not query.replace("\0", "").strip()


def check_query(query: str) -> None:
    """Check that a query is Unicode text, not empty and not too long.

    Raises:
        InputError: `empty_query`, `query_too_long` or `invalid_text`.
    """
    if is_empty(query):
        raise InputError("empty_query", "the query is empty: pass a prompt or question")
    check_prompt(query)


def check_prompt(query: str) -> None:
    """Check that a prompt is Unicode text and not too long. It may be empty.

    Raises:
        InputError: `query_too_long` or `invalid_text`.
    """
    check_text("the query", query)
    if len(query) > MAX_QUERY_CHARACTERS:
        raise InputError(
            "query_too_long",
            f"the query has {counted(len(query), 'character')}, and at most "
            f"{MAX_QUERY_CHARACTERS:,} are read: pass only the part that states the request",
        )


def check_limit(limit: int | None) -> None:
    """Check that a limit is None or at least 1.

    Raises:
        InputError: `out_of_range` if the limit is not a whole number, or below 1.
    """
    if limit is not None and (not _is_whole(limit) or limit < 1):
        raise InputError(
            "out_of_range",
            f"the limit is {safe_repr(limit)}: it must be a whole number of at least 1, or None "
            "for all that pass",
        )


def check_coverage(coverage: float) -> None:
    """Check the coverage of a shortlist.

    Raises:
        InputError: `out_of_range`.
    """
    check_number("coverage", coverage)
    if not 0 < coverage < 1:
        raise InputError(
            "out_of_range", f"coverage is {coverage:g}: it must be above 0 and below 1"
        )


def check_confidence(least: float | None, profile: Profile, name: str = "min_confidence") -> None:
    """Check the least probability of an answer, and that the profile has weights for it.

    Args:
        least: The least probability; None is accepted.
        profile: The profile of the decision.
        name: Name of the argument.

    Raises:
        InputError: `out_of_range`.
    """
    if least is None:
        return
    check_number(name, least, 0, 1)
    if profile.relevance.stage1 is None and profile.relevance.stage2 is None:
        raise InputError(
            "out_of_range",
            f"{name} is {least:g}, but profile {profile.name!r} has no weights of "
            "relevance: omit it, or use a profile fitted by `crossgate calibrate`",
        )
