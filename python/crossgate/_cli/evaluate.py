"""`crossgate eval`: measure labelled datasets, or compare two earlier measurements."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from crossgate._cli import DONE
from crossgate._cli.labelled import (
    DATASETS,
    Subject,
    check_writable,
    dump,
    labelled_options,
    run_of,
    subjects_of,
    write_page,
)
from crossgate._cli.output import say, show
from crossgate._support.arguments import number
from crossgate._support.errors import InputError
from crossgate._support.wording import counted, share_of

if TYPE_CHECKING:
    from crossgate.evaluation import Comparison, Mode, Report

FAILED = 1
"""Exit code if a limit is missed, or if in a comparison a metric fell beyond noise."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.usage = (
        "crossgate eval [OPTION...] DOCUMENTS LABELS... | DATASET... | "
        "compare BEFORE.json AFTER.json"
    )
    parser.add_argument(
        "dataset",
        metavar="DATASET",
        nargs="+",
        help=f"{DATASETS}; or `compare` and two outputs of --json: exits with 1 if a metric fell "
        "beyond noise",
    )
    parser.add_argument(
        "--modes",
        default="never,gated,always",
        help="modes to compare: never, gated, always (default: all)",
    )

    parser.add_argument("--html", metavar="FILE", help="also write the report as a page")

    parser.add_argument(
        "--min-recall",
        metavar="R",
        type=number(0, 1),
        help="exit with 1 if recall@1 of a dataset is lower, from 0 to 1",
    )
    parser.add_argument(
        "--max-false-positives",
        metavar="A",
        type=number(0, 1),
        help="exit with 1 if the false-positive rate of a dataset is higher, from 0 to 1",
    )
    parser.add_argument(
        "--profile",
        metavar="FILE",
        help="calibration profile, or the name of a bundled one: the fitted thresholds",
    )
    parser.add_argument("--policy", metavar="FILE", help="policy: the settings that you choose")
    labelled_options(parser)


def run(options: argparse.Namespace) -> int:
    """Measure datasets, or with `compare` as the first argument compare two reports."""
    if options.dataset[0] == "compare":
        return _compare(options)
    from crossgate._evaluation.compare import REPORTS_SCHEMA
    from crossgate.evaluation import html_report, text_report

    modes = _modes(options.modes)

    if options.html:
        check_writable(Path(options.html))
    subjects = subjects_of(options.dataset)
    written: set[Path] = set()
    reports = [_report(subject, options, modes, written) for subject in subjects]
    if options.html:
        write_page(Path(options.html), html_report(reports))
    if options.json:
        show(dump({"schema": REPORTS_SCHEMA, "reports": [report.to_dict() for report in reports]}))
    else:
        show("\n\n\n".join(map(text_report, reports)))
    missed = [message for report in reports for message in _missed_limits(report, options)]
    for message in missed:
        say(message)
    return FAILED if missed else DONE


def _missed_limits(report: Report, options: argparse.Namespace) -> Iterator[str]:
    """Yield a message for each limit that a report misses, in the gated mode if it has it.

    Raises:
        InputError: `out_of_range` if the dataset cannot show the figure.
    """
    from crossgate._evaluation.sections import reference

    mode = reference(report)
    for option, limit, metric, queries in (
        ("--min-recall", options.min_recall, "recall@1", "query with a match"),
        (
            "--max-false-positives",
            options.max_false_positives,
            "false_positive_rate",
            "no-match query",
        ),
    ):
        if limit is None:
            continue
        figure = report.quality[mode][metric]
        if figure is None:
            message = f"{option} {limit:g}: {report.header.dataset} has no {queries}"
            raise InputError("out_of_range", message)
        if figure.value < limit if option == "--min-recall" else figure.value > limit:
            what = "below" if option == "--min-recall" else "above"
            name = metric.replace("_", " ")
            yield (
                f"{report.header.dataset} {report.header.split}, {mode}: {name} is "
                f"{figure.value:.3f}, {what} {option} {limit:g}"
            )


def _report(
    subject: Subject,
    options: argparse.Namespace,
    modes: Sequence[Mode],
    written: set[Path],
) -> Report:
    from crossgate._values.profile_files import read_policy, read_profile
    from crossgate.evaluation import is_run, summarize

    # A run that is measured here has already used the profile and the policy.
    stored = is_run(subject.path)
    profile = read_profile(options.profile) if options.profile and stored else None
    policy = read_policy(options.policy) if options.policy and stored else None
    run = run_of(subject, options, modes, written=written, policy=options.policy)
    return summarize(run, profile=profile, policy=policy, modes=modes)


def _compare(options: argparse.Namespace) -> int:
    from crossgate.evaluation import compare, read_reports

    files = [Path(path) for path in options.dataset[1:]]
    if len(files) != 2:
        message = (
            f"{counted(len(files), 'file')} to compare: crossgate eval compare "
            "BEFORE.json AFTER.json"
        )
        raise InputError("out_of_range", message)
    if options.html:
        raise InputError("out_of_range", "--html writes the page of a report, not of a comparison")
    comparison = compare(*map(read_reports, files), seed=options.seed)
    if options.json:
        values = {"schema": "crossgate-comparison/1", "fell": comparison.fell}
        show(dump({**values, **asdict(comparison)}))
    else:
        show(render_comparison(comparison))
    return FAILED if comparison.fell else DONE


def render_comparison(comparison: Comparison) -> str:
    """Return the metrics that changed, those that fell beyond noise first."""
    changed = [
        change for change in comparison.changes if change.before != change.after or change.fell
    ]
    fallen = sum(change.fell for change in changed)
    lines = [
        f"{share_of(fallen, len(comparison.changes), 'metric')} fell beyond noise"
        if fallen
        else f"no metric fell beyond noise, {len(changed)} of {len(comparison.changes)} changed"
    ]
    lines += [f"note: {note}" for note in comparison.notes]
    lines += [
        f"{moved.dataset}, {moved.mode}: {counted(len(moved.gained), 'query')} gained a right "
        f"first pick, {len(moved.lost)} lost it"
        for moved in comparison.moved
        if moved.gained or moved.lost
    ]
    if changed:
        lines += ["", f"{'':<44} {'before':>7} {'after':>7}  difference, 95 % interval"]
    for change in sorted(changed, key=lambda change: not change.fell):
        name = f"{change.dataset}, {change.mode}, {change.metric}"
        shift = change.difference
        lines.append(
            f"{name if len(name) <= 44 else name[:43] + '…':<44} {change.before:>7.3f} "
            f"{change.after:>7.3f}  {shift.value:+.3f} [{shift.low:+.3f}, {shift.high:+.3f}]"
            f"{'  FELL' if change.fell else ''}"
        )
    return "\n".join(lines)


def _modes(text: str) -> list[Mode]:
    from crossgate.evaluation import MODES

    names = {name.strip() for name in text.split(",")}
    unknown = sorted(names - set(MODES))
    if unknown:
        message = f"no mode {unknown[0]!r}: choose from {', '.join(MODES)}"
        raise InputError("out_of_range", message)
    return [mode for mode in MODES if mode in names]
