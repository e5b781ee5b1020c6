"""Compares the suggestions of the prompt hook with the skills that the agent opened.

The hook's log has the suggestions with the SHA-256 of each prompt; the agent's transcripts have the
prompts and the skills that were opened after them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from crossgate._agents.hook.agents import prompt_digest
from crossgate._sources.transcripts import Turn
from crossgate._support.wording import counted

SECONDS = 600.0
"""A log entry and a prompt with the same text match if they are at most this far apart."""

OFTEN = 5
"""A skill that was suggested at least this often and never used gets a proposal."""

CHARS_PER_TOKEN = 4

KINDS = ("used", "unused", "unprompted", "neither")
"""Suggestions that were used and that were not, uses without a suggestion, and prompts with
neither a suggestion nor a use."""

NOTES = (
    "A suggestion counts as used if the agent opened the skill (its Skill tool, or its SKILL.md) "
    "before the next prompt.",
    "Log and transcript are matched by the SHA-256 of the prompt and by time; unmatched prompts "
    "are counted only as such.",
    "The figures cannot show whether a skill helped, whether the agent would have opened it "
    "without the suggestion, or uses after a later prompt.",
    "Only transcripts of Claude Code are read.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SuggestedPrompt:
    """A prompt in the hook's log that was found in a transcript.

    Attributes:
        week: ISO week of the prompt, such as `2026-W48`.
        form: `pick` or `shortlist`; empty without a suggestion.
        shadow: Whether the suggestion was withheld in shadow mode.
        suggested: Names of the suggested skills.
        earlier: Names that were not suggested again, since they had been shortly before.
        turn: The prompt in the transcript, with the skills that the agent opened.
    """

    week: str
    form: str
    shadow: bool
    suggested: tuple[str, ...]
    earlier: tuple[str, ...]
    turn: Turn

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield each kind in `KINDS` that the prompt counts for, with the name of its skill."""
        opened = self.turn.opened
        for name in self.suggested:
            yield ("used" if _is_among(name, opened) else "unused"), name
        for name in opened:
            if not _is_among(name, (*self.suggested, *self.earlier)):
                yield "unprompted", name
        if not self.suggested and not opened:
            yield "neither", ""


