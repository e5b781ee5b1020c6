"""Splits a request with several intents into its clauses."""

from __future__ import annotations

import re

_BREAK = re.compile(
    r"[.;!?\n。；！？]+|\b(?:and then|and also|and|then|also|plus)\b",
    re.IGNORECASE,
)
_LEAST_WORDS = 3
_MOST = 8


def clauses(request: str) -> list[str]:
    """Return the clauses of a request, at most eight; empty if it has only one.

    Sentences and the English words "and", "then", "also" and "plus" separate clauses. A clause of
    fewer than three words, as in "merge and split", is left out.
    """
    parts = (part.strip(" ,") for part in _BREAK.split(request))
    found = [part for part in parts if len(part.split()) >= _LEAST_WORDS]
    return found[:_MOST] if len(found) > 1 else []
