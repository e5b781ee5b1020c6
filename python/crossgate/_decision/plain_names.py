"""Candidates whose name is an ordinary word in the query, as in "cancel my gym membership"."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import crossgate._core as _core
from crossgate._retrieval.passages import cosine_of
from crossgate._values.results import Document, Vector

_JUDGED = 3
"""How many of the best candidates are judged."""
_START = 3
"""Letters of a name that all of its forms begin with."""
_LONGEST_NAME = 1
"""Terms of the longest name that can be an ordinary word."""
_FAMILY = 3
"""Candidates whose names have the same first part, from which on it is a family's: `omh-`."""
_PART = re.compile(r"[-_:. ]+")
_INFORMATION = 0.5
"""Information of the words that query and description share beside the name, from which on they
share more than a name."""
_FAR, _NEAR = 0.1, 0.25
"""Cosines of query and description without the name's words that count as far and as near.

Of prompts of skill-triggers train that share only the name with the right skill, a tenth are below
0.14 and three quarters above 0.21; of those of `eval/names`, 90 % are below 0.13.
"""


def with_plain_names(
    scored: list[_core.Scored],
    documents: Mapping[str, Document],
    query: str,
    language: str,
    embed: Callable[[Sequence[str]], Sequence[Vector]],
    profile: _core.Profile,
    check: Callable[[], None],
) -> list[_core.Scored]:
    """Return the candidates with the evidence `plain_name`, best first.

    Args:
        scored: The candidates, best first.
        documents: Their documents, by id.
        query: The query.
        language: Language of the index.
        embed: Embeds texts.
        profile: The profile.
        check: Raises when time runs out.
    """
    families = Counter(_first_part(document) for document in documents.values())
    pairs: dict[str, tuple[str, str]] = {}
    for found in scored[:_JUDGED]:
        if found.is_named or found.cosine is None or found.evidence.example:
            continue
        check()
        document = documents[found.id]
        is_family = families[_first_part(document)] >= _FAMILY
        if pair := _without_name(query, document, language, is_family=is_family):
            pairs[found.id] = pair
    if not pairs:
        return scored
    check()
    texts = [*dict.fromkeys(text for pair in pairs.values() for text in pair)]
    vectors = dict(zip(texts, embed(texts), strict=True))
    values = {}
    for id, (asked, described) in pairs.items():
        near = cosine_of(vectors[asked], vectors[described])
        values[id] = min(1.0, max(0.0, (_NEAR - near) / (_NEAR - _FAR)))
    judged = [
        found.replace(evidence=found.evidence.replace(plain_name=values[found.id]))
        if values.get(found.id)
        else found
        for found in scored
    ]
    # In a session, the rest of a prompt seldom resembles the description of the right skill, so the
    # evidence counts against naming it, and not in the order.
    if profile.session:
        return judged
    return _core.reblend(judged, profile.blend, evidence=profile.evidence)


def _first_part(document: Document) -> str:
    """Return the first part of a name such as `omh-cancel`."""
    return _PART.split(document.title or document.id, maxsplit=1)[0]


def _without_name(
    query: str, document: Document, language: str, *, is_family: bool
) -> tuple[str, str] | None:
    """Return query and description without the words of a document's name.

    The first part of a name does not count if it is that of a family. The result is None if query
    and description share more than the name, or if nothing is left of one of them. The name of a
    tool names the things that it handles, so it does not count as an ordinary word.
    """

    def terms(text: str) -> set[str]:
        return set(_core.analyze(text, language))

    title = document.title or document.id
    called = _PART.split(title, maxsplit=1)[-1] if is_family else title
    # Few prompts have the start of the name, and the others need no analysis.
    is_tool = "read_only" in document.metadata
    if called[:_START].lower() not in query.lower() or is_tool:
        return None
    if not document.is_read_as_description():  # a text of any length
        return None
    name, asked = terms(called), terms(query)
    if len(name) > _LONGEST_NAME or not name & asked:
        return None
    shared = (asked & terms(document.content)) - name
    if _information(shared) >= _INFORMATION or not _information(asked - name):
        return None
    left, described = (
        " ".join(word for word in text.split() if not name & terms(word))
        for text in (query, _core.strip_exclusions(document.text))
    )
    return (left, described) if left and described else None


def _information(terms: Iterable[str]) -> float:
    return sum(map(_core.information, terms))