Counts = Mapping[str, int]
"""A number for each kind in `KINDS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageReport:
    """The figures of `crossgate usage`.

    Attributes:
        logged: Prompts in the hook's log.
        unlogged: Prompts of the transcripts that are not in the log.
        shadow: Suggestions that were withheld in shadow mode.
        tokens: Estimated tokens of all contexts, at four characters a token.
        prompts: The prompts of the log that were found in a transcript, in the order of the log.
    """

    logged: int
    unlogged: int
    shadow: int
    tokens: int
    prompts: tuple[SuggestedPrompt, ...]

    @property
    def total(self) -> Counts:
        """Counts over all matched prompts."""
        return _counts(kind for prompt in self.prompts for kind, _ in prompt.rows())

    @property
    def weeks(self) -> Mapping[str, Counts]:
        """Counts by ISO week."""
        return self._by("week")

    @property
    def forms(self) -> Mapping[str, Counts]:
        """Counts by form of the suggestion."""
        return self._by("form")

    def _by(self, attribute: str) -> Mapping[str, Counts]:
        kinds: dict[str, list[str]] = defaultdict(list)
        for prompt in self.prompts:
            kinds[getattr(prompt, attribute)] += [kind for kind, _ in prompt.rows()]
        return {name: _counts(kinds[name]) for name in sorted(kinds) if name}

    @property
    def skills(self) -> Mapping[str, Counts]:
        """Counts by name of the skill, most often first; `neither` is always 0 here."""
        rows = [row for prompt in self.prompts for row in prompt.rows() if row[1]]
        shown: dict[str, str] = {}
        plugins: dict[str, set[str]] = defaultdict(set)
        for _, name in rows:
            shown.setdefault(name.lower(), name)
            if ":" in name:
                plugins[bare(name)].add(name.lower())
        kinds: dict[str, list[str]] = defaultdict(list)
        for kind, name in rows:
            full = plugins[bare(name)]
            # A name without its plug-in means the skill of the only plug-in that has one so named.
            kinds[next(iter(full)) if len(full) == 1 else name.lower()].append(kind)
        order = sorted(kinds, key=lambda name: (-len(kinds[name]), name))
        return {shown[name]: _counts(kinds[name]) for name in order}

    def proposals(self) -> Iterator[tuple[str, str]]:
        """Yield the skills that were suggested often and never used, with a proposal."""
        for name, counts in self.skills.items():
            if counts["unused"] >= OFTEN and not counts["used"]:
                yield (
                    name,
                    f"suggested {counted(counts['unused'], 'time')}, never used: check its "
                    "description (`crossgate lint`), teach which prompts it does not fit "
                    "(`crossgate teach`), or do not suggest it (`crossgate hook install --deny "
                    f"{name}`)",
                )


def measure_usage(entries: Iterable[Mapping[str, Any]], turns: Iterable[Turn]) -> UsageReport:
    """Match the entries of the hook's log to the prompts of transcripts, and count.

    Args:
        entries: Entries of the log, oldest first. Entries without a prompt are skipped.
        turns: Prompts of transcripts.
    """
    by_digest: dict[str, list[Turn]] = defaultdict(list)
    for turn in turns:
        by_digest[prompt_digest(turn.text)].append(turn)
    logged = shadow = chars = 0
    matched: list[SuggestedPrompt] = []
    for entry in entries:
        digest = entry.get("prompt")
        if not isinstance(digest, str):
            continue
        logged += 1
        suggests = entry.get("outcome") in ("injected", "shadow")
        shadow += entry.get("outcome") == "shadow"
        length = entry.get("chars")
        if suggests and isinstance(length, int):
            chars += length
        turn_of_entry = _take_nearest(by_digest.get(digest, []), _seconds(entry.get("time")))
        if turn_of_entry is not None:
            matched.append(_matched(entry, turn_of_entry, suggests))
    return UsageReport(
        logged=logged,
        unlogged=sum(map(len, by_digest.values())),
        shadow=shadow,
        tokens=round(chars / CHARS_PER_TOKEN),
        prompts=tuple(matched),
    )


def bare(name: str) -> str:
    """Return the name of a skill without that of its plug-in, in lower case."""
    return name.rpartition(":")[2].lower()


def same_skill(first: str, second: str) -> bool:
    """Return whether two names may mean one skill: only one of them may lack its plug-in."""
    plugins = {name.rpartition(":")[0].lower() for name in (first, second)} - {""}
    return bare(first) == bare(second) and len(plugins) < 2


def _is_among(name: str, names: Iterable[str]) -> bool:
    return any(same_skill(name, other) for other in names)


def _counts(kinds: Iterable[str]) -> Counts:
    counts = Counter(kinds)
    return {kind: counts[kind] for kind in KINDS}


def _matched(entry: Mapping[str, Any], turn: Turn, suggests: bool) -> SuggestedPrompt:
    names = entry.get("names") or entry.get("ids")
    listed: tuple[str, ...] = ()
    if isinstance(names, list):
        listed = tuple(name for name in names if isinstance(name, str))
    form = entry.get("form")
    return SuggestedPrompt(
        week=_week(entry.get("time")),
        form=(form if isinstance(form, str) else "pick") if suggests else "",
        shadow=entry.get("outcome") == "shadow",
        suggested=listed if suggests else (),
        earlier=() if suggests else listed,
        turn=turn,
    )


def _take_nearest(turns: list[Turn], seconds: float | None) -> Turn | None:
    """Remove and return the prompt whose time is nearest; prompts without a time fit always."""

    def distance(turn: Turn) -> float:
        at = _seconds(turn.time)
        return 0.0 if at is None or seconds is None else abs(at - seconds)

    nearest = min(turns, key=distance, default=None)
    if nearest is None or distance(nearest) > SECONDS:
        return None
    turns.remove(nearest)
    return nearest


def _time(time: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(time).replace("Z", "+00:00"))
    except ValueError:
        return None


def _seconds(time: object) -> float | None:
    at = _time(time)
    try:
        return None if at is None else at.timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _week(time: object) -> str:
    at = _time(time)
    return "unknown" if at is None else f"{at:%G-W%V}"
