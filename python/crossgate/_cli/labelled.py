"""Shared by `eval` and `calibrate`: reading labelled datasets and stored runs."""

from __future__ import annotations

import argparse
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossgate._cli.input import model_option
from crossgate._cli.output import say_skipped
from crossgate._reranking.providers import PROVIDERS
from crossgate._support.arguments import whole
from crossgate._support.errors import InputError, SourceError
from crossgate._support.files import atomic_write, cannot_write, try_writing

if TYPE_CHECKING:
    from crossgate._reranking.contract import Reranker
    from crossgate.evaluation import Dataset, Mode, Run


DATASETS = (
    "documents followed by files of labels, such as skills/ labels.jsonl; or a BEIR folder, a "
    ".jsonl file of queries with a retriever's candidates, or a run that eval --runs stored, which "
    "needs no model"
)
"""Help text of the arguments of both commands."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The data to measure: a dataset or a stored run, or documents with files of labels.

    Attributes:
        path: Dataset, stored run, or documents.
        labels: Files of labels for the documents.
        unread: File after the documents that holds no labels; None for none.
    """

    path: Path
    labels: tuple[Path, ...] = ()
    unread: Path | None = None


def subjects_of(paths: Sequence[str]) -> list[Subject]:
    """Return a subject for each path of documents, with the files of labels that follow it.

    Raises:
        SourceError: `source_missing`, or `no_documents` if labels come first.
    """
    from crossgate._evaluation.collecting import is_candidates
    from crossgate.evaluation import is_labels

    subjects: list[Subject] = []
    for path in map(Path, paths):
        if not os.path.exists(path):  # false for a name that is too long, too
            raise SourceError("source_missing", f"no such file or folder: {path}")
        if is_candidates(path) or not is_labels(path):
            if subjects and path.is_file():
                subjects[-1] = replace(subjects[-1], unread=path)
            subjects.append(Subject(path))
        elif subjects:
            subjects[-1] = replace(subjects[-1], labels=(*subjects[-1].labels, path))
        else:
            message = (
                f"{path} holds labels alone: name the documents before it, as in skills/ {path}"
            )
            raise SourceError("no_documents", message)
    return subjects


