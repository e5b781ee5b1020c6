"""Types of numbers on the command line."""

from __future__ import annotations

import argparse
from collections.abc import Callable

_MOST_DIGITS = 9


def whole(least: int, most: int = 10**_MOST_DIGITS - 1) -> Callable[[str], int]:
    """Return the type of an argument that is a whole number within limits."""

    def read(text: str) -> int:
        is_whole = text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS
        value = int(text) if is_whole else -1
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(
                f"{text[:40]!r} is not a whole number from {least} to {most:,}"
            )
        return value

    return read


def number(least: float, most: float) -> Callable[[str], float]:
    """Return the type of an argument that is a number within limits."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(
                f"{text[:40]!r} is not a number from {least:g} to {most:g}"
            )
        return value

    return read
