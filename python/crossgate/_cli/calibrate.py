"""`crossgate calibrate`: move a profile as far as labels support, and write it if it holds."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from crossgate._cli import DONE
from crossgate._cli.labelled import (
    DATASETS,
    Subject,
    check_writable,
    dump,
    labelled_options,
    refuse,
    run_of,
    subjects_of,
    takes_background,
    write_page,
)
from crossgate._cli.output import say_skipped, show
from crossgate._support.errors import CalibrationError, InputError
from crossgate._support.extras import package
from crossgate._support.wording import counted

if TYPE_CHECKING:
    from crossgate._core import Combine, Profile
    from crossgate._evaluation.economics import Shortlists
    from crossgate._evaluation.sections import Section, Table
    from crossgate.calibration import Calibration, Figures
    from crossgate.evaluation import Run

SCHEMA = "crossgate-calibration/2"

BACKGROUND_RATE = 0.05
"""The false-positive rate that --background allows unless another objective is given."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.usage = (
        "crossgate calibrate [OPTION...] DOCUMENTS LABELS... | DATASET... | --from-log LOG "
        "-o PROFILE"
    )
    labels = parser.add_mutually_exclusive_group(required=True)
    labels.add_argument(
        "dataset",
        metavar="DATASET",
        nargs="*",
        default=[],  # argparse allows only optional arguments in such a group
        help=DATASETS,
    )
    labels.add_argument(
        "--from-log",
        metavar="LOG",
        help="use a decision log with records of use instead of datasets; needs no model",
    )
    parser.add_argument("-o", "--output", metavar="PROFILE", required=True, help="profile to write")
    objective = parser.add_mutually_exclusive_group()
    objective.add_argument(
        "--cost-ratio",
        type=float,
        metavar="R",
        help="a wrong pick costs as much as R missed ones (default: 1)",
    )
    objective.add_argument(
        "--max-false-positive-rate",
        type=float,
        metavar="A",
        help="false-positive rate to allow: no-match queries with a selection (split conformal)",
    )
    objective.add_argument(
        "--keep-recall",
        type=float,
        metavar="K",
        help="use the highest threshold that keeps this share of recall@1 in every dataset",
    )
    parser.add_argument(
        "--max-recall-loss",
        type=float,
        metavar="L",
        default=0.01,
        help="recall@1 that skipping may cost compared with reranking all (default: 0.01)",
    )
    parser.add_argument(
        "--coverage",
        type=float,
        metavar="P",
        help="probability, above 0 and below 1, that a shortlist must contain a fitting document "
        "if there is one (default: 0.9, or as much as the labels allow)",
    )
    parser.add_argument(
        "--max-shortlist",
        type=int,
        metavar="N",
        default=5,
        help="maximum length of a shortlist (default: 5)",
    )
    parser.add_argument(
        "--coverage-of",
        metavar="NAME",
        action="append",
        default=[],
        help="promise the coverage for this dataset; may be repeated (default: all)",
    )
    parser.add_argument("--html", metavar="FILE", help="also write the report as a page")
    parser.add_argument("--name", help="name of the profile (default: the file's name)")
    parser.add_argument(
        "--any-corpus", action="store_true", help="allow other documents without a warning"
    )
    parser.add_argument(
        "--profile", metavar="FILE", help="profile to measure with and to compare against"
    )
    labelled_options(parser)


