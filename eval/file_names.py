"""Measures the effect of the names of a skill's files on BM25.

    python eval/file_names.py WITH_BODIES/skill-triggers --split dev

WITH_BODIES is the output of eval/add_bodies.py. The names are those that a body mentions
(`references/forms.md`, `scripts/merge.py`): they are removed, or added once more as words. The
output is how often BM25 over head and body finds a right document first.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from dataclasses import replace

from crossgate import Document, Index
from crossgate.evaluation import read_dataset

NAME = re.compile(r"\b(?:references?|scripts|assets|templates|resources)/([\w./-]*\w)\.\w{1,5}\b")


def removed(body: str) -> str:
    """Return a body without the names of files."""
    return NAME.sub(" ", body)


def added(body: str) -> str:
    """Return a body with the words of the names of files once more before it."""
    names = dict.fromkeys(NAME.findall(body))
    return "\n".join([*(re.sub(r"[-_./]", " ", name) for name in names), body])


VARIANTS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "names taken out": removed,
    "names added once more": added,
}


def main() -> None:
    """Print one line per variant."""
    parser = argparse.ArgumentParser(description="Measures the names of files beside a skill.")
    parser.add_argument("dataset", help="BEIR folder whose documents have bodies")
    parser.add_argument("--split")
    options = parser.parse_args()
    dataset = read_dataset(options.dataset, split=options.split)
    queries = [query for query in dataset.queries if query.relevant]
    with_names = {document.id for document in dataset.documents if NAME.search(document.body)}
    print(f"{len(with_names)} of {len(dataset.documents)} bodies mention files; first is right:")
    before: list[bool] = []
    for name, change in VARIANTS.items():
        documents: list[Document] = [
            replace(document, body=change(document.body)) for document in dataset.documents
        ]
        index = Index.build(documents, embedder=None)
        right = []
        for query in queries:
            found = index.search(query.text, embed=False).scored
            best = min(found, key=lambda candidate: (-candidate.blend, candidate.id), default=None)
            right.append(best is not None and best.id in query.relevant)
        before = before or right
        won, lost = (
            sum(new == wanted and old != wanted for new, old in zip(right, before, strict=True))
            for wanted in (True, False)
        )
        share = sum(right) / len(right)
        print(f"  {name:<22} {share:.3f} of {len(right)}: {won} won, {lost} lost")


if __name__ == "__main__":
    main()
