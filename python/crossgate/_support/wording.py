"""Numbers, types and similar names in messages."""

from __future__ import annotations

from collections.abc import Iterable


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as "1 query" and "2,345 queries".

    Args:
        number: The number.
        noun: The noun for one thing. Other words may precede it, such as `no-match query`.
    """
    return f"{number:,} {noun_for(number, noun)}"


def share_of(part: int, whole: int, noun: str) -> str:
    """Return a part of a number of things, such as "3 of 20 queries"."""
    return f"{part:,} of {counted(whole, noun)}"


def noun_for(number: int, noun: str, several: str = "") -> str:
    """Return the form of a noun for a number."""
    return noun if number == 1 else several or plural(noun)


def plural(noun: str) -> str:
    """Return the regular plural of a noun."""
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("s", "x", "ch", "sh")) else f"{noun}s"


def type_of(value: object) -> str:
    """Return the type of a value with its article, such as "an int" and "None"."""
    return "None" if value is None else article(type(value).__name__)


def article(noun: str) -> str:
    """Return a noun with its article."""
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """Return the question with the most similar name, such as ": did you mean 'x'?", or "".

    Args:
        given: The unknown name.
        known: The names that exist.
    """
    from difflib import get_close_matches

    cased = {name.lower(): name for name in known}
    close = get_close_matches(given.lower(), cased, n=1)
    if not close and len(given) > 2:  # a part of one name only
        close = [name for name in cased if given.lower() in name]
    return f": did you mean {cased[close[0]]!r}?" if len(close) == 1 else ""
