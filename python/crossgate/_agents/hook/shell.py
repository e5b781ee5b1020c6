"""Command lines in an agent's settings: written for this system's shell, and read again."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Sequence

# One command of a line: all up to an operator of the shell that stands outside quotes.
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
        windows: Whether it is for Windows, where cmd.exe does not know single quotes. Paths are in
            double quotes there, since some agents call Git's bash, which takes a backslash away.
    """
    if not windows:
        return shlex.join(words)
    # list2cmdline puts quotes around a word with a space alone, which is taken out again.
    return " ".join(
        word if _PLAIN.fullmatch(word) else '"' + subprocess.list2cmdline([f" {word}"])[2:]
        for word in words
    )


def split(line: str, agent: str, *, windows: bool = os.name == "nt") -> list[str]:
    """Return the words of the command in a line that calls an agent's hook.

    Variables that are set for this command alone are left out, and so is what follows an operator,
    such as `|| true`. If no command is seen to call the hook, the first one is returned.

    Args:
        line: A command line, perhaps written by a person.
        agent: The agent's name.
        windows: Whether it is for Windows.

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
            text = re.sub(r"(?<!\S)\d+$", "", text)  # which stream is redirected
        words = shlex.split(text)
        while words and _ASSIGNMENT.match(words[0]):
            del words[0]
        if words:
            yield words


def expanded(word: str) -> str:
    """Return a word with its variables and `~` replaced."""
    return os.path.expanduser(os.path.expandvars(word))


def program_of(words: Sequence[str]) -> str | None:
    """Return the program of a command, or None if only the agent's shell can tell."""
    program = expanded(words[0])
    return None if words[0] == "hook" or _UNRESOLVED.search(program) else program
