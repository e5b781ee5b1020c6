"""What hurts routing in a library of skills, tools or chunks, found with the index itself.

    loaded = read_sources(["skills"])
    report = lint(Index.build(loaded.documents), loaded.documents, places=loaded.places)
    for finding in report.findings:
        print(finding.code, finding.id, finding.message)
"""

from crossgate._lint.checking import Report, lint
from crossgate._lint.findings import Evidence, Finding, Severity

__all__ = ["Evidence", "Finding", "Report", "Severity", "lint"]
