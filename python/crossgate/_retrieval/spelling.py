"""Corrects words of a query that occur in no candidate to similar words that do."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import crossgate._core as _core
from crossgate._values.results import Document

_WORD = re.compile(r"[^\W\d_]+")
# A shorter word has too many neighbours. In words of three or four letters only swapped letters are
# corrected, and only to a rare word: "pfd" is "pdf", but "sued" is not "used".
_LEAST_LETTERS = 3
_SHORT_LETTERS = 4
_LONG_LETTERS = 8
# The edits between two words cost the product of their lengths.
_MOST_LETTERS = 40
# Each word that is looked up costs a pass over the vocabulary; pasted text has thousands.
_MOST_LOOKUPS = 64
_ENDINGS = {
    "": ("ed", "ing", "s"),
    "e": ("ed", "es", "ing"),
    "y": ("ied", "ies"),
    "es": ("", "e"),
    "ies": ("y",),
    "ed": ("", "e", "ing", "s"),
    "ied": ("y", "ies"),
    "er": ("", "e", "ed", "ing"),
    "ing": ("", "e", "ed", "s"),
}
"""Endings of words of the texts, and the endings of their other forms."""


def corrected(
    query: str,
    texts: Iterable[str],
    language: str,
    elsewhere: Iterable[str] = (),
    check: Callable[[], None] = lambda: None,
) -> tuple[str, dict[str, str]]:
    """Return the query with its misspelt words corrected, and the corrections.

    A word is misspelt if it has 3 to 40 letters, is not a common English word, and neither it nor
    its stem occurs in the texts. It is replaced by the closest word of the texts: one edit
    away, or two for words of at least eight letters. An edit swaps two neighbouring letters. In
    words of at least five letters it may also insert or omit one, and in words of at least eight
    replace one. A word of three or four letters is only replaced by a word that is not common. Of
    equally close words, the more frequent one is used, then the first in the alphabet. Other forms
    of the words of the texts count as words of the texts: "querry" is close to "query" where only
    "queries" occurs. Only the first 64 words that the texts lack are looked up.

    Args:
        query: The query.
        texts: The texts of the candidates.
        language: Snowball language of the stemmer, or `none`.
        elsewhere: Further texts of the candidates. A word that occurs in one of them is not
            misspelt, and none is corrected to their words.
        check: Called before each text and each word that is looked up; it may raise.
    """
    others: list[str] | None = None
    vocabulary: Counter[str] = Counter()
    unknown = [
        word
        for word in dict.fromkeys(_WORD.findall(query.lower()))
        if _LEAST_LETTERS <= len(word) <= _MOST_LETTERS
    ]
    for number, text in enumerate(texts):
        check()
        vocabulary.update(_WORD.findall(text.lower()))
        unknown = [word for word in unknown if word not in vocabulary]
        if number == 0:
            unknown = [word for word in unknown if not _is_common(word, language)]
        if not unknown:
            return query, {}  # most prompts: the first text has the words that are not common
    for word, count in list(vocabulary.items()):
        if len(word) > _SHORT_LETTERS and word.endswith("s"):  # "recipie" means one of the recipes
            vocabulary.setdefault(word[:-1], count)
    stems: set[str] | None = None
    corrections: dict[str, str] = {}
    lookups = 0
    for lower in unknown:
        if lower in vocabulary:
            continue
        if stems is None:
            stems = set(_core.analyze(" ".join(vocabulary), language))
        if stems.intersection(_core.analyze(lower, language)):
            continue
        if lookups == _MOST_LOOKUPS:
            break
        lookups += 1
        check()
        if (closest := _closest(lower, vocabulary, language)) is None:
            continue
        if others is None:
            others = [text.lower() for text in elsewhere]
        if not any(lower in text for text in others):
            corrections[lower] = closest
    if not corrections:
        return query, {}
    return _WORD.sub(lambda found: corrections.get(found[0].lower(), found[0]), query), corrections


def corrected_to(
    query: str,
    documents: Iterable[Document],
    language: str,
    check: Callable[[], None] = lambda: None,
) -> tuple[str, dict[str, str]]:
    """Return the query with its misspelt words corrected to words of documents.

    A rare word of a body, or of a sentence that excludes something, is not misspelt.

    Args:
        query: The query.
        documents: The candidates.
        language: Snowball language of the stemmer, or `none`.
        check: As in `corrected`.

    Returns:
        As `corrected`.
    """
    known = list(documents)
    contents = (document.content for document in known)
    elsewhere = (f"{document.text}\n{document.body}" for document in known)
    return corrected(query, contents, language, elsewhere, check)


def has_unknown_word(query: str, documents: Iterable[Document], language: str) -> bool:
    """Return whether an uncommon word of the query occurs in none of the documents.

    Args:
        query: The query.
        documents: The candidates; only their contents count.
        language: Snowball language of the stemmer, or `none`.
    """
    words = {word for word in _WORD.findall(query.lower()) if len(word) >= _LEAST_LETTERS}
    unknown = {word for word in words if not _is_common(word, language)}
    for document in documents:
        if not unknown:
            break
        unknown.difference_update(_WORD.findall(document.content.lower()))
    return bool(unknown)


def _closest(word: str, vocabulary: Counter[str], language: str) -> str | None:
    short = len(word) <= _SHORT_LETTERS
    most = 2 if len(word) >= _LONG_LETTERS else 1
    apart = 0 if short else most
    least = min(len(word), _SHORT_LETTERS)
    near = []
    for known, count in vocabulary.items():
        if known[0] != word[0] and known[:2] != word[1::-1]:
            continue
        if (
            abs(len(known) - len(word)) <= apart
            and len(known) >= least
            and (most == 2 or _keeps_letters(word, known))
            and (distance := _edits(word, known, most)) <= most
            and not (short and _is_common(known, language))
        ):
            near.append((distance, -count, known))
        if not short:
            near += [(1, -count, form) for form in _near_forms(word, known, language)]
    return min(near, default=(0, 0, None))[2]


def _keeps_letters(word: str, other: str) -> bool:
    """Return whether one edit between two words replaces no letter.

    Short words that differ in one letter, "plane" and "place", are often both right.
    """
    return len(other) != len(word) or sorted(other) == sorted(word)


def _near_forms(word: str, known: str, language: str) -> Iterator[str]:
    """Yield the forms of a word of the texts, with the same stem, that are one edit away.

    The last two letters must be equal: "starter" is not a misspelt form of "starting".
    """
    if len(known) <= _SHORT_LETTERS:
        return
    for ending, others in _ENDINGS.items():
        if not known.endswith(ending) or (not ending and known[-1] in "ey"):
            continue
        for other in others:
            form = known.removesuffix(ending) + other
            if (
                form[-2:] == word[-2:]
                and abs(len(form) - len(word)) <= 1
                and _keeps_letters(word, form)
                and _edits(word, form, 1) <= 1
                and _core.analyze(form, language) == _core.analyze(known, language)
            ):
                yield form


def _is_common(word: str, language: str) -> bool:
    return all(_core.information(stem) < 1 for stem in _core.analyze(word, language))


def _edits(word: str, other: str, most: int) -> int:
    """Return the number of edits, or more than `most`; swapped neighbours are one edit.

    Optimal string alignment distance: Boytsov, "Indexing methods for approximate dictionary
    searching" (2011), section 2.
    """
    before: list[int] = []
    last = list(range(len(other) + 1))
    for row, letter in enumerate(word, start=1):
        current = [row]
        for column, known in enumerate(other, start=1):
            cost = min(last[column] + 1, current[-1] + 1, last[column - 1] + (letter != known))
            if row > 1 and column > 1 and letter == other[column - 2] and known == word[row - 2]:
                cost = min(cost, before[column - 2] + 1)
            current.append(cost)
        if min(current) > most:
            return most + 1
        before, last = last, current
    return last[-1]
