"""From transcripts to a log: what an agent opened is noted as the use of the logged decision."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256

from crossgate._telemetry.log import JsonLinesLog, LoggedDecision, LoggedUse, read_log
from crossgate._transcripts import read_turns, transcripts_below


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """What was found in transcripts of the decisions of a log.

    Attributes:
        decisions: How many decisions the log holds.
        known: How many of them had a use before.
        opened: How many were noted with what was opened.
        unopened: How many were noted as used for nothing.
    """

    decisions: int
    known: int
    opened: int
    unopened: int


def note_opened(log: str | os.PathLike[str], folder: str | os.PathLike[str]) -> Noted:
    """Append to a log what an agent opened for each prompt that the log has a decision on.

    Prompt and decision are matched by SHA-256. Where a prompt stands in several places, half of
    them have to agree on a skill. A decision that has a use, such as a person's judgement, keeps
    it, so that a second call notes nothing.

    Args:
        log: A log of the schema `crossgate-log/2`.
        folder: Transcripts of Claude Code, or one of them.

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
    heard: dict[str, list[Sequence[str]]] = defaultdict(list)
    for path in transcripts_below(folder):
        with suppress(OSError):
            for turn in read_turns(path):
                heard[sha256(turn.text.encode("utf-8", "replace")).hexdigest()].append(turn.opened)
    writer = JsonLinesLog(log)
    opened = unopened = 0
    for id, decision in decisions.items():
        places = heard.get(str(decision.trace.get("query_sha256")))
        if id in used or not places:
            continue
        names = Counter(name for each in places for name in each)
        ids = _ids(decision, (name for name, count in names.items() if 2 * count >= len(places)))
        writer.used(id, ids)
        opened, unopened = opened + bool(ids), unopened + (not ids)
    return Noted(
        decisions=len(decisions),
        known=len(used & set(decisions)),
        opened=opened,
        unopened=unopened,
    )


def _ids(decision: LoggedDecision, names: Iterable[str]) -> list[str]:
    """Return the ids of skills by the names that the agent knows them by.

    `plugin:name` means `name` where the decision knows that; a skill that it did not find keeps the
    name as it is.
    """
    known = {str(one.get("id")) for one in _rows(decision.trace.get("stage1"))}
    bare = {name: name.rpartition(":")[2] for name in names}
    return [name if name in known else bare[name] for name in bare]


def _rows(value: object) -> list[dict[str, object]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
