"""Quotes and parses the command lines in an agent's settings."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Sequence

# One command of a line, up to an unquoted operator of the shell.
_COMMAND = re.compile(
    r"""(?: \\. | '[^']*' | "(?:\\.|[^"\\])*" | [^\\'"\n;&|<>()] )+""", re.DOTALL | re.VERBOSE
)
_PLAIN = re.compile(r"[\w@+=:,./-]+", re.ASCII)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_UNRESOLVED = re.compile(r"[$`*?]|^~|^%.+%")


def join(words: Sequence[str], *, windows: bool = os.name == "nt") -> str:
    """Return a command line that a shell reads as these words.

    Args:
        words: The program and its arguments.
        windows: Whether the line is for Windows, where cmd.exe does not support single quotes.
            Paths are in double quotes there, since some agents use Git's bash, which removes an
            unquoted backslash.
    """
    if not windows:
        return shlex.join(words)
    # The added space makes list2cmdline quote the word; it is removed again.
    return " ".join(
        word if _PLAIN.fullmatch(word) else '"' + subprocess.list2cmdline([f" {word}"])[2:]
        for word in words
    )


def split_command(line: str, agent: str, *, windows: bool = os.name == "nt") -> list[str]:
    """Return the words of the command in a line that calls an agent's hook.

    Assignments before the command are left out, and so is everything after an operator such as
    `|| true`. If no command calls the hook, the first command is returned.

    Args:
        line: A command line of the settings.
        agent: The agent's name.
        windows: Whether the line is for Windows.

    Raises:
        ValueError: If a quotation mark is not closed.
    """
    if windows:
        return [word.replace('"', "") for word in shlex.split(line, posix=False)]
    shlex.split(line)  # refuses open quotation marks
    commands = list(_commands(line))
    called = (words for words in commands if "hook" in words and agent in words)
    return next(called, commands[0] if commands else [])


def _commands(line: str) -> Iterator[list[str]]:
    for found in _COMMAND.finditer(line):
        text = found[0]
        if line[found.end() : found.end() + 1] in ("<", ">"):
            text = re.sub(r"(?<!\S)\d+$", "", text)  # the number of a redirected stream
        words = shlex.split(text)
        while words and _ASSIGNMENT.match(words[0]):
            del words[0]
        if words:
            yield words


def expanded(word: str) -> str:
    """Return a word with its variables and `~` replaced."""
    return os.path.expanduser(os.path.expandvars(word))


def program_of(words: Sequence[str]) -> str | None:
    """Return the program of a command, or None if it depends on the agent's environment."""
    program = expanded(words[0])
    return None if words[0] == "hook" or _UNRESOLVED.search(program) else program
