"""Measures how often an agent used the skills that the prompt hook suggested.

The hook's log has the suggestions with the SHA-256 of each prompt; the agent's transcripts have the
prompts and the skills that were opened after them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from crossgate._agents.hook.formats import prompt_digest
from crossgate._sources.transcripts import Turn
from crossgate._support.wording import counted

SECONDS = 600.0
"""A log entry and a prompt with the same text match if they are at most this far apart."""

OFTEN = 5
"""A skill that was suggested at least this often and never used gets a proposal."""

CHARS_PER_TOKEN = 4

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
        opened: Names of the skills that the agent opened.
        earlier: Names that were not suggested again, since they had been shortly before.
        turn: The prompt in the transcript.
    """

    week: str
    form: str
    shadow: bool
    suggested: tuple[str, ...]
    opened: tuple[str, ...]
    earlier: tuple[str, ...]
    turn: Turn

    @property
    def used(self) -> tuple[str, ...]:
        """The suggested skills that were opened."""
        return tuple(name for name in self.suggested if _is_among(name, self.opened))

    @property
    def unused(self) -> tuple[str, ...]:
        """The suggested skills that were not opened."""
        return tuple(name for name in self.suggested if not _is_among(name, self.opened))

    @property
    def unprompted(self) -> tuple[str, ...]:
        """The skills that were opened without a suggestion."""
        known = (*self.suggested, *self.earlier)
        return tuple(name for name in self.opened if not _is_among(name, known))

    @property
    def neither(self) -> bool:
        """Whether no skill was suggested and none was opened."""
        return not (self.suggested or self.opened)


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageCounts:
    """Counts of suggestions and uses.

    Attributes:
        used: Suggestions that were used.
        unused: Suggestions that were not used.
        unprompted: Uses without a suggestion.
        neither: Prompts without a suggestion and without a use.
    """

    used: int = 0
    unused: int = 0
    unprompted: int = 0
    neither: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageReport:
    """The figures of `crossgate usage`.

    Attributes:
        logged: Prompts in the hook's log.
        matched: Prompts of the log that were found in a transcript.
        unlogged: Prompts of the transcripts that are not in the log.
        shadow: Suggestions that were withheld in shadow mode.
        tokens: Estimated tokens of all contexts, at four characters a token.
        total: Counts over all matched prompts.
        skills: Counts by name of the skill; `neither` is always 0 here.
        weeks: Counts by ISO week.
        forms: Counts by form of the suggestion.
        prompts: The matched prompts, in the order of the log.
    """

    logged: int
    matched: int
    unlogged: int
    shadow: int
    tokens: int
    total: UsageCounts
    skills: Mapping[str, UsageCounts]
    weeks: Mapping[str, UsageCounts]
    forms: Mapping[str, UsageCounts]
    prompts: tuple[SuggestedPrompt, ...]

    def proposals(self) -> Iterator[tuple[str, str]]:
        """Yield the skills that were suggested often and never used, with a proposal."""
        for name, counts in self.skills.items():
            if counts.unused >= OFTEN and not counts.used:
                yield (
                    name,
                    f"suggested {counted(counts.unused, 'time')}, never used: check its "
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
    total_turns = 0
    for turn in turns:
        by_digest[prompt_digest(turn.text)].append(turn)
        total_turns += 1
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
        taken = _take_nearest(by_digest.get(digest, []), _seconds(entry.get("time")))
        if taken is not None:
            matched.append(_matched(entry, taken, suggests))
    return UsageReport(
        logged=logged,
        matched=len(matched),
        unlogged=total_turns - len(matched),
        shadow=shadow,
        tokens=round(chars / CHARS_PER_TOKEN),
        total=_counts(matched),
        skills=_by_skill(matched),
        weeks=_by(matched, lambda prompt: prompt.week),
        forms=_by([prompt for prompt in matched if prompt.form], lambda prompt: prompt.form),
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


def _matched(entry: Mapping[str, Any], turn: Turn, suggests: bool) -> SuggestedPrompt:
    names = entry.get("names") or entry.get("ids")
    listed = tuple(filter(_is_text, names)) if isinstance(names, list) else ()
    form = entry.get("form")
    return SuggestedPrompt(
        week=_week(entry.get("time")),
        form=(form if isinstance(form, str) else "pick") if suggests else "",
        shadow=entry.get("outcome") == "shadow",
        suggested=listed if suggests else (),
        opened=turn.opened,
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


def _counts(prompts: Iterable[SuggestedPrompt]) -> UsageCounts:
    listed = list(prompts)
    return UsageCounts(
        used=sum(len(prompt.used) for prompt in listed),
        unused=sum(len(prompt.unused) for prompt in listed),
        unprompted=sum(len(prompt.unprompted) for prompt in listed),
        neither=sum(prompt.neither for prompt in listed),
    )


def _by(prompts: list[SuggestedPrompt], key: Any) -> dict[str, UsageCounts]:
    groups: dict[str, list[SuggestedPrompt]] = defaultdict(list)
    for prompt in prompts:
        groups[key(prompt)].append(prompt)
    return {name: _counts(groups[name]) for name in sorted(groups)}


def _by_skill(prompts: list[SuggestedPrompt]) -> dict[str, UsageCounts]:
    rows: list[tuple[str, int]] = []
    for prompt in prompts:
        for column, names in enumerate((prompt.used, prompt.unused, prompt.unprompted)):
            rows += [(name, column) for name in names]
    shown: dict[str, str] = {}
    plugins: dict[str, set[str]] = defaultdict(set)
    for name, _ in rows:
        shown.setdefault(name.lower(), name)
        if ":" in name:
            plugins[bare(name)].add(name.lower())
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for name, column in rows:
        known = plugins[bare(name)]
        # A name without its plug-in means the skill of the only plug-in that has one of this name.
        key = next(iter(known)) if len(known) == 1 else name.lower()
        counts[key][column] += 1
    order = sorted(counts, key=lambda name: (-sum(counts[name]), name))
    return {
        shown[name]: UsageCounts(used=used, unused=unused, unprompted=unprompted)
        for name in order
        for used, unused, unprompted in (counts[name],)
    }


def _seconds(time: object) -> float | None:
    try:
        return datetime.fromisoformat(str(time).replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _week(time: object) -> str:
    try:
        year, week, _ = datetime.fromisoformat(str(time).replace("Z", "+00:00")).isocalendar()
    except ValueError:
        return "unknown"
    return f"{year}-W{week:02}"


def _is_text(value: object) -> bool:
    return isinstance(value, str)
