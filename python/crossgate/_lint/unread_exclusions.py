"""Finds exclusions in descriptions that the index does not recognise, so that their words count."""

from __future__ import annotations

from collections.abc import Iterator

from crossgate._lint.findings import Finding, cut
from crossgate._lint.inputs import LintedLibrary
from crossgate._lint.sentences import split_sentences
from crossgate._lint.trigger_conflicts import EXCLUDES


def unread_exclusions(library: LintedLibrary) -> Iterator[Finding]:
    """Yield the first exclusion of each document whose words still count in its favour.

    Exclusions are removed only from the description of a document with a body.
    """
    for document in library.documents.values():
        if not document.body:
            continue
        searched = " ".join(document.content.split())
        for start, end in split_sentences(document.text):
            exclusion = EXCLUDES.search(document.text, start, end)
            excluded = " ".join(document.text[exclusion.end() : end].split()) if exclusion else ""
            if excluded and excluded in searched:
                sentence = cut(document.text[start:end])
                evidence = library.places.at(document, "text", start, f'"{sentence}"')
                yield Finding(
                    code="unread_exclusion",
                    severity="info",
                    id=document.id,
                    others=(),
                    file=library.places.file(document.id),
                    line=evidence.line,
                    message=f"an exclusion of {document.id} is not recognised, so its words count",
                    evidence=(evidence,),
                    advice=(
                        "Say more about what it is for, and put the exclusion into a sentence of "
                        'its own, such as "Do not use for ...".'
                    ),
                    hurt=0.5,
                )
                break
