"""The findings of the linter, as frozen values."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

Severity = Literal["error", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
"""From the worst to the mildest."""

_CUT = 110


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One piece of evidence for a finding.

    Attributes:
        file: The file, as the user gave the path; None for a document without a file.
        line: 1-based line, or None if it is not known.
        text: The quoted words, shortened if they are long.
    """

    file: str | None
    line: int | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A problem in a library that hurts routing.

    Attributes:
        code: Identifier for programs; `docs/lint.md` lists all.
        severity: `error`, `warning` or `info`.
        id: The document to change; empty for a file that was not read.
        others: Ids of other documents involved.
        file: The document's file, as the user gave the path; None for a document without a file.
        line: 1-based line, or None if it is not known.
        message: One line that describes the problem.
        evidence: Quotations that show the problem.
        advice: One sentence with a suggested change.
        hurt: Size of the problem, in [0, 1]; comparable only within the same code.
    """

    code: str
    severity: Severity
    id: str
    others: tuple[str, ...]
    file: str | None
    line: int | None
    message: str
    evidence: tuple[Evidence, ...]
    advice: str
    hurt: float

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as JSON values."""
        values = asdict(self)
        values["others"] = list(self.others)
        values["evidence"] = [asdict(evidence) for evidence in self.evidence]
        values["hurt"] = round(self.hurt, 4)
        return values


def reaches(severity: Severity, level: Severity) -> bool:
    """Return whether a severity is at least as bad as a level."""
    return SEVERITIES.index(severity) <= SEVERITIES.index(level)


def cut(text: str, length: int = _CUT) -> str:
    """Return a text on one line, cut to a length."""
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[: length - 1].rstrip()}…"
