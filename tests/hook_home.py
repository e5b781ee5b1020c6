"""A home folder with skills for tests, and the prompt hook, run as agents run it."""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CROSSGATE = Path(sysconfig.get_path("scripts")) / "crossgate"

SKILLS = {
    "csv-cleaner": "Clean up and repair messy CSV files: broken quoting, duplicate rows, mixed "
    "delimiters, stray white space and inconsistent dates.",
    "pdf-toolkit": "Merge, split, rotate and compress PDF files, fill in PDF forms and pull text "
    "or tables out of them.",
    "git-history": "Tidy up a git branch: squash, reorder and reword commits, rebase onto main and "
    "resolve the conflicts.",
    "translator": "Translate text and interface strings between languages, keeping placeholders.",
}
PDF = "merge these three PDF files into one and rotate the second"
GIT = "squash the last commits of this git branch and rebase it onto main"


@dataclass(frozen=True)
class Hooked:
    """The result of one run of the hook."""

    code: int
    out: bytes
    err: str

    @property
    def context(self) -> str:
        """The injected context, after checks of the JSON around it; may be empty."""
        assert self.code == 0, self.err
        if not self.out:
            return ""
        values = json.loads(self.out)
        assert list(values) == ["hookSpecificOutput"]
        inner = values["hookSpecificOutput"]
        assert list(inner) == ["hookEventName", "additionalContext"]
        assert inner["hookEventName"] in ("UserPromptSubmit", "BeforeAgent")
        context = inner["additionalContext"]
        assert isinstance(context, str)
        assert context
        return context


@dataclass(frozen=True)
class Home:
    """A user's home folder."""

    path: Path

    def environment(self, **variables: str) -> dict[str, str]:
        """Return the environment of the hook, without variables of the test run."""
        # With PYTHONPATH, so that processes import the same tree as the tests.
        names = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH")
        kept = {name: os.environ[name] for name in names if name in os.environ}
        return {
            **kept,
            "HOME": str(self.path),
            "CROSSGATE_CACHE": str(self.path / "cache"),
            "CLAUDE_PROJECT_DIR": str(self.path / "work"),
            "PYTHONWARNINGS": "error",
            # The environment of the tests may itself be in the folder of temporary files.
            "TMPDIR": str(self.path),
            **variables,
        }

    def skill(self, name: str, text: str, *, body: str = "Do it.", below: str = ".claude") -> Path:
        """Write a skill and return its file."""
        path = self.path / below / "skills" / name / "SKILL.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            f"---\nname: {name}\ndescription: {json.dumps(text)}\n---\n{body}\n", encoding="utf-8"
        )
        return path

    def call(self, prompt: object = PDF, **more: object) -> bytes:
        """Return the JSON that Claude Code passes to a UserPromptSubmit hook."""
        values = {
            "session_id": "",
            "transcript_path": str(self.path / "transcript.jsonl"),
            "cwd": str(self.path / "work"),
            "permission_mode": "default",
            "hook_event_name": "UserPromptSubmit",
            "prompt": prompt,
        }
        return json.dumps({**values, **more}).encode()

    def hook(
        self,
        data: bytes | None = None,
        *arguments: str,
        agent: str = "claude",
        variables: Mapping[str, str] | None = None,
        command: Sequence[str | Path] = (),
        **options: Any,
    ) -> Hooked:
        """Run the hook, or another command that runs it, in a process of its own.

        The skills here are for office work, so the hook decides by the profile for requests unless
        the arguments name another.
        """
        if "--profile" not in arguments:
            arguments = ("--profile", "default", *arguments)
        done = subprocess.run(
            command or [CROSSGATE, "hook", agent, *arguments],
            input=self.call() if data is None else data,
            capture_output=True,
            env=self.environment(**(variables or {})),
            cwd=self.path,
            timeout=60,
            check=False,
            **options,
        )
        return Hooked(done.returncode, done.stdout, done.stderr.decode())

    def run(
        self,
        *arguments: str | Path,
        folder: str = "work",
        prefix: Sequence[str] = (),
        without: Sequence[str] = (),
        **variables: str,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of crossgate in a folder, without some variables."""
        environment = self.environment(**variables)
        return subprocess.run(
            [*prefix, CROSSGATE, *arguments],
            capture_output=True,
            text=True,
            env={name: value for name, value in environment.items() if name not in without},
            cwd=self.path / folder,
            timeout=60,
            check=False,
        )

    @property
    def hooks(self) -> Path:
        """The folder of indexes, sessions and log."""
        return self.path / "cache" / "hook"

    @property
    def log(self) -> list[dict[str, Any]]:
        """The lines of the log."""
        path = self.hooks / "log.jsonl"
        text = path.read_text(encoding="ascii") if path.exists() else ""
        return [json.loads(line) for line in text.splitlines()]


def furnished(path: Path, skills: Mapping[str, str] = SKILLS) -> Home:
    """Return a home folder with skills in it."""
    home = Home(path)
    (path / "work" / ".git").mkdir(parents=True)
    for name, text in skills.items():
        home.skill(name, text)
    return home
