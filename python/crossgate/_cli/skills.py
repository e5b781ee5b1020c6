"""`crossgate skills`: list an agent's skills with their cost, and park rarely used ones."""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from crossgate._agents.hook.agents import AGENTS, Agent
from crossgate._cli import DONE, NOTHING_RELEVANT
from crossgate._cli.output import plain, say, show_result
from crossgate._cli.usage import read_all_turns, transcripts_option
from crossgate._support.errors import InputError, SourceError
from crossgate._support.sanitize import fit
from crossgate._support.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from crossgate._agents.learning.parking import ListBudget, ListedSkill

_NAME_WIDTH = 44


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.usage = "crossgate skills [OPTION...] [list | park NAME... | unpark NAME...]"
    parser.add_argument(
        "action",
        nargs="?",
        choices=("list", "park", "unpark"),
        default="list",
        help="list the skills (default), move some out of the always-loaded folder, or move them "
        "back",
    )
    parser.add_argument("names", metavar="NAME", nargs="*", help="the skills to move")
    parser.add_argument(
        "--agent", choices=list(AGENTS), help="which agent (default: all for list, else claude)"
    )
    transcripts_option(parser)
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="show the moves and the saved tokens only",
    )
    parser.add_argument("--tracked", action="store_true", help="also move skills that git tracks")


def run(options: argparse.Namespace) -> int:
    """List or move."""
    if options.action == "list":
        if options.names:
            raise InputError("out_of_range", "list takes no names: park or unpark them")
        return _list(options)
    if not options.names:
        raise InputError("out_of_range", f"name the skills to {options.action}")
    return _move(options)


def _list(options: argparse.Namespace) -> int:
    from crossgate._agents.learning.parking import BUDGETS, list_skills, total_tokens

    turns = list(read_all_turns(options.transcripts))
    agents = [AGENTS[options.agent]] if options.agent else _agents_here()
    lists = {agent.name: list_skills(agent, "", turns) for agent in agents}
    found = {name: skills for name, skills in lists.items() if skills}
    budgets = {name: BUDGETS[name] for name in found if name in BUDGETS}
    values = [
        {
            "agent": name,
            "tokens": total_tokens(skills),
            "budget_tokens": budgets[name].chars // 4 if name in budgets else None,
            "budget_checked": budgets[name].checked if name in budgets else None,
            "skills": [
                {
                    **asdict(skill),
                    "path": str(skill.path),
                    "loaded": str(skill.loaded),
                    "last_use": skill.last_use or None,
                }
                for skill in skills
            ],
        }
        for name, skills in found.items()
    ]
    lines = _lines(found, budgets) if found else ["no agent here has skills"]
    show_result(options.json, {"agents": values}, lines)
    return DONE if found else NOTHING_RELEVANT


def _agents_here() -> list[Agent]:
    """Return the agents with a folder of their own here, or all if there is none."""
    from crossgate._agents.hook.skill_library import project_of

    here = []
    for agent in AGENTS.values():
        project = project_of(agent, "")
        own = [agent.folder]
        if project is not None:
            own.append(project / Path(agent.project_settings).parts[0])
        if any(map(os.path.isdir, own)):
            here.append(agent)
    return here or list(AGENTS.values())


def _lines(lists: dict[str, list[ListedSkill]], budgets: dict[str, ListBudget]) -> Iterator[str]:
    from crossgate._agents.learning.parking import total_tokens

    for agent, skills in lists.items():
        budget = budgets.get(agent)
        limit = ", no documented budget"
        if budget:
            limit = f" of {budget.chars // 4:,} in its budget ({budget.checked})"
        total = counted(total_tokens(skills), "token")
        yield f"{agent}: {counted(len(skills), 'skill')}, about {total}{limit}"
        yield f"  {'skill':{_NAME_WIDTH}}  tokens  uses  last use    in the list"
        for skill in skills:
            is_hidden = skill.shown == "hidden"
            shown = f"hidden by {plain(str(skill.loaded))}" if is_hidden else skill.shown
            yield (
                f"  {fit(plain(skill.name), _NAME_WIDTH):{_NAME_WIDTH}}  {skill.tokens:6}  "
                f"{skill.uses:4}  {skill.last_use[:10] or '-':10}  {shown}"
            )
        yield ""
    yield "Uses are counted in transcripts of Claude Code; `crossgate skills park NAME` parks one."


def _move(options: argparse.Namespace) -> int:
    from crossgate._agents.learning.parking import move_skill, refuse_tracked, target_of

    agent = AGENTS[options.agent or "claude"]
    back = options.action == "unpark"
    chosen = [_find(agent, name, parked=back) for name in dict.fromkeys(options.names)]
    moves = []
    for skill in chosen:  # all are checked before the first is moved
        folder = skill.path.parent
        target = target_of(folder, back=back)
        if not options.tracked:
            refuse_tracked(folder)
        moves.append((folder, target))
    saved = sum(skill.tokens for skill in chosen)
    if not options.dry_run:
        for done, (folder, target) in enumerate(moves):
            try:
                move_skill(folder, target)
            except SourceError:
                for before, after in moves[:done]:
                    say(f"moved {before} to {after}")
                raise
    verb = "would move" if options.dry_run else "moved"
    lines = [f"{verb} {folder} to {target}" for folder, target in moves]
    if not back:
        lines.append(f"saves about {counted(saved, 'token')} of the list in every session")
    values = {
        "action": options.action,
        "dry_run": options.dry_run,
        "tokens_saved": saved,
        "moved": [{"from": str(folder), "to": str(target)} for folder, target in moves],
    }
    show_result(options.json, values, lines)
    return DONE


def _find(agent: Agent, name: str, *, parked: bool) -> ListedSkill:
    from crossgate._agents.hook.skill_library import own_folders
    from crossgate._agents.learning.adoption import bare
    from crossgate._agents.learning.parking import list_skills

    known = [skill for skill in list_skills(agent, "", ()) if (skill.shown == "parked") is parked]
    found = [skill for skill in known if name in (skill.name, skill.path.parent.name)]
    if not found:
        near = ", ".join(skill.name for skill in known if bare(name) in bare(skill.name)) or "none"
        state = "parked" if parked else "installed"
        raise InputError(
            "unknown_document", f"{agent.name} has no {state} skill {name!r}; similar: {near}"
        )
    own = {Path(folder) for folder in own_folders(agent)}
    movable = [skill for skill in found if skill.path.parent.parent in own]
    if not movable:
        raise InputError(
            "not_parkable",
            f"{found[0].path.parent} is not directly in a skills folder of {agent.name}: disable "
            "the plug-in or remove the link instead",
        )
    if len(movable) > 1:
        places = " and ".join(str(skill.path.parent) for skill in movable)
        raise InputError("not_parkable", f"{name!r} is in {places}: rename one of them")
    return movable[0]
