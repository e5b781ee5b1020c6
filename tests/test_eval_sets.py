"""The hand-written evaluation sets: they are read without problems and have the stated prompts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from crossgate.evaluation import read_dataset

EVAL = Path(__file__).parents[1] / "eval"

SETS = {
    "material": {"skill": 120, "trap": 80},
    "triggers": {"trigger": 95, "shared": 10, "mention_only": 15},
    "exclusions": {"excluded": 40, "allowed": 40},
    "projects": {"same_request": 121, "neutral": 20, "named": 10, "no_sibling": 9},
    "followups": {"continuation": 57, "stand_alone": 35, "chitchat": 28},
    "sessions": {"c": 56, "e": 152, "b": 47, "f": 29, "t": 104, "q": 93, "o": 49, "p": 22},
    "versions": {"pair": 34, "target": 8, "feature": 6, "no_pair": 8, "other_number": 4},
    "spelling": {"request": 95, "chat": 5},
    "languages": {"request": 52, "chat": 8},
    **{f"sure/{of}": {"sure": 15} for of in ("skills", "home", "office", "developer")},
    "taught": {"misroute": 60, "phrasing": 120, "ordinary": 180},
    "codehost": {"question": 9, "order": 7},
    "names": {"word": 90, "skill": 30},
}
"""The number of prompts of each kind."""
NO_MATCH = {"word", "trap", "chitchat", "chat", "no_pair", "other_number", "no_sibling"}
EITHER = {"mention_only", "excluded", "phrasing", "ordinary", *SETS["sessions"]}
"""Kinds of which some prompts have a match."""


@pytest.mark.parametrize("name", SETS)
def test_set_is_read_whole_and_has_the_stated_prompts(name: str) -> None:
    dataset = read_dataset(EVAL / name)
    assert (dataset.problems, dataset.notes) == ((), ())
    assert Counter(query.kind for query in dataset.queries) == SETS[name]
    assert len({document.text for document in dataset.documents}) == len(dataset.documents)
    for query in dataset.queries:
        assert not query.wrong & query.relevant.keys(), query.id
        if query.kind not in EITHER:
            assert bool(query.relevant) == (query.kind not in NO_MATCH), query.id