def run(options: argparse.Namespace) -> int:
    """Measure datasets, or read stored runs or a log; fit, report, and write the profile."""
    # Fails before an hour of measuring, not after it.
    package("scipy", "crossgate calibrate", extra="calibrate")
    from crossgate._calibration.calibrating import shortlist_values, triple
    from crossgate._support.files import try_writing
    from crossgate._values.profile_files import (
        profile_values,
        read_profile,
        unwritable,
        write_profile,
    )
    from crossgate.calibration import Objective, calibrate

    chosen = (options.cost_ratio, options.keep_recall, options.max_false_positive_rate)
    if options.background and chosen == (None, None, None):
        options.max_false_positive_rate = BACKGROUND_RATE
    objective = Objective(
        max_false_positive_rate=options.max_false_positive_rate,
        keep_recall=options.keep_recall,
        cost_ratio=1.0 if options.cost_ratio is None else options.cost_ratio,
        max_recall_loss=options.max_recall_loss,
        coverage=options.coverage,
        max_shortlist=options.max_shortlist,
        covered=tuple(options.coverage_of),
    )
    before = None if options.profile is None else read_profile(options.profile)
    output = Path(options.output)
    try:
        try_writing(output)
    except OSError as error:
        raise unwritable(output, error) from error
    if options.html:
        check_writable(Path(options.html))
    name = options.name or output.name.removesuffix(".json").removesuffix(".profile")
    if before is not None and before.session:
        return _fit_session(options, before, output, name)
    subjects: list[Subject] = []
    if options.from_log is not None:
        runs = [_logged_run(options.from_log, options)]
    else:
        subjects = subjects_of(options.dataset)
        written: set[Path] = set()
        runs = [run_of(subject, options, ("always",), written=written) for subject in subjects]
    try:
        fitted = calibrate(
            runs,
            objective,
            before=before,
            name=name,
            any_corpus=options.any_corpus,
            seed=options.seed,
            command=shlex.join(["crossgate", *options.arguments]),
        )
    except CalibrationError as error:
        unasked = not options.background and any(map(takes_background, subjects))
        if error.code != "too_few_negatives" or not unasked:
            raise
        message = f"{error}. --background adds everyday prompts that nothing should fit"
        raise CalibrationError(error.code, message) from error
    write_profile(output, fitted.profile)
    if options.html:
        from crossgate._evaluation.page import html_sections

        title = f"Profile {fitted.profile.name}"
        sections = calibration_sections(fitted)
        write_page(Path(options.html), html_sections(title, objective.describe(), sections))
    if options.json:
        show(
            dump(
                {
                    "schema": SCHEMA,
                    "output": str(output),
                    "objective": objective.describe(),
                    "profile": profile_values(fitted.profile),
                    "report": fitted.report.to_dict(),
                    "before": fitted.before.to_dict(),
                    "change": triple(fitted.change),
                    "shortlists": shortlist_values(fitted.shortlists),
                    "notes": list(fitted.notes),
                }
            )
        )
    else:
        show(render_calibration(fitted, objective.describe(), output))
    return DONE


def _fit_session(options: argparse.Namespace, before: Profile, output: Path, name: str) -> int:
    """Fit a profile for sessions, which has no stage 2, to how often prompts need a document."""
    from crossgate._calibration.base_rate import fit_base_rate
    from crossgate._values.profile_files import profile_values, write_profile

    refuse(
        options,
        f"does not apply to {before.name}, a profile for sessions",
        "any_corpus",
        "background",
        "cost_ratio",
        "coverage",
        "html",
        "keep_recall",
        "max_false_positive_rate",
    )
    if options.from_log is not None:
        message = f"--from-log does not say which prompts need nothing, as {before.name} needs: "
        raise InputError("out_of_range", f"{message}give labels, or --from-transcripts")
    written: set[Path] = set()
    runs = [
        run_of(subject, options, ("never",), written=written)
        for subject in subjects_of(options.dataset)
    ]
    fitted = fit_base_rate(runs, before, name=name)
    write_profile(output, fitted.profile)
    first, second = fitted.log_loss
    values = {
        "schema": SCHEMA,
        "output": str(output),
        "profile": profile_values(fitted.profile),
        "prompts": fitted.prompts,
        "fitting": fitted.fitting,
        "any_fits": {"before": fitted.before, "after": fitted.after},
        "log_loss": {"before": first, "after": second},
    }
    text = (
        f"{output}: how often prompts need a document\n\n"
        f"{fitted.fitting:.1%} of {counted(fitted.prompts, 'prompt')} have a fitting document.\n"
        f"The mean probability was {fitted.before:.1%}; it is {fitted.after:.1%}, and the log loss "
        f"{second:.3f} instead of {first:.3f}, for prompts that the fit has not seen.\n"
        f"The hook uses it: `crossgate hook install --profile {shlex.quote(str(output))}`"
    )
    show(dump(values) if options.json else text)
    return DONE


def render_calibration(fitted: Calibration, objective: str, output: Path) -> str:
    """Return the report for a terminal."""
    from crossgate._evaluation.text import section_lines

    parts = [f"{output}: {objective}"]
    parts += ["\n".join(section_lines(section)) for section in calibration_sections(fitted)]
    return "\n\n".join(parts)


def calibration_sections(fitted: Calibration) -> list[Section]:
    """Return the report: what changes, the fitted settings, and the held-out figures."""
    from crossgate._evaluation.sections import Section, share

    report = fitted.report
    count = counted(report.matched + report.no_match, "held-out query")
    found = [
        Section(
            title=f"What changes with this profile, measured on {count}",
            parts=tuple(_changes(fitted)),
        )
    ]
    if fitted.notes:
        found.append(Section(title="Notes", parts=fitted.notes))
    found.append(Section(title="Settings", parts=tuple(_settings(fitted.profile))))
    intervals = (
        f"{what}: {share(interval)}"
        for what, interval in (
            ("recall@1 lost by skipping", report.recall_loss),
            ("right first picks that pass the threshold", report.kept),
            ("AUC of the probability, right picks against others", report.separation),
        )
        if interval is not None
    )
    found.append(
        Section(
            title="Figures on held-out queries",
            parts=(
                "Each query is decided by a profile fitted on the others: "
                f"{counted(report.matched, 'query')} with a match, {report.no_match} without.",
                _figures(report, fitted.before),
                *intervals,
            ),
        )
    )
    if fitted.shortlists:
        sentence = "Their promises were fitted on other queries."
        parts = (sentence, _shortlists(fitted.shortlists))
        found.append(Section(title="Shortlists", parts=parts))
    return found


