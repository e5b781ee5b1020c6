"""Measures on labelled prompts which documents take the prompts of another document."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from crossgate._core import Blend
from crossgate._lint.findings import Evidence, Finding, cut
from crossgate._lint.inputs import LintedLibrary
from crossgate._retrieval.document_index import Index
from crossgate._support.wording import share_of

FEWEST = 2
"""A document must take at least this many prompts of another one."""

TAKEN = 0.25
"""It must take at least this share of the other document's prompts."""

MOST = 0.5
"""With this share or more, the finding is an error."""

_EXAMPLES = 3


def confusions(
    library: LintedLibrary,
    index: Index,
    prompts: Mapping[str, Sequence[str]],
    blend: Blend,
) -> Iterator[Finding]:
    """Yield the pairs of which one document ranks first for prompts of the other.

    Args:
        library: The library.
        index: An index of the same documents.
        prompts: The ids of the documents that fit each prompt. Prompts that no document of the
            library fits are skipped.
        blend: The weights of stage 1.
    """
    asked = sorted(prompt for prompt, ids in prompts.items() if set(ids) & set(library.documents))
    vectors = index.load_embedder().embed(asked) if index.dimension and asked else None
    totals: Counter[str] = Counter()
    taken: dict[tuple[str, str], list[str]] = defaultdict(list)
    for number, prompt in enumerate(asked):
        vector = vectors[number] if vectors is not None else None
        found = index.search(prompt, vector, blend=blend, per_channel=_EXAMPLES).scored
        best = min(found, key=lambda scored: (-scored.blend, scored.id), default=None)
        fitting = [id for id in prompts[prompt] if id in library.documents]
        totals.update(fitting)
        if best is not None and best.id not in fitting:
            for id in fitting:
                taken[id, best.id].append(prompt)
    for (owner, winner), lost in sorted(taken.items()):
        share = len(lost) / totals[owner]
        if len(lost) >= FEWEST and share >= TAKEN:
            yield _finding(library, owner, winner, lost, totals[owner])


def _finding(
    library: LintedLibrary, owner: str, winner: str, lost: list[str], total: int
) -> Finding:
    share = len(lost) / total
    return Finding(
        code="confusion",
        severity="error" if share >= MOST else "warning",
        id=owner,
        others=(winner,),
        file=library.places.file(owner),
        line=library.places.line(library.documents[owner], "text", 0),
        message=f"{winner} ranks first for {share_of(len(lost), total, 'prompt')} of {owner}",
        evidence=tuple(
            Evidence(file=None, line=None, text=f'"{cut(prompt)}"') for prompt in lost[:_EXAMPLES]
        ),
        advice=(
            f"Say in {owner} what these prompts mention, and in {winner} that it is not for them."
        ),
        hurt=share,
    )
