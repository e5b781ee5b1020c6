"""Finds descriptions that are longer than agents show."""

from __future__ import annotations

from collections.abc import Iterator

from crossgate._lint.findings import Finding, cut
from crossgate._lint.inputs import LintedLibrary
from crossgate._support.wording import counted

LIMITS = {"Codex": 1_024, "Claude Code": 1_536}
"""Maximum number of characters of a description in an agent's list of skills, in November 2026.

1,024 is also the limit of the Agent Skills specification; Claude Code counts `when_to_use`, too."""

_SKILL = "SKILL.md"


def long_descriptions(library: LintedLibrary) -> Iterator[Finding]:
    """Yield the skills whose descriptions at least one agent cuts off."""
    for document in library.documents.values():
        file = library.places.file(document.id)
        length = len(document.text)
        cutting = [agent for agent, limit in LIMITS.items() if length > limit]
        if file is None or not file.endswith(_SKILL) or not cutting:
            continue
        limit = min(LIMITS[agent] for agent in cutting)
        evidence = library.places.at(
            document, "text", limit, f'cut off: "{cut(document.text[limit:])}"'
        )
        yield Finding(
            code="long_description",
            severity="warning" if len(cutting) == len(LIMITS) else "info",
            id=document.id,
            others=(),
            file=file,
            line=library.places.line(document, "text", 0),
            message=(
                f"the description of {document.id} has {counted(length, 'character')}; "
                + " and ".join(f"{agent} shows {LIMITS[agent]:,}" for agent in cutting)
            ),
            evidence=(evidence,),
            advice="Shorten the description, or put triggers and exclusions first.",
            hurt=min(1.0, length / (4 * limit)),
        )
