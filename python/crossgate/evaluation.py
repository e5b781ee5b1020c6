"""Measuring whether the gate pays for itself on labelled data.

    dataset = read_dataset("eval/skills")
    measure(dataset, Path("skills.run.jsonl"))
    print(text_report(summarize(read_run(Path("skills.run.jsonl")))))

Runs are stored first: `measure` is the only function here that needs a model. All figures are
computed from stored runs, by the same cascade that routes.
"""

from crossgate._evaluation.data.datasets import Dataset, LabelledQuery, read_dataset
from crossgate._evaluation.data.label_files import is_labels, read_labels, with_background
from crossgate._evaluation.report.answers import headline
from crossgate._evaluation.report.compare import Comparison, compare, read_reports
from crossgate._evaluation.report.compare_page import html_comparison
from crossgate._evaluation.report.html import html_report
from crossgate._evaluation.report.summary import Report, summarize
from crossgate._evaluation.report.text import text_report
from crossgate._evaluation.runs.candidate_runs import is_candidates, measure_candidates
from crossgate._evaluation.runs.collecting import measure
from crossgate._evaluation.runs.stored_runs import (
    ALL_MODES,
    MODES,
    Mode,
    Run,
    StoredQuery,
    is_run,
    read_run,
)

__all__ = [
    "ALL_MODES",
    "MODES",
    "Comparison",
    "Dataset",
    "LabelledQuery",
    "Mode",
    "Report",
    "Run",
    "StoredQuery",
    "compare",
    "headline",
    "html_comparison",
    "html_report",
    "is_candidates",
    "is_labels",
    "is_run",
    "measure",
    "measure_candidates",
    "read_dataset",
    "read_labels",
    "read_reports",
    "read_run",
    "summarize",
    "text_report",
    "with_background",
]
