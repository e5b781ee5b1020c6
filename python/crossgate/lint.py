"""Finds problems that hurt routing in a library of skills, tools or chunks, with its own index.

    report = lint(Index.open("skills.cgx"))
    for finding in report.findings:
        print(finding.code, finding.id, finding.message)

`crossgate lint FOLDER` does the same for the files, and names their lines.
"""

from crossgate._lint.checking import Report, lint
from crossgate._lint.findings import Evidence, Finding
from crossgate._sources import Place, Problem

__all__ = ["Evidence", "Finding", "Place", "Problem", "Report", "lint"]
