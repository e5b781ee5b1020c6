"""Records the skills that an agent opened, from its transcripts, as uses of logged decisions."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256

from crossgate._sources.transcripts import read_turns, transcripts_below
from crossgate._telemetry.log import JsonLinesLog, LoggedDecision, LoggedUse, read_log


@dataclass(frozen=True, slots=True, kw_only=True)
class UseCounts:
    """Counts of the decisions of a log and their uses.

    Attributes:
        decisions: Decisions in the log.
        known: Decisions that already had a recorded use.
        opened: Decisions that were recorded with the skills that were opened.
        unopened: Decisions that were recorded with nothing used.
    """

    decisions: int
    known: int
    opened: int
    unopened: int


def record_opened(log: str | os.PathLike[str], folder: str | os.PathLike[str]) -> UseCounts:
    """Append to a log the skills that an agent opened for each prompt with a logged decision.

    Prompt and decision are matched by SHA-256. If a prompt occurs several times, a skill counts if
    it was opened in at least half of the occurrences. A decision that already has a use, such as a
    person's judgement, is skipped, so a second call records nothing.

    Args:
        log: A log of the schema `crossgate-log/3`.
        folder: A folder of Claude Code transcripts, or one transcript.

    Raises:
        SourceError: `source_missing`, `source_unreadable`, `no_transcripts` or `unwritable`.
    """
    decisions: dict[str, LoggedDecision] = {}
    used: set[str] = set()
    for line in read_log(log):
        if isinstance(line, LoggedDecision):
            decisions[line.decision] = line
        elif isinstance(line, LoggedUse):
            used.add(line.decision)
    turns_by_digest: dict[str, list[Sequence[str]]] = defaultdict(list)
    for path in transcripts_below(folder):
        with suppress(OSError):
            for turn in read_turns(path):
                turns_by_digest[sha256(turn.text.encode("utf-8", "replace")).hexdigest()].append(
                    turn.opened
                )
    writer = JsonLinesLog(log)
    opened = unopened = 0
    for id, decision in decisions.items():
        turns = turns_by_digest.get(str(decision.trace.get("query_sha256")))
        if id in used or not turns:
            continue
        names = Counter(name for names_of_turn in turns for name in names_of_turn)
        ids = _ids(decision, (name for name, count in names.items() if 2 * count >= len(turns)))
        writer.used(id, ids)
        opened, unopened = opened + bool(ids), unopened + (not ids)
    return UseCounts(
        decisions=len(decisions),
        known=len(used & set(decisions)),
        opened=opened,
        unopened=unopened,
    )


def _ids(decision: LoggedDecision, names: Iterable[str]) -> list[str]:
    """Map the agent's names of skills to document ids.

    `plugin:name` refers to `name`, unless the decision has a document with the full name.
    """
    known = {str(row.get("id")) for row in _rows(decision.trace.get("stage1"))}
    bare = {name: name.rpartition(":")[2] for name in names}
    return [name if name in known else bare[name] for name in bare]


def _rows(value: object) -> list[dict[str, object]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []
