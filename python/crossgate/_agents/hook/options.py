"""The options of a prompt hook, and their defaults."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, replace
from typing import Any, Literal, NoReturn, get_args

Inject = Literal["name", "passage", "body"]

BUDGET_MS = 400.0
MIN_CONFIDENCE = 0.75
"""Minimum confidence of a mentioned skill; `eval/hook_bar.py` compares other values."""

MAX_SHORTLIST = 3
MIN_ANY_FITS = 0.7
"""Minimum probability that any skill fits for a shortlist; compared by `eval/hook_bar.py`."""

MAX_CHARS = 4_000
MOST_CHARS = 10_000
"""Maximum length of a context; agents write a longer context to a file instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookOptions:
    """The options of a hook.

    Attributes:
        inject: Content of the context: `name` is name and path, `passage` adds the best passage,
            `body` adds the whole text.
        limit: The maximum number of skills to inject.
        min_confidence: Minimum confidence of a mentioned skill, in [0, 1].
        max_shortlist: Maximum length of the shortlist that is offered if no skill is confident
            enough; 0 for none.
        min_any_fits: Minimum probability that any skill fits for a shortlist, in [0, 1].
        budget_ms: Milliseconds after which the cross-encoder is skipped.
        max_chars: Maximum length of the context, in characters.
        skills: Folders of skills in addition to those of the agent.
        deny: Skills that are never mentioned, by name.
        index: Path of an index to use instead of the agent's skills; empty for the skills.
        profile: Path of a profile; empty for the bundled profile.
        policy: Path of a policy; may be empty.
        log: Path of the log of decisions; empty for the value of CROSSGATE_LOG, if set.
        shadow: Whether to decide and log, but never add a context.
    """

    inject: Inject = "name"
    limit: int = 1
    min_confidence: float = MIN_CONFIDENCE
    max_shortlist: int = MAX_SHORTLIST
    min_any_fits: float = MIN_ANY_FITS
    budget_ms: float = BUDGET_MS
    max_chars: int = MAX_CHARS
    skills: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    index: str = ""
    profile: str = ""
    policy: str = ""
    log: str = ""
    shadow: bool = False


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a hook to a parser."""
    parser.add_argument(
        "--inject",
        choices=get_args(Inject),
        default="name",
        help="text to add for a skill: name and file (default); with the best passage; or with the "
        "whole text",
    )
    parser.add_argument(
        "--limit",
        type=_whole(1, 20),
        default=1,
        metavar="N",
        help="mention at most N skills (default: 1)",
    )
    parser.add_argument(
        "--min-confidence",
        type=_share,
        default=MIN_CONFIDENCE,
        metavar="C",
        help=f"minimum confidence of a mentioned skill, 0 to 1 (default: {MIN_CONFIDENCE:g}); 0 "
        "mentions every skill that `route` selects",
    )
    parser.add_argument(
        "--max-shortlist",
        type=_whole(0, 20),
        default=MAX_SHORTLIST,
        metavar="N",
        help="if no skill is confident enough, offer at most N that may fit; 0 offers none "
        f"(default: {MAX_SHORTLIST})",
    )
    parser.add_argument(
        "--min-any-fits",
        type=_share,
        default=MIN_ANY_FITS,
        metavar="P",
        help="minimum probability that any skill fits for such an offer, 0 to 1 "
        f"(default: {MIN_ANY_FITS:g})",
    )
    parser.add_argument(
        "--budget-ms",
        type=_milliseconds,
        default=BUDGET_MS,
        metavar="MS",
        help=f"after this many milliseconds, stage 1 decides alone (default: {BUDGET_MS:g})",
    )
    parser.add_argument(
        "--max-chars",
        type=_whole(200, MOST_CHARS),
        default=MAX_CHARS,
        metavar="N",
        help=f"add at most N characters, 200 to {MOST_CHARS:,} (default: {MAX_CHARS:,})",
    )
    parser.add_argument(
        "--skills",
        metavar="FOLDER",
        action="append",
        default=[],
        help="another folder of skills; may be repeated",
    )
    parser.add_argument(
        "--deny",
        metavar="NAME",
        action="append",
        default=[],
        help="never mention this skill; may be repeated",
    )
    parser.add_argument(
        "-i", "--index", metavar="FILE", default="", help="use this index, and do not update it"
    )
    parser.add_argument(
        "--profile",
        metavar="FILE",
        default="",
        help="calibration profile: the fitted thresholds",
    )
    parser.add_argument(
        "--policy", metavar="FILE", default="", help="policy: the settings that you choose"
    )
    parser.add_argument(
        "--log",
        metavar="FILE",
        default="",
        help="append the decisions to this file, without texts (default: CROSSGATE_LOG)",
    )
    parser.add_argument(
        "--shadow",
        action="store_true",
        help="decide and log, but add no context; `crossgate usage` reports the results",
    )


def options_of(values: argparse.Namespace) -> HookOptions:
    """Return the parsed options."""
    return HookOptions(
        inject=values.inject,
        limit=values.limit,
        min_confidence=values.min_confidence,
        max_shortlist=values.max_shortlist,
        min_any_fits=values.min_any_fits,
        budget_ms=values.budget_ms,
        max_chars=values.max_chars,
        skills=tuple(values.skills),
        deny=tuple(values.deny),
        index=values.index,
        profile=values.profile,
        policy=values.policy,
        log=values.log,
        shadow=values.shadow,
    )


def anchored(options: HookOptions) -> HookOptions:
    """Return options with absolute paths, which hold in every working folder."""

    def absolute(path: str) -> str:
        return os.path.abspath(os.path.expanduser(path)) if path else ""

    return replace(
        options,
        skills=tuple(absolute(folder) for folder in options.skills),
        index=absolute(options.index),
        profile=absolute(options.profile),
        policy=absolute(options.policy),
        log=absolute(options.log),
    )


class BadHookOptions(Exception):
    """Raised for invalid options of a hook."""


class _Parser(argparse.ArgumentParser):
    """Raises an exception where argparse would exit with 2, on which an agent erases the prompt."""

    def error(self, message: str) -> NoReturn:
        raise BadHookOptions(message)


def parse(name: str, arguments: list[str]) -> HookOptions:
    """Read the arguments of `crossgate hook NAME`.

    Raises:
        BadHookOptions: If they cannot be read.
    """
    parser = _Parser(prog=f"crossgate hook {name}", description=describe(name))
    add_options(parser)
    return options_of(parser.parse_args(arguments))


def describe(name: str) -> str:
    """Return the description for the help of `crossgate hook NAME`."""
    return (
        f"The prompt hook of {name}: reads JSON on stdin, prints the context to add to the prompt, "
        "and always exits with 0. `crossgate hook install` sets it up."
    )


def as_arguments(options: HookOptions) -> list[str]:
    """Return the arguments for the options that differ from the defaults."""
    default = HookOptions()
    arguments: list[str] = []
    for name, value in (
        ("--inject", options.inject),
        ("--limit", options.limit),
        ("--min-confidence", options.min_confidence),
        ("--max-shortlist", options.max_shortlist),
        ("--min-any-fits", options.min_any_fits),
        ("--budget-ms", options.budget_ms),
        ("--max-chars", options.max_chars),
        ("--index", options.index),
        ("--profile", options.profile),
        ("--policy", options.policy),
        ("--log", options.log),
    ):
        if value != getattr(default, name[2:].replace("-", "_")):
            arguments += [name, f"{value:g}" if isinstance(value, float) else str(value)]
    arguments += ["--shadow"] * options.shadow
    for name, values in (("--skills", options.skills), ("--deny", options.deny)):
        for value in values:
            arguments += [name, value]
    return arguments


def _whole(least: int, most: int) -> Any:
    def read(text: str) -> int:
        value = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else -1
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(
                f"{text[:40]!r} is not a whole number from {least} to {most:,}"
            )
        return value

    return read


def _number(text: str, least: float, most: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(
            f"{text[:40]!r} is not a number from {least:g} to {most:g}"
        )
    return value


def _share(text: str) -> float:
    return _number(text, 0.0, 1.0)


def _milliseconds(text: str) -> float:
    return _number(text, 0.0, 60_000.0)