def _settings(profile: Profile) -> Iterator[str]:
    """Yield the fitted settings, one line for each part of the decision."""
    blend, winner, answer = profile.blend, profile.winner, profile.answer
    yield (
        f"blend: cosine {blend.cosine_weight:.2f}, bm25 {blend.bm25_weight:.2f} "
        f"(pivot {blend.pivot:g}, body {blend.body_weight:g})"
    )
    yield f"combine: {_combination(profile.combine)}; pool of {profile.pool}"
    yield (
        f"skip: least lead where cosine and BM25 agree: {_threshold(winner.agreed, 'never')}, "
        f"where they disagree: {_threshold(winner.disagreed, 'never')}"
    )
    yield (
        f"answer: least probability that any fits: {_threshold(answer.threshold, 'none')}, "
        f"after stage 1: {_threshold(answer.rerank_threshold, 'none')}, "
        f"that the first one fits: {_threshold(answer.confidence, 'none')}"
    )
    listed = profile.shortlist
    if listed.stage1 or listed.stage2:
        yield (
            f"shortlist: coverage {listed.coverage:g} with at most {listed.most}; empty below a "
            f"probability of {_threshold(listed.least, 'none')} that any fits"
        )


def _figures(report: Figures, before: Figures) -> Table:
    """Return the figures on held-out queries in each mode, and those of the previous profile."""
    from crossgate._evaluation.sections import Row, Table, share

    columns = [("never", report), ("gated", report), ("always", report), ("gated", before)]
    rows = [
        Row(name=label, cells=tuple(share(figures.modes[mode][name]) for mode, figures in columns))
        for name, label in _LABELS.items()
        if any(figures.modes[mode][name] for mode, figures in columns)
    ]
    return Table(head=("", "never", "gated", "always", "before"), rows=tuple(rows))


def _shortlists(figures: Mapping[str, Shortlists]) -> Table:
    """Return the figures of the shortlists by mode."""
    from crossgate._evaluation.sections import Row, Table, length, percentage, share

    rows = (
        Row(
            name=mode,
            cells=(share(of.coverage), length(of.size), percentage(of.single), share(of.full)),
        )
        for mode, of in figures.items()
    )
    head = ("shortlists", "coverage", "mean length", "one document", "full, no match")
    return Table(head=head, rows=tuple(rows))


def _changes(fitted: Calibration) -> Iterator[str]:
    """Yield what changes for a user of the profile, on queries that did not fit it.

    A change is named only if the intervals before and after do not overlap.
    """
    report, before, change = fitted.report, fitted.before, fitted.change
    if change is not None:
        yield (
            f"queries decided rightly: {100 * change.value:+.1f} points "
            f"[{100 * change.low:+.1f}, {100 * change.high:+.1f}]"
        )
    for name, what in _FACTS.items():
        new, old = report.modes["gated"].get(name), before.modes["gated"].get(name)
        if new is None:
            continue
        now = f"{new.value:.0%} of {counted(new.count, 'query')}"
        if old is None:
            yield f"{what}: {now}"
        else:
            apart = new.low > old.high or new.high < old.low
            noise = "" if apart else ", no change beyond noise"
            yield f"{what}: {now}, before {old.value:.0%}{noise}"


_FACTS = {
    "recall@1": "fitting documents picked first (recall@1)",
    "false_positive_rate": "picks though nothing fits",
    "skipped": "answers without stage 2",
}


def _combination(combine: Combine) -> str:
    match combine.to_dict():
        case {"mode": "weighted", "cosine": cosine, "bm25": bm25, "rerank_score": score}:
            return f"cosine {cosine:g}, bm25 {bm25:g}, rerank score {score:g}"
        case {"mode": "rrf", "k": k}:
            return f"reciprocal rank fusion of both stages (k {k:g})"
        case {"mode": "z_score", "rerank_score": score}:
            return f"standard scores of both stages, rerank score {score:g}"
    return "by rerank score alone"


_LABELS = {
    "recall@1": "recall@1",
    "false_positive_rate": "false positives",
    "wrong_pick@1": "wrong pick@1",
    "skipped": "skipped",
}


def _threshold(value: float | None, absent: str) -> str:
    return absent if value is None else f"{value:.4g}"


def _logged_run(path: str, options: argparse.Namespace) -> Run:
    from crossgate.calibration import run_from_log

    of_datasets = ("background", "from_transcripts", "limit", "runs", "split", "unnamed")
    refuse(options, "applies to datasets, not to a log", *of_datasets)
    logged = run_from_log(path, strict=options.strict)
    say_skipped(logged.problems, path)
    return logged.run