def labelled_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose the queries to measure, and the models."""
    parser.add_argument(
        "--split", help="split to use (default: test, or else dev, or else the only one)"
    )
    parser.add_argument(
        "--limit", type=int, metavar="N", help="use a sample of N queries per dataset"
    )
    parser.add_argument(
        "--seed",
        type=whole(0),
        default=0,
        help="seed of samples, halves and intervals (default: 0)",
    )
    parser.add_argument("--strict", action="store_true", help="stop at a malformed row")
    parser.add_argument(
        "--unnamed", action="store_true", help="leave out queries that name the matching document"
    )
    parser.add_argument(
        "--no-context",
        action="store_true",
        help="ignore the project and the conversation that queries come from",
    )
    parser.add_argument(
        "--background",
        action="store_true",
        help="add the shipped everyday prompts, which nothing should fit",
    )
    parser.add_argument(
        "--from-transcripts",
        metavar="FOLDER",
        help="label the prompts of Claude Code's transcripts, such as those in "
        "~/.claude/projects, by the skills that were opened for them",
    )
    parser.add_argument(
        "--runs",
        metavar="FOLDER",
        help="folder to keep the stored runs in; datasets of one name get a number",
    )
    model_option(parser, "--embedder", "name, folder, or none")
    parser.add_argument(
        "--reranker",
        metavar="MODEL",
        default="default",
        help=f"name or folder, or {', '.join(PROVIDERS)} or decision: these need a key, and "
        "receive queries and candidates",
    )


def dump(values: dict[str, Any]) -> str:
    """Return indented JSON, with each list of numbers on one line."""
    text = json.dumps(values, allow_nan=False, indent=1)
    # A JSON string contains no line break.
    return re.sub(
        r"\[\n[^\[\]{}\"]*?\n\s*\]", lambda numbers: re.sub(r"\s*\n\s*", " ", numbers[0]), text
    )


def dataset_of(subject: Subject, options: argparse.Namespace) -> Dataset:
    """Read labelled queries with their documents, and name the rows that cannot be used."""
    from crossgate._evaluation.labels import sample
    from crossgate.evaluation import read_dataset, read_labels, with_background

    path, strict = subject.path, options.strict
    bare = not os.path.exists(path / "queries.jsonl")
    if subject.labels or options.from_transcripts or (options.background and bare):
        dataset = read_labels(
            path,
            subject.labels,
            transcripts=options.from_transcripts,
            split=options.split,
            background=options.background,
            strict=strict,
        )
    elif bare and not os.path.exists(path / "corpus.jsonl"):
        message = (
            f"{path} holds no labels: name a file of labels after it, or add --background or "
            "--from-transcripts"
            if subject.unread is None
            else f"{subject.unread} holds no labels: each line needs a query and the ids of the "
            'documents that fit, such as {"query": "...", "relevant": ["..."]}'
        )
        raise SourceError("empty_split", message)
    else:
        dataset = read_dataset(path, split=options.split, strict=strict)
        if options.background:
            dataset = with_background(dataset)
    if options.no_context:
        queries = tuple(replace(query, context=None) for query in dataset.queries)
        dataset = replace(dataset, queries=queries)
    if options.limit is not None:
        dataset = sample(dataset, options.limit, seed=options.seed)
    say_skipped(dataset.problems, dataset.name)
    return dataset


def run_of(
    subject: Subject,
    options: argparse.Namespace,
    modes: Sequence[Mode],
    *,
    written: set[Path],
    **measuring: Any,
) -> Run:
    """Read a stored run, or measure a dataset; with --unnamed the easiest queries are left out.

    The runs that the command has `written` so far get the new one. `measuring` are arguments of
    `measure`.
    """
    from crossgate._evaluation.collecting import is_candidates
    from crossgate.evaluation import is_run, measure, read_run

    if is_run(subject.path):
        refuse(
            options,
            f"chooses the queries that are measured, and {subject.path} is a stored run: measure "
            "them with `crossgate eval DOCUMENTS LABELS` and the option, and with --runs FOLDER",
            "background",
            "from_transcripts",
            "limit",
            "split",
        )
        run = read_run(subject.path)
    elif is_candidates(subject.path):
        run = _run_of_candidates(subject.path, options, written)
    else:
        dataset = dataset_of(subject, options)
        with runs_folder(options.runs) as folder:
            output = _unwritten(folder, f"{dataset.name}-{dataset.split}", written)
            measure(
                dataset,
                output,
                modes=modes,
                profile=options.profile,
                embedder=options.embedder,
                reranker=_reranker(options.reranker),
                seed=options.seed,
                **measuring,
            )
            run = read_run(output)
    if not options.unnamed:
        return run
    queries = tuple(query for query in run.queries if not query.mentions_name)
    if not queries:
        message = f"every query of {run.header.dataset} names its document: drop --unnamed"
        raise InputError("out_of_range", message)
    return replace(run, queries=queries)


def _reranker(name: str) -> Reranker | str:
    """Return the reranker of a provider, or the name or folder of a model as it is.

    Raises:
        InputError: `out_of_range` if the environment switches remote rerankers off.
        RerankerError: `no_key`.
    """
    from crossgate._reranking.generative import DecisionReranker
    from crossgate._reranking.http import SWITCH, switched_off
    from crossgate._reranking.remote import HOSTED

    kinds: dict[str, Callable[[], Reranker]] = {**HOSTED, "decision": DecisionReranker}
    if name not in kinds:
        return name
    if switched_off():
        raise InputError("out_of_range", f"{SWITCH} switches remote rerankers off: unset it")
    return kinds[name]()


def refuse(options: argparse.Namespace, reason: str, *names: str) -> None:
    """Refuse options that would have no effect."""
    for name in names:
        if getattr(options, name) not in (None, False):
            raise InputError("out_of_range", f"--{name.replace('_', '-')} {reason}")


def takes_background(subject: Subject) -> bool:
    """Return whether `--background` can add prompts: a stored run has no documents."""
    from crossgate._evaluation.collecting import is_candidates
    from crossgate.evaluation import is_run

    return not is_run(subject.path) and not is_candidates(subject.path)


def _run_of_candidates(path: Path, options: argparse.Namespace, written: set[Path]) -> Run:
    from crossgate._evaluation.collecting import RETRIEVER, measure_candidates
    from crossgate.evaluation import read_run

    refuse(
        options,
        f"needs documents to pick from, and {path} holds only candidates",
        "background",
        "from_transcripts",
        "split",
    )
    with runs_folder(options.runs) as folder:
        output = _unwritten(folder, f"{path.stem}-candidates", written)
        problems = measure_candidates(
            path,
            output,
            profile=options.profile,
            reranker=_reranker(options.reranker),
            embedder=RETRIEVER if options.embedder in ("default", None) else options.embedder,
            limit=options.limit,
            seed=options.seed,
            strict=options.strict,
        )
        say_skipped(problems, path.name)
        return read_run(output)


def _unwritten(folder: Path, name: str, written: set[Path]) -> Path:
    """Return the file of a run, with a number if this command has written a run of this name."""
    path, number = folder / f"{name}.run.jsonl", 1
    while path in written:
        number += 1
        path = folder / f"{name}-{number}.run.jsonl"
    written.add(path)
    return path


@contextmanager
def runs_folder(path: str | None) -> Iterator[Path]:
    """Yield the folder for stored runs: the given folder, or a temporary one.

    Raises:
        SourceError: `unwritable` if no temporary folder can be made.
    """
    if path is not None:
        yield Path(path)
        return
    try:
        temporary = tempfile.TemporaryDirectory(prefix="crossgate-")
    except OSError as error:
        raise SourceError(
            "unwritable",
            f"the runs need a temporary folder: {error.strerror}; set TMPDIR to a folder that can "
            "be written, or pass one with --runs",
        ) from error
    with temporary as folder:
        yield Path(folder)


def check_writable(path: Path) -> None:
    """Refuse a file that cannot be written before anything is measured."""
    with _writing(path):
        try_writing(path)


def write_page(path: Path, text: str) -> None:
    """Write a page or a chart as a whole."""
    with _writing(path), atomic_write(path) as stream:
        stream.write(text)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SourceError("unwritable", cannot_write(path, error)) from error
