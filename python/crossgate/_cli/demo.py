"""`crossgate demo`: five prompts, a small skill library and no network."""

from __future__ import annotations

import argparse

from crossgate._cli import DONE
from crossgate._cli.decision_output import why
from crossgate._cli.output import paint, show_result
from crossgate._support.progress import progress
from crossgate._support.wording import counted, share_of
from crossgate._values.results import Document

_DESCRIPTIONS = {
    "csv-cleaner": "Clean, repair and normalise messy tabular files: CSV and TSV with broken "
    "quoting, mixed delimiters, duplicate rows, stray whitespace or inconsistent dates.",
    "spreadsheet": "Create and edit Excel workbooks: formulas, pivot tables, charts and "
    "formatting in .xlsx files.",
    "pdf-toolkit": "Merge, split, rotate and compress PDF files, fill in PDF forms and pull text "
    "or tables out of them.",
    "word-documents": "Write and edit Word documents (.docx) with headings, tracked changes, "
    "tables of contents and comments.",
    "slide-deck": "Build presentation slides (.pptx) from an outline, with speaker notes, layouts "
    "and a consistent theme.",
    "git-history": "Tidy up a git branch: squash, reorder and reword commits, split a commit, "
    "rebase onto main and resolve the conflicts.",
    "code-review": "Review a pull request or a diff for bugs, security problems, missing tests "
    "and unclear names, and comment line by line.",
    "deploy-staging": "Deploy the current branch to the staging cluster, run database migrations "
    "and smoke tests, and roll back if they fail.",
    "incident-report": "Write a post-mortem after an outage: timeline, root cause, impact and "
    "follow-up actions, without blame.",
    "sql-tuning": "Find out why a SQL query is slow: read the query plan, suggest indexes and "
    "rewrite joins for PostgreSQL and MySQL.",
    "image-resizer": "Resize, crop, convert and compress pictures (JPEG, PNG, WebP) in bulk.",
    "translator": "Translate text and interface strings between languages, keeping placeholders "
    "and tone.",
}

SKILLS = tuple(Document(id=name, title=name, text=text) for name, text in _DESCRIPTIONS.items())
"""Twelve skills in the style of real ones; two of them handle the same files."""


PROMPTS = (
    "merge these three PDF files into one",
    "the export from accounting is full of duplicate rows and half of the dates are wrong",
    "make these photos fit on the web page",
    "write up the incidents as slides",
    "what time is the meeting tomorrow",
)


def run(options: argparse.Namespace) -> int:
    """Route the prompts."""
    from crossgate._decision.router import Router
    from crossgate._retrieval.document_index import Index

    with progress("embedding skills") as report:
        router = Router(Index.build(SKILLS, progress=report))
    router.warm_up()
    results = [(prompt, router.route(prompt)) for prompt in PROMPTS]
    lines = [
        f"{counted(len(SKILLS), 'skill')}, {counted(len(results), 'prompt')}, no network. What "
        "fits?",
        "",
    ]
    for prompt, decision in results:
        names = ", ".join(paint(hit.id, "1") for hit in decision.selected)
        likely = " or ".join(hit.id for hit in decision.shortlist)
        answer = names or (likely and f"{likely}?")
        lines += [f'  "{prompt}"', *([f"    -> {answer}"] if answer else [])]
        lines += [f"    {why(decision)}", ""]
    skipped = sum(decision.stage == 1 for _, decision in results)
    lines += [
        f"The gate answered {share_of(skipped, len(results), 'prompt')} without the cross-encoder.",
        "",
        "Now with your own:",
        "  crossgate index ~/skills -o skills.cgx",
        '  crossgate route -i skills.cgx --explain "clean up this messy CSV"',
    ]
    values = [{"query": query, **result.to_dict()} for query, result in results]
    show_result(options.json, {"results": values}, lines)
    return DONE
