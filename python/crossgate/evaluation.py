"""Measuring whether the gate pays for itself on labelled data.

    dataset = read_dataset("eval/skills")
    measure(dataset, Path("skills.run.jsonl"))
    print(text_report(summarize(read_run(Path("skills.run.jsonl")))))

Runs are stored first: `measure` is the only function here that needs a model. All figures are
computed from stored runs, by the same cascade that routes.
"""

from crossgate._evaluation.collecting import is_candidates, measure, measure_candidates
from crossgate._evaluation.compare import Comparison, compare, read_reports
from crossgate._evaluation.label_files import (
    is_labels,
    read_dataset,
    read_labels,
    with_background,
)
from crossgate._evaluation.labels import Dataset, LabelledQuery
from crossgate._evaluation.page import html_report
from crossgate._evaluation.sections import headline
from crossgate._evaluation.stored_runs import (
    MODES,
    Mode,
    Run,
    StoredQuery,
    is_run,
    read_run,
)
from crossgate._evaluation.summary import Report, summarize
from crossgate._evaluation.text import text_report

__all__ = [
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
