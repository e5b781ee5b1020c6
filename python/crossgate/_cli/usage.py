"""`crossgate usage`: how often an agent used the skills that the prompt hook suggested."""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossgate._cli import DONE, NOTHING_RELEVANT
from crossgate._cli.output import json_option, plain, say, show, show_json
from crossgate._support.errors import SourceError
from crossgate._support.sanitize import fit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from crossgate._agents.adoption import SuggestedPrompt, UsageCounts, UsageReport
    from crossgate._sources.transcripts import Turn

_KINDS = ("used", "unused", "unprompted", "neither")
_PROMPT_WIDTH = 100


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.set_defaults(run=run)
    json_option(parser)
    parser.add_argument(
        "--transcripts",
        metavar="FOLDER",
        help="transcripts of Claude Code (default: projects in ~/.claude or CLAUDE_CONFIG_DIR)",
    )
    parser.add_argument(
        "--prompts",
        choices=_KINDS,
        help="list the prompts behind a figure; their texts come from the transcripts",
    )
    parser.add_argument("--skill", metavar="NAME", help="list only prompts of this skill")
    parser.add_argument("--week", metavar="WEEK", help="list only prompts of this week")
    parser.add_argument(
        "--form", choices=("pick", "shortlist"), help="list only prompts with this form"
    )
    parser.add_argument("--html", metavar="FILE", help="also write the figures as an HTML page")


def run(options: argparse.Namespace) -> int:
    """Count and print."""
    from crossgate._agents.adoption import measure_usage
    from crossgate._agents.hook.session_state import read_hook_log
    from crossgate._agents.hook.skill_library import hook_folder

    entries = [entry for entry in read_hook_log(hook_folder()) if "prompt" in entry]
    report = measure_usage(entries, read_all_turns(options.transcripts))
    if options.html:
        _write_page(options.html, report)
    listed = _listed(report, options) if options.prompts else None
    if options.json:
        show_json(_values(report, listed))
    elif not report.logged:
        say("the hook has logged no prompt yet: `crossgate hook install --shadow` starts a trial")
    else:
        show("\n".join(_lines(report, listed)))
    return DONE if report.logged else NOTHING_RELEVANT


def read_all_turns(named: str | None) -> Iterator[Turn]:
    """Yield the prompts of all transcripts in a named folder, or in that of Claude Code."""
    from crossgate._agents.hook.formats import AGENTS
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


def _write_page(path: str, report: UsageReport) -> None:
    from crossgate._agents.adoption_page import usage_page
    from crossgate._support.files import atomic_write, cannot_write

    try:
        with atomic_write(Path(path)) as stream:
            stream.write(usage_page(report))
    except OSError as error:
        raise SourceError("unwritable", cannot_write(path, error)) from error


def _listed(report: UsageReport, options: argparse.Namespace) -> list[SuggestedPrompt]:
    from crossgate._agents.adoption import same_skill

    def is_listed(prompt: SuggestedPrompt) -> bool:
        if options.week not in (None, prompt.week) or options.form not in (None, prompt.form):
            return False
        if options.prompts == "neither":
            return prompt.neither
        names: tuple[str, ...] = getattr(prompt, options.prompts)
        return any(options.skill is None or same_skill(name, options.skill) for name in names)

    return list(filter(is_listed, report.prompts))


def _values(report: UsageReport, listed: list[SuggestedPrompt] | None) -> dict[str, Any]:
    from crossgate._agents.adoption import NOTES

    values = {
        **{name: getattr(report, name) for name in ("logged", "matched", "unlogged", "shadow")},
        "tokens": report.tokens,
        "total": asdict(report.total),
        "weeks": [{"week": week, **asdict(counts)} for week, counts in report.weeks.items()],
        "forms": [{"form": form, **asdict(counts)} for form, counts in report.forms.items()],
        "skills": [{"skill": name, **asdict(counts)} for name, counts in report.skills.items()],
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
                "opened": list(prompt.opened),
            }
            for prompt in listed
        ]
    return values


def _lines(report: UsageReport, listed: list[SuggestedPrompt] | None) -> Iterator[str]:
    from crossgate._agents.adoption import NOTES
    from crossgate._agents.adoption_page import summary

    yield summary(report)
    yield from _table("week", report.weeks)
    yield from _table("form", report.forms)
    yield from _table("skill", report.skills)
    yield ""
    yield from (f"{plain(name)}: {plain(text)}" for name, text in report.proposals())
    for prompt in listed or ():
        text = fit(plain(prompt.turn.text), _PROMPT_WIDTH)
        yield f"{prompt.turn.path}:{prompt.turn.line}: {text}"
        suggested = ", ".join(map(plain, prompt.suggested)) or "none"
        opened = ", ".join(map(plain, prompt.opened)) or "none"
        yield f"    suggested: {suggested}; opened: {opened}"
    yield from NOTES


def _table(title: str, rows: Mapping[str, UsageCounts]) -> Iterator[str]:
    if not rows:
        return
    width = max(len(title), *(len(fit(plain(name), 40)) for name in rows))
    yield ""
    yield f"{title:{width}}  used  not used  used without  neither"
    for name, row in rows.items():
        yield (
            f"{fit(plain(name), 40):{width}}  {row.used:4}  {row.unused:8}  {row.unprompted:12}  "
            f"{row.neither:7}"
        )
