"""Finds problems that hurt routing in a library of skills, tools or chunks.

    report = lint(Index.open("skills.cgx"))
    for finding in report.findings:
        print(finding.code, finding.id, finding.message)

`crossgate lint FOLDER` does the same for files, with line numbers.
"""

from crossgate._lint.checking import LintReport, lint
from crossgate._lint.library import Evidence, Finding
from crossgate._sources.reading import Problem, SourceLocation

__all__ = ["Evidence", "Finding", "LintReport", "Problem", "SourceLocation", "lint"]
