"""Sample skills for `demo` and `bench`."""

from __future__ import annotations

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
