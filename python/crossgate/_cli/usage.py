"""`crossgate usage`: how often an agent used the skills that the prompt hook suggested."""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from crossgate._cli import DONE, NOTHING_RELEVANT
from crossgate._cli.output import plain, say, show, show_json
from crossgate._support.errors import InputError, SourceError
from crossgate._support.sanitize import fit
from crossgate._support.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from crossgate._agents.learning.adoption import Counts, SuggestedPrompt, UsageReport
    from crossgate._sources.transcripts import Turn

_PROMPT_WIDTH = 100


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    transcripts_option(parser)
    parser.add_argument(
        "--prompts",
        choices=("used", "unused", "unprompted", "neither"),
        help="list the prompts behind a figure; their texts come from the transcripts",
    )
    parser.add_argument("--skill", metavar="NAME", help="list only prompts of this skill")
    parser.add_argument(
        "--what-if",
        metavar="SETTINGS",
        action="append",
        help="replay the last 100 prompts with these options of the hook, as in "
        "--what-if '--min-confidence 0.4', and with those in use; may be repeated",
    )


def transcripts_option(parser: argparse.ArgumentParser) -> None:
    """Add the option that `read_all_turns` takes."""
    parser.add_argument(
        "--transcripts",
        metavar="FOLDER",
        help="transcripts of Claude Code (default: projects in ~/.claude or CLAUDE_CONFIG_DIR)",
    )


def run(options: argparse.Namespace) -> int:
    """Count and print."""
    if options.what_if:
        return _what_if(options)
    from crossgate._agents.hook.session_state import read_hook_log
    from crossgate._agents.hook.skill_library import hook_folder
    from crossgate._agents.learning.adoption import measure_usage

    turns = list(read_all_turns(options.transcripts))
    # Transcripts do not hold the tasks of subagents as prompts.
    logged = read_hook_log(hook_folder())
    entries = [entry for entry in logged if "prompt" in entry and "task" not in entry]
    report = measure_usage(entries, turns)
    listed = _listed(report, options) if options.prompts else None
    if options.json:
        show_json(_values(report, listed))
    elif report.logged:
        show("\n".join(_lines(report, listed)))
    else:
        say("the hook has logged no prompt: `crossgate hook install --shadow` starts a trial")
    return DONE if report.logged else NOTHING_RELEVANT


def _what_if(options: argparse.Namespace) -> int:
    """Replay prompts with the options in use and with others."""
    import shlex

    from crossgate._agents.hook.agents import AGENTS
    from crossgate._agents.hook.install import calls_of, options_in
    from crossgate._agents.hook.options import BadHookOptions, parse
    from crossgate._agents.hook.skill_library import library_of
    from crossgate._agents.learning.what_if import replay, without_effect

    agent = AGENTS["claude"]
    try:
        settings = {"in use": options_in(next(iter(calls_of(agent).values()), []), agent)}
        for given in options.what_if:
            settings[given] = parse(agent.name, shlex.split(given))
    except (BadHookOptions, ValueError) as error:
        raise InputError("out_of_range", f"--what-if: {error}") from error
    turns = list(read_all_turns(options.transcripts))
    rows = {}
    for name, chosen in settings.items():
        library = library_of(agent, os.getcwd(), chosen.skills)
        rows[name] = asdict(replay(turns, agent, chosen, library))
        if note := without_effect(chosen, agent):
            say(note)
    if options.json:
        show_json({"what_if": [{"settings": name, **row} for name, row in rows.items()]})
    else:
        width = max(map(len, rows))
        show(f"{'':{width}}  prompts  shown  followed  needless  missed")
        for name, row in rows.items():
            numbers = (f"{row[each]:{len(each)}}" for each in row)
            show(f"{plain(name):{width}}  {'  '.join(numbers)}")
    return DONE if turns else NOTHING_RELEVANT


