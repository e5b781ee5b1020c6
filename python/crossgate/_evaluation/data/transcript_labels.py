"""Labels from transcripts: a person's prompts, and the skills that the agent opened for them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

from crossgate._evaluation.data.labels import LabelledQuery, ProblemLog
from crossgate._sources.common import Unusable
from crossgate._sources.transcripts import Turn, read_turns, transcripts_below
from crossgate._support.checks import check_query
from crossgate._support.errors import InputError

OPENED, UNOPENED = "skill opened", "no skill opened"
"""The kinds of these queries, by which the report groups them."""


def transcript_queries(
    folder: Path, find: Callable[[str], str], log: ProblemLog
) -> list[LabelledQuery]:
    """Return each prompt once, with the skills opened in at least half of its occurrences.

    A prompt such as "yes, do it" occurs in many conversations, and what follows it is chance, so
    half of them must agree. A prompt is left out if a skill was opened for it that is not in the
    library.

    Args:
        folder: A folder of transcripts, or one transcript.
        find: Returns the id of a document by its name; raises `Unusable` if there is none.
        log: Gets the files and prompts that were left out.

    Raises:
        SourceError: As `transcripts_below`, or `malformed_row` if the log is strict.
    """
    turns: dict[str, list[Turn]] = defaultdict(list)
    for path in transcripts_below(folder):
        try:
            for turn in read_turns(path):
                turns[turn.text].append(turn)
        except OSError as error:
            log.add(path, None, f"cannot be read: {error.strerror}")
    queries = []
    for text, occurrences in turns.items():
        first = occurrences[0]
        try:
            check_query(text)
            opened = Counter(find(name) for turn in occurrences for name in turn.opened)
        except (InputError, Unusable) as error:
            log.add(first.path, first.line, str(error))
            continue
        fits = {id: 1 for id, count in opened.items() if 2 * count >= len(occurrences)}
        queries.append(
            LabelledQuery(
                id=f"{first.path.stem}:{first.line}",
                text=text,
                relevant=fits,
                kind=OPENED if fits else UNOPENED,
            )
        )
    return queries
