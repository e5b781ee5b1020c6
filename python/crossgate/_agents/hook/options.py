"""The options of a prompt hook, and their defaults."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, NoReturn, get_args

from crossgate._support.arguments import number, whole
from crossgate._values.profile_files import BUNDLED_PROFILES

Inject = Literal["name", "passage", "body"]

MIN_CONFIDENCE = 0.6
"""Minimum confidence of a mentioned skill; `eval/real_sessions.py` measures its effect."""

MAX_SHORTLIST = 5
MIN_ANY_FITS = 0.6
"""Minimum probability that a shortlist holds a skill that fits; measured by the same script."""

MOST_CHARS = 10_000
"""Maximum length of a context; agents write a longer context to a file instead."""


def _option(
    default: Any, help: str, *, flags: tuple[str, ...] = (), is_path: bool = False, **parsing: Any
) -> Any:
    """Return a field of `HookOptions` with the metadata to parse and print it.

    Args:
        default: The default value. A tuple takes the option repeatedly, and False takes no value.
        help: The help of the option, without its default.
        flags: Short names of the option.
        is_path: Whether the value is a path, or each of the values.
        parsing: Further arguments of `argparse.ArgumentParser.add_argument`.
    """
    if isinstance(default, bool):
        parsing["action"] = "store_true"
    elif isinstance(default, tuple):
        parsing["action"] = "append"
        help += "; may be repeated"
    elif isinstance(default, int | float):
        shown = f"{default:,}" if isinstance(default, int) else f"{default:g}"
        help += f" (default: {shown})"
    metadata = {"flags": flags, "is_path": is_path, "parsing": {**parsing, "help": help}}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class HookOptions:
    """The options of a hook. The help of an option describes its field; empty paths name none."""

    inject: Inject = _option(  # noqa: RUF009, it is a field
        "name",
        "text to add for a skill: name and file (default); with the best passage; or with the "
        "whole text",
        choices=get_args(Inject),
    )
    limit: int = _option(1, "mention at most N skills", type=whole(1, 20), metavar="N")
    min_confidence: float = _option(
        MIN_CONFIDENCE,
        "minimum confidence of a mentioned skill, 0 to 1, if it is above that of the profile",
        type=number(0, 1),
        metavar="C",
    )
    max_shortlist: int = _option(
        MAX_SHORTLIST,
        "if no skill reaches --min-confidence, offer at most N that may fit of those that the "
        "agent does not list, such as parked ones; 0 offers none",
        type=whole(0, 20),
        metavar="N",
    )
    min_any_fits: float = _option(
        MIN_ANY_FITS,
        "minimum probability that such an offer holds one that fits, 0 to 1",
        type=number(0, 1),
        metavar="P",
    )
    budget_ms: float = _option(
        400.0,
        "after this many milliseconds, stage 1 decides alone",
        type=number(0, 60_000),
        metavar="MS",
    )
    max_chars: int = _option(
        4_000,
        f"add at most N characters, 200 to {MOST_CHARS:,}",
        type=whole(200, MOST_CHARS),
        metavar="N",
    )
    index: str = _option(
        "", "use this index, and do not update it", flags=("-i",), is_path=True, metavar="FILE"
    )
    profile: str = _option(
        "",
        "calibration profile, or the name of a bundled one (default: the one beside the index, or "
        "`session`)",
        is_path=True,
        metavar="FILE",
    )
    policy: str = _option("", "policy: the settings that you choose", is_path=True, metavar="FILE")
    log: str = _option(
        "",
        "append the decisions to this file, without texts (default: CROSSGATE_LOG)",
        is_path=True,
        metavar="FILE",
    )
    shadow: bool = _option(
        False, "decide and log, but add no context; `crossgate usage` reports the results"
    )
    skills: tuple[str, ...] = _option(
        (), "another folder of skills", is_path=True, metavar="FOLDER"
    )
    deny: tuple[str, ...] = _option((), "never mention this skill", metavar="NAME")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a hook to a parser."""
    for option in fields(HookOptions):
        # argparse appends to the default, which must not be the one of the class.
        default = [] if isinstance(option.default, tuple) else option.default
        parser.add_argument(
            *option.metadata["flags"],
            _flag(option.name),
            default=default,
            **option.metadata["parsing"],
        )


def options_of(values: argparse.Namespace) -> HookOptions:
    """Return the parsed options."""
    parsed: dict[str, Any] = {}
    for option in fields(HookOptions):
        value = getattr(values, option.name)
        parsed[option.name] = tuple(value) if isinstance(value, list) else value
    return HookOptions(**parsed)


def anchored(options: HookOptions) -> HookOptions:
    """Return options with absolute paths, which hold in every working folder."""

    def absolute(path: Any) -> Any:
        if isinstance(path, tuple):
            return tuple(map(absolute, path))
        return os.path.abspath(os.path.expanduser(path)) if path else path

    paths = [option.name for option in fields(HookOptions) if option.metadata["is_path"]]
    if options.profile in BUNDLED_PROFILES:
        paths.remove("profile")
    return replace(options, **{name: absolute(getattr(options, name)) for name in paths})


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
    arguments: list[str] = []
    for option in fields(HookOptions):
        flag, value = _flag(option.name), getattr(options, option.name)
        if value == option.default:
            continue
        if isinstance(value, bool):
            arguments.append(flag)
            continue
        for one in value if isinstance(value, tuple) else (value,):
            arguments += [flag, f"{one:g}" if isinstance(one, float) else str(one)]
    return arguments
