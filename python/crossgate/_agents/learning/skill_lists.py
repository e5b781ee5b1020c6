"""The skills of an agent as the agent lists them: size, uses, and whether its budget shows them.

Agents put name and description of every skill into the context, up to a budget. The budgets are
from the agents' documentation: Claude Code 2.1.129 (1 % of the context window, 1,536 characters a
skill; descriptions of the least used skills are dropped first) and Codex of November 2026 (8,000
characters, 1,024 a skill; all descriptions are shortened). Settings of Claude Code may change its
budget.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeGuard

from crossgate._agents.hook.agents import Agent
from crossgate._agents.hook.settings import read
from crossgate._agents.hook.skill_library import (
    file_of_skill,
    hidden_skills,
    is_parked_folder,
    library_of,
    project_of,
)
from crossgate._agents.learning.adoption import CHARS_PER_TOKEN, bare
from crossgate._sources.reading import read_sources
from crossgate._sources.transcripts import Turn
from crossgate._support.errors import CrossgateError, SourceError
from crossgate._support.files import read_source
from crossgate._support.limits import SETTINGS_BYTES
from crossgate._values.results import Document

Shown = Literal["full", "shortened", "name only", "parked", "hidden"]

_ENTRY_CHARS = 4
"""Characters of an entry in the list besides name and description."""


@dataclass(frozen=True, slots=True)
class ListBudget:
    """The budget of an agent's list of skills.

    Attributes:
        chars: Maximum length of the list in characters.
        description_chars: Maximum length of a description in characters.
        drops: Whether whole descriptions are dropped; otherwise all are shortened.
        checked: The version of the agent whose documentation says so.
    """

    chars: int
    description_chars: int
    drops: bool
    checked: str


BUDGETS = {
    "claude": ListBudget(8_000, 1_536, True, "Claude Code 2.1.129"),  # 1 % of 200,000 tokens
    "codex": ListBudget(8_000, 1_024, False, "Codex of November 2026"),
}

_WINDOW_CHARS = 800_000


def budget_of(agent: Agent, folder: str = "") -> ListBudget | None:
    """Return the budget of an agent in a working folder, with its settings; None if undocumented.

    Args:
        agent: The agent.
        folder: The working folder; empty for that of this process.
    """
    budget = BUDGETS.get(agent.name)
    if budget is None or agent.name != "claude":
        return budget
    project = project_of(agent, folder)
    paths = [agent.folder / agent.settings]
    if project is not None:
        paths += [project / name for name in (agent.project_settings, *agent.settings_files)]
    for path in paths:  # the last one takes precedence
        values = _settings(path)
        share = values.get("skillListingBudgetFraction")
        if _is_number(share) and 0 < share <= 1:
            budget = replace(budget, chars=round(share * _WINDOW_CHARS))
        longest = values.get("skillListingMaxDescChars")
        if _is_number(longest) and longest > 0:
            budget = replace(budget, description_chars=round(longest))
    chars = os.environ.get("SLASH_COMMAND_TOOL_CHAR_BUDGET", "")
    return replace(budget, chars=int(chars)) if re.fullmatch(r"[1-9]\d{0,8}", chars) else budget


def _settings(path: Path) -> Mapping[str, Any]:
    try:
        return read(path, read_source(path, SETTINGS_BYTES))
    except (OSError, CrossgateError):
        return {}


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedSkill:
    """A skill in an agent's list.

    Attributes:
        name: The name by which the agent knows the skill.
        path: Its SKILL.md.
        tokens: Estimated tokens of its entry in the list; 0 if it is parked or hidden.
        uses: Number of prompts after which the agent opened it.
        last_use: Time of the last of these prompts; may be empty.
        shown: Whether the budget shows the description; `hidden` if another skill has the name.
        loaded: The SKILL.md that the agent loads by this name.
    """

    name: str
    path: Path
    tokens: int
    uses: int
    last_use: str
    shown: Shown
    loaded: Path


def list_skills(agent: Agent, folder: str, turns: Iterable[Turn]) -> list[ListedSkill]:
    """Return the skills of an agent in a working folder, the least used first.

    Args:
        agent: The agent.
        folder: The working folder; empty for that of this process.
        turns: Prompts of transcripts, for the uses.
    """
    library = library_of(agent, folder)
    try:
        documents = read_sources(library.sources, kind="skills").documents
    except SourceError:  # no usable skill
        documents = ()
    names = [_name(document, library.namespaces) for document in documents]
    known = {name.lower() for name in names}
    by_bare = {bare(name): name.lower() for name in names}
    uses: dict[str, tuple[int, str]] = {}
    for turn in turns:
        # A name that is not listed as it is may lack its plug-in.
        opened = {
            name.lower() if name.lower() in known else by_bare.get(bare(name), "")
            for name in turn.opened
        }
        for name in opened:
            count, last = uses.get(name, (0, ""))
            uses[name] = count + 1, max(last, turn.time)
    budget = budget_of(agent, folder)
    hidden = hidden_skills(agent, library, documents)
    entries = [
        _entry(document, name, budget, uses, hidden.get(document.id))
        for document, name in zip(documents, names, strict=True)
    ]
    order = sorted(
        entries, key=lambda skill: (skill.uses, skill.last_use, -skill.tokens, skill.name)
    )
    return _with_budget(order, budget)


def _name(document: Document, namespaces: Mapping[str, str]) -> str:
    """Return the name by which the agent knows a skill."""
    plugin = namespaces.get(str(document.metadata["root"]))
    name = file_of_skill(document).parent.name
    return f"{plugin}:{name}" if plugin else name


def _entry(
    document: Document,
    name: str,
    budget: ListBudget | None,
    uses: Mapping[str, tuple[int, str]],
    hidden_by: str | None,
) -> ListedSkill:
    description = document.text[: budget.description_chars if budget else None]
    shown: Shown = "hidden" if hidden_by else "full"
    if is_parked_folder(str(document.metadata["root"])):
        shown = "parked"
    chars = len(name) + len(description) + _ENTRY_CHARS
    count, last = uses.get(name.lower(), (0, "")) if shown != "hidden" else (0, "")
    path = file_of_skill(document)
    return ListedSkill(
        name=name,
        path=path,
        tokens=-(-chars // CHARS_PER_TOKEN) if shown == "full" else 0,
        uses=count,
        last_use=last,
        shown=shown,
        loaded=Path(hidden_by) if hidden_by else path,
    )


def _with_budget(skills: list[ListedSkill], budget: ListBudget | None) -> list[ListedSkill]:
    """Return the skills with the effect of a budget on each; the least used come first."""
    if budget is None:
        return skills
    excess = total_tokens(skills) - budget.chars // CHARS_PER_TOKEN
    shown: dict[str, Shown] = {}
    for skill in skills:
        if excess <= 0:
            break
        if skill.shown == "full":
            shown[str(skill.path)] = "name only" if budget.drops else "shortened"
            if budget.drops:
                excess -= skill.tokens - -(-len(skill.name) // CHARS_PER_TOKEN)
    return [replace(skill, shown=shown.get(str(skill.path), skill.shown)) for skill in skills]


def total_tokens(skills: Iterable[ListedSkill]) -> int:
    """Return the estimated tokens of a list."""
    return sum(skill.tokens for skill in skills)
