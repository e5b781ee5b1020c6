"""What lint found, as frozen values."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

Severity = Literal["error", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
"""From the worst down."""

_CUT = 110


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a finding rests on.

    Attributes:
        file: Where it stands, as the user gave the path; None for a document of no file.
        line: 1-based line, or None where it is not known.
        text: The words themselves, cut where they are long.
    """

    file: str | None
    line: int | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something in a library that hurts routing.

    Attributes:
        code: Identifier for programs; `docs/lint.md` lists all.
        severity: `error`, `warning` or `info`.
        id: The document to change; empty where there is none, as for a file that was not read.
        others: Ids of the other documents that have a part in it.
        file: The document's file, as the user gave the path; None for a document of no file.
        line: 1-based line to look at, or None where it is not known.
        message: One line: what is wrong.
        evidence: What shows it.
        advice: One sentence: what to change.
        hurt: How much it hurts, in [0, 1]; comparable within one code only.
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
        values["evidence"] = [asdict(one) for one in self.evidence]
        values["hurt"] = round(self.hurt, 4)
        return values


def reaches(severity: Severity, level: Severity) -> bool:
    """Return whether a severity is as bad as a level, or worse."""
    return SEVERITIES.index(severity) <= SEVERITIES.index(level)


def cut(text: str, length: int = _CUT) -> str:
    """Return a text on one line and at most so long."""
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[: length - 1].rstrip()}…"
