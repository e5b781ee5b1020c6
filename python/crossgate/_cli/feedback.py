"""`crossgate feedback`: record whether the last decision of a log was right."""

from __future__ import annotations

import argparse
import os
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossgate._cli import DONE
from crossgate._cli.decision_output import LOG_VARIABLE, log_path
from crossgate._cli.output import json_option, show, show_json
from crossgate._cli.teach import teach, told
from crossgate._support.errors import CrossgateError, InputError, SourceError

if TYPE_CHECKING:
    from crossgate._telemetry.log import LoggedDecision

_TRANSCRIPTS, _PROMPTS = 20, 100
"""How many transcripts, and prompts at the end of each, may hold the last query."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.set_defaults(run=run)
    json_option(parser)
    parser.add_argument(
        "judgement", choices=["right", "wrong"], help="whether the last decision was right"
    )
    parser.add_argument(
        "ids",
        metavar="ID",
        nargs="*",
        help="id of a document that fits the query (default: the selected documents if right, none "
        "if wrong)",
    )
    parser.add_argument(
        "--skill",
        metavar="NAME",
        help="also teach the index that this skill fits the query",
    )
    parser.add_argument(
        "-i", "--index", metavar="FILE", help="index to teach (default: that of Claude Code here)"
    )
    parser.add_argument("--log", metavar="FILE", help=f"the log (default: {LOG_VARIABLE})")


def run(options: argparse.Namespace) -> int:
    """Record the documents that fit the last query, for `calibrate --from-log`."""
    from crossgate._telemetry.log import JsonLinesLog, LoggedDecision, read_log

    path = log_path(options)
    log = JsonLinesLog(path)
    last: LoggedDecision | None = None
    for line in read_log(path):
        if isinstance(line, LoggedDecision):
            last = line
    if last is None:
        log.check()
        raise SourceError(
            "no_decisions", f"{path} holds no decision: log one with `crossgate route --log {path}`"
        )
    learned = None
    if options.skill is not None:
        learned = _teach(options, last)
        options.ids = list(dict.fromkeys((*options.ids, learned["skill"])))
    fits = options.ids or (last.selected if options.judgement == "right" else ())
    log.used(last.decision, fits, judged=True)
    if options.json:
        taught = {} if learned is None else {"learned": learned}
        show_json({"log": path, "decision": last.decision, "used": list(fits), **taught})
    else:
        listed = ", ".join(fits) or "no document"
        query = f" for {last.query!r}" if last.query else ""
        show(f"{path}: recorded that {listed} fits{query}")
        if learned is not None:
            show("\n".join(told(learned)))
    return DONE


def _teach(options: argparse.Namespace, last: LoggedDecision) -> dict[str, Any]:
    """Teach an index that a skill fits the query of a decision."""
    index = Path(options.index) if options.index else _index_of_hook()
    prompt = last.query or _prompt_of(str(last.trace.get("query_sha256", "")))
    if not prompt:
        raise InputError(
            "no_text",
            "the log holds no texts, and no transcript of Claude Code has the prompt: use "
            f"`crossgate teach -i {index} PROMPT --skill {options.skill}`",
        )
    return teach(index, prompt, options.skill, fits=True)


def _index_of_hook() -> Path:
    from crossgate._agents.hook.formats import AGENTS
    from crossgate._agents.hook.skill_library import library_of

    return library_of(AGENTS["claude"], os.getcwd()).index


def _prompt_of(digest: str) -> str:
    """Return the prompt with a SHA-256 in the newest transcripts; empty if none has it."""
    from crossgate._agents.hook.formats import AGENTS
    from crossgate._sources.transcripts import last_requests, transcripts_below

    try:
        found = transcripts_below(AGENTS["claude"].folder / "projects")
        newest = sorted(found, key=os.path.getmtime, reverse=True)[:_TRANSCRIPTS]
    except (CrossgateError, OSError):
        return ""
    for path in newest:
        with suppress(OSError):
            for prompt in last_requests(path, most=_PROMPTS):
                text = prompt.encode("utf-8", "replace").decode()
                if sha256(text.encode()).hexdigest() == digest:
                    return text
    return ""