def read_all_turns(named: str | None) -> Iterator[Turn]:
    """Yield the prompts of all transcripts in a named folder, or in that of Claude Code."""
    from crossgate._agents.hook.agents import AGENTS
    from crossgate._sources.transcripts import read_turns, transcripts_below

    folder = named or str(AGENTS["claude"].folder / "projects")
    try:
        paths = transcripts_below(folder)
    except SourceError:
        if named:
            raise
        say(f"no transcripts in {folder}, so uses are unknown; name a folder with --transcripts")
        return
    for path in paths:
        try:
            yield from read_turns(path)
        except OSError as error:
            say(f"skipped {path}: {error.strerror}")


def _listed(report: UsageReport, options: argparse.Namespace) -> list[SuggestedPrompt]:
    from crossgate._agents.learning.adoption import same_skill

    return [
        prompt
        for prompt in report.prompts
        if any(
            kind == options.prompts and (not options.skill or same_skill(name, options.skill))
            for kind, name in prompt.rows()
        )
    ]


def _values(report: UsageReport, listed: list[SuggestedPrompt] | None) -> dict[str, Any]:
    from crossgate._agents.learning.adoption import NOTES

    values = {
        "logged": report.logged,
        "matched": len(report.prompts),
        "unlogged": report.unlogged,
        "shadow": report.shadow,
        "tokens": report.tokens,
        "total": report.total,
        "weeks": [{"week": week, **counts} for week, counts in report.weeks.items()],
        "forms": [{"form": form, **counts} for form, counts in report.forms.items()],
        "skills": [{"skill": name, **counts} for name, counts in report.skills.items()],
        "proposals": [{"skill": name, "text": text} for name, text in report.proposals()],
        "notes": list(NOTES),
    }
    if listed is not None:
        values["prompts"] = [
            {
                "file": os.fsencode(prompt.turn.path).decode("utf-8", "replace"),
                "line": prompt.turn.line,
                "text": prompt.turn.text,
                "shadow": prompt.shadow,
                "suggested": list(prompt.suggested),
                "opened": list(prompt.turn.opened),
            }
            for prompt in listed
        ]
    return values


def _lines(report: UsageReport, listed: list[SuggestedPrompt] | None) -> Iterator[str]:
    from crossgate._agents.learning.adoption import NOTES

    yield _summary(report)
    yield from _table("week", report.weeks)
    yield from _table("form", report.forms)
    yield from _table("skill", report.skills)
    yield ""
    yield from (f"{plain(name)}: {plain(text)}" for name, text in report.proposals())
    for prompt in listed or ():
        text = fit(plain(prompt.turn.text), _PROMPT_WIDTH)
        yield f"{prompt.turn.path}:{prompt.turn.line}: {text}"
        suggested = ", ".join(map(plain, prompt.suggested)) or "none"
        opened = ", ".join(map(plain, prompt.turn.opened)) or "none"
        yield f"    suggested: {suggested}; opened: {opened}"
    yield from NOTES


def _summary(report: UsageReport) -> str:
    """Return one sentence with the main figures."""
    total = report.total
    suggested = total["used"] + total["unused"]
    share = f" ({total['used'] / suggested:.0%})" if suggested else ""
    mode = f", {report.shadow} of them withheld in shadow mode" if report.shadow else ""
    return (
        f"{counted(report.logged, 'prompt')} in the hook's log, {len(report.prompts)} of them in "
        f"transcripts: {counted(suggested, 'suggestion')}{mode}, {total['used']} used{share}; "
        f"{counted(total['unprompted'], 'use')} without a suggestion; about "
        f"{counted(report.tokens, 'token')} of context"
    )


def _table(title: str, rows: Mapping[str, Counts]) -> Iterator[str]:
    if not rows:
        return
    width = max(len(title), *(len(fit(plain(name), 40)) for name in rows))
    yield ""
    yield f"{title:{width}}  used  not used  used without  neither"
    for name, row in rows.items():
        yield (
            f"{fit(plain(name), 40):{width}}  {row['used']:4}  {row['unused']:8}  "
            f"{row['unprompted']:12}  {row['neither']:7}"
        )
