"""`crossgate teach`: add a prompt that should, or should not, select a skill of an index."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crossgate._agents.hook.agents import AGENTS
from crossgate._cli import DONE
from crossgate._cli.input import model_option, text_of
from crossgate._cli.output import plain, show_result
from crossgate._support.progress import progress
from crossgate._support.sanitize import fit
from crossgate._support.wording import share_of

_SHOWN = 5


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("prompt", metavar="PROMPT", help="the prompt, or - to read it from stdin")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "-i", "--index", metavar="FILE", help="index to teach (default: those of the hooks here)"
    )
    which.add_argument("--agent", choices=list(AGENTS), help="teach the prompt hook of this agent")
    lesson = parser.add_mutually_exclusive_group(required=True)
    lesson.add_argument("--skill", metavar="NAME", help="the prompt should select this skill")
    lesson.add_argument(
        "--not", dest="wrong", metavar="NAME", help="the prompt should not select this skill"
    )
    lesson.add_argument(
        "--nothing", action="store_true", help="the prompt should select no skill at all"
    )
    text = "model of stage 2 by which known prompts are decided, or none"
    model_option(parser, "--reranker", text)


def run(options: argparse.Namespace) -> int:
    """Teach and print what changed."""
    from crossgate._agents.hook.install import calls_of
    from crossgate._agents.learning.lessons import hook_indexes, index_file, teach_all

    prompt = text_of("-").rstrip("\n") if options.prompt == "-" else options.prompt
    if options.index:
        targets = [index_file(Path(options.index))]
    else:
        with progress("embedding") as report:
            targets = hook_indexes([AGENTS[options.agent]] if options.agent else [], report)
    lessons = teach_all(
        targets,
        prompt,
        options.skill if options.skill is not None else options.wrong,
        fits=options.skill is not None,
        reranker=options.reranker,
    )
    lines = [line for lesson in lessons for line in lines_of_lesson(lesson)]
    if options.index and any(map(calls_of, AGENTS.values())):
        lines.append(
            "the prompt hooks use other indexes: `crossgate teach` without -i teaches them"
        )
    show_result(options.json, {**lessons[0], "lessons": lessons}, lines)
    return DONE


def lines_of_lesson(lesson: dict[str, Any]) -> Iterator[str]:
    """Yield the lines that say what an index has learned."""
    picked = ", ".join(lesson["selected"]) or "nothing"
    whose = f" (hook of {lesson['agent']})" if lesson["agent"] else ""
    yield f"{lesson['index']}{whose}: the prompt selects {picked} now"
    if lesson["agent"]:
        yield f"learned in {lesson['examples']}, for the hooks in other folders, too"
    if not lesson["new"]:
        yield "the index knew this example already"
    changed = lesson["changed"]
    share = share_of(len(changed), lesson["known"], "known prompt")
    yield f"decided differently now: {share}"
    for row in changed[:_SHOWN]:
        old, new = (", ".join(row[when]) or "nothing" for when in ("before", "after"))
        yield f"  {fit(plain(row['prompt']), 50)}: {old} -> {new}"
