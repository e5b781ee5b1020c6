"""Shared by `route` and `rerank`: the options of a decision, and its output."""

from __future__ import annotations

import argparse
import os
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from crossgate._cli import DONE, NOTHING_RELEVANT
from crossgate._cli.input import model_option, text_of
from crossgate._cli.output import WIDTH, paint, plain, say, show, show_json
from crossgate._support.errors import InputError
from crossgate._support.sanitize import columns, fit
from crossgate._support.wording import counted
from crossgate._values.options import DecisionOptions, summary
from crossgate._values.results import DROPPED, VERDICTS, Hit, RouteResult, Verdict
from crossgate._values.results import why as why_of

if TYPE_CHECKING:
    from crossgate._decision.context import Context
    from crossgate._telemetry.events import TelemetryHook

LOG_VARIABLE = "CROSSGATE_LOG"
"""Environment variable that names the log if `--log` is missing; empty for none."""

_VERDICT_COLOURS = {
    Verdict.CONFIDENT: "32",
    Verdict.AMBIGUOUS: "33",
    Verdict.NOTHING_RELEVANT: "31",
}

_PASSAGE_LINES = 4

_LEAST_SHOWN = 0.005
"""A relevance below this would be printed as 0 %."""


def decision_options(
    parser: argparse.ArgumentParser, *, left_out: Sequence[str] = (), limit: str = ""
) -> None:
    """Add the options of a decision, except for some names of `DecisionOptions`.

    `limit` is what the command does without a limit, if it does not select all that pass.
    """
    parser.add_argument("--explain", action="store_true", help="show how the decision was made")
    model_option(
        parser,
        "--reranker",
        "name of a model or plug-in, folder of a model, or none to use stage 1 alone",
    )
    parser.add_argument(
        "--profile",
        metavar="FILE",
        help="calibration profile, or the name of a bundled one: the fitted thresholds",
    )
    parser.add_argument("--policy", metavar="FILE", help="policy: the settings that you choose")
    for each in fields(DecisionOptions):
        if "metavar" not in each.metadata or each.name in left_out:
            continue
        repeated = each.metadata.get("repeated", False)
        text = described(each.name) + ("; may be repeated" if repeated else "")
        parser.add_argument(
            f"--{each.name.replace('_', '-')}",
            metavar=each.metadata["metavar"],
            type=each.metadata.get("parse", str),
            # One id per option: an option with several ids would take the query as well.
            action="append" if repeated else "store",
            help=f"{text} (default: {limit})" if each.name == "limit" and limit else text,
        )
    parser.add_argument(
        "--material",
        metavar="FILE",
        action="append",
        help="file with pasted text that belongs to the query, or - for stdin; may be repeated",
    )
    parser.add_argument(
        "--project",
        metavar="FOLDER",
        help="folder of the project that the query comes from, for its technologies",
    )
    parser.add_argument(
        "--history",
        metavar="TEXT",
        action="append",
        help="earlier request of the conversation; may be repeated, oldest first",
    )
    parser.add_argument(
        "--log", metavar="FILE", help="append the decision to a log (default: CROSSGATE_LOG)"
    )
    parser.add_argument(
        "--log-text", action="store_true", help="log the texts too, not only their hashes"
    )


def log_path(options: argparse.Namespace) -> str:
    """Return the log that `--log` or the environment names, or else a prompt hook's own.

    Raises:
        InputError: `out_of_range` if there is none.
    """
    path = _named_log(options) or _log_of_hooks()
    if not path:
        raise InputError(
            "out_of_range",
            f"no log: name a file with --log FILE or {LOG_VARIABLE}, or have a prompt hook log: "
            "crossgate hook install --log FILE",
        )
    return path


def _log_of_hooks() -> str:
    """Return the log that the settings of an agent name here; empty for none."""
    from crossgate._agents.hook.agents import AGENTS
    from crossgate._agents.hook.install import calls_of, options_in
    from crossgate._agents.hook.options import BadHookOptions

    for agent in AGENTS.values():
        for command in calls_of(agent).values():
            with suppress(BadHookOptions):  # another agent's settings may name a log
                if log := options_in(command, agent).log:
                    return log
    return ""


def _named_log(options: argparse.Namespace) -> str:
    # No shell has replaced the ~ of a variable that an agent's settings set.
    return os.path.expanduser(options.log or os.environ.get(LOG_VARIABLE, ""))


def log_of(options: argparse.Namespace) -> TelemetryHook | None:
    """Return the log of a decision, or None."""
    path = _named_log(options)
    if not path:
        return None
    from crossgate._telemetry.log import JsonLinesLog

    return JsonLinesLog(path, text=options.log_text)


def described(name: str) -> str:
    """Return the description of an option as the command line shows it."""
    text = summary(name).rstrip(".").replace("`", "")
    return text[:1].lower() + text[1:]


def decision_keywords(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options of a decision that the command line gives, as keyword arguments.

    Raises:
        SourceError: `source_missing` or `source_unreadable` if the folder cannot be listed.
    """
    keywords = {
        each.name: value
        for each in fields(DecisionOptions)
        if "metavar" in each.metadata and (value := getattr(options, each.name, None)) is not None
    }
    if options.material is not None:
        keywords["material"] = [text_of(name) for name in options.material]
    return {**keywords, "context": _context_of(options)}


def _context_of(options: argparse.Namespace) -> Context | None:
    """Return the context that `--project` and `--history` name, or None without them."""
    if options.project is None and options.history is None:
        return None
    from crossgate._decision.context import Context

    history = tuple(options.history or ())
    if options.project is None:
        return Context(history=history)
    return Context.of_folder(options.project, history=history)


def show_decision(
    result: RouteResult, options: argparse.Namespace, *, query: str, text: bool = False
) -> int:
    """Print a decision, as JSON with or without the texts, and return its exit code."""
    if options.json:
        show_json(result.to_dict(trace=options.explain, text=text))
    else:
        show("\n".join(_lines(result, query if options.explain else None)))
    say_notes(result)
    return DONE if result.selected else NOTHING_RELEVANT


def say_notes(result: RouteResult) -> None:
    """Report what did not run as configured, and the warnings."""
    for note in result.degraded:
        say(f"degraded[{note.code}]: {note.detail}")
    for warning in result.warnings:
        say(f"warning[{warning.code}]: {warning.detail}")


def why(decision: RouteResult) -> str:
    """Return verdict, reason and time on one line.

    Without a selection, the verdict is "unsure" with a shortlist and "nothing fits" without one.
    """
    unselected = "unsure" if _likeliest(decision) else "nothing fits"
    verdict = VERDICTS[decision.verdict] if decision.selected else unselected
    painted = paint(verdict, _VERDICT_COLOURS[decision.verdict])
    reason = why_of(decision.reason, len(decision.selected))
    return f"{painted}: {reason} ({decision.timings['total']:.0f} ms)"


def _lines(decision: RouteResult, query: str | None) -> list[str]:
    """Return the selected hits and the reason, and with the query how the decision was made."""
    lines = [*map(_selected, decision.selected)] or _unsure(decision)
    if lines:
        lines.append("")
    lines.append(why(decision))
    if query is not None:
        lines += ["", *_candidates(decision.hits), *_passages(decision.hits), ""]
        lines += _steps(decision, query)
    return lines


def _likeliest(decision: RouteResult) -> Sequence[Hit]:
    """Return the shortlist, unless the relevance of its first hit rounds to 0 %."""
    first = decision.shortlist[0].relevance if decision.shortlist else 0.0
    return () if first is not None and first < _LEAST_SHOWN else decision.shortlist


def _unsure(decision: RouteResult) -> list[str]:
    """Return the shortlist of a decision that selects nothing."""
    if not _likeliest(decision):
        return []
    any_fits = "" if decision.any_fits is None else f" ({decision.any_fits:.0%} that any does)"
    lines = [f"nothing is sure to fit{any_fits}; the likeliest:"]
    for hit in decision.shortlist:
        known = "    -" if hit.relevance is None else f"{hit.relevance:>5.0%}"
        lines.append(fit(f"  {known}  {_name(hit)}", WIDTH))
    return lines


def _name(hit: Hit) -> str:
    title = hit.document.title
    return plain(hit.id if title in ("", hit.id) else f"{hit.id}  {title}")


def _selected(hit: Hit) -> str:
    indent = " " * 4
    name = _name(hit)
    text = fit(plain(hit.document.text), WIDTH - len(indent))
    return f"{paint(fit(name, WIDTH), '1')}\n{indent}{text}"


def _candidates(hits: Sequence[Hit]) -> list[str]:
    width = min(max((columns(plain(hit.id)) for hit in hits), default=0), 34)
    lines = [
        f"{'':>2}  {'candidate':<{width}}  {'cosine':>6}  {'bm25':>6}  {'blend':>6}  "
        f"{'rerank':>6}  {'score':>6}  {'fits':>6}  outcome"
    ]
    for position, hit in enumerate(hits, start=1):
        name = fit(plain(hit.id), width)
        name += " " * (width - columns(name))
        outcome = "selected" if hit.dropped is None else DROPPED.get(hit.dropped, hit.dropped)
        cut = ", document cut" if hit.truncated else ""
        scores = (hit.cosine, hit.bm25, hit.blend, hit.rerank_score, hit.score, hit.relevance)
        numbers = "  ".join(map(_number, scores))
        lines.append(f"{position:>2}  {name}  {numbers}  {outcome}{cut}")
    return lines


def _passages(hits: Sequence[Hit]) -> list[str]:
    """Return the best passages of the selected hits, or of the first hit if none is selected."""
    shown = [hit for hit in hits if hit.dropped is None] or list(hits[:1])
    lines = []
    for hit in shown:
        if hit.passage is not None:
            where = f"characters {hit.passage.start} to {hit.passage.end} of its body"
            lines += ["", fit(f"{plain(hit.id)}, {where}:", WIDTH)]
            text = textwrap.wrap(plain(" ".join(hit.excerpt.split())), WIDTH - 4)
            lines += [f"    {line}" for line in text[:_PASSAGE_LINES]]
            if len(text) > _PASSAGE_LINES:
                lines.append("    ...")
    return lines


def _steps(decision: RouteResult, query: str) -> list[str]:
    trace = decision.trace
    lines = _parts(trace["prompt"], query)
    gate, profile = trace["gate"], trace["profile"]
    if gate["signals"] is not None:
        lines.append("signals     " + pairs(gate["signals"]))
    thresholds = _thresholds(profile, trace["policy"])
    lines.append("thresholds  " + (pairs(thresholds) or "none, the gate is off"))
    if decision.confidence is not None:
        lines.append(f"confidence  {decision.confidence:.3f} that the first one fits")
    if decision.any_fits is not None:
        lines.append(f"any fits    {decision.any_fits:.3f}")
    if decision.shortlist:
        promise = "" if decision.coverage is None else f" (coverage {decision.coverage:g})"
        lines.append(
            f"shortlist   {', '.join(plain(hit.id) for hit in decision.shortlist)}{promise}"
        )
    lines.append(f"profile     {plain(profile['name'])}")
    if gate["floor"] is not None:
        lines.append(f"floor       cosine {gate['floor']:.3g}")
    if gate["cliff"] is not None:
        cliff = {**gate["cliff"], "cut": len(gate["cliff"]["cut"])}
        lines.append("cliff       " + pairs(cliff))
    if trace["reranker"]:
        lines.append(f"stage 2     {trace['reranker']}, {counted(len(trace['stage2']), 'pair')}")
    lines.append("time        " + pairs(decision.timings, " ms"))
    if decision.decision_id is not None:
        lines.append(f"logged as   {decision.decision_id}")
    wrapped = (textwrap.wrap(line, WIDTH, subsequent_indent=" " * 12) for line in lines)
    return [line for lines in wrapped for line in lines]


def _parts(prompt: Mapping[str, Any], query: str) -> list[str]:
    """Return the request and the material of a query, if it has any."""
    if not prompt["material"]:
        return []
    request = " ".join(query[start:end].strip() for start, end in prompt["request"])
    if prompt["searched"] == "prompt":
        request += " (names nothing, so the whole query is searched)"
    pieces = [
        piece["kind"]
        if piece["start"] is None
        else f"{piece['kind']} (characters {piece['start']} to {piece['end']})"
        for piece in prompt["material"]
    ]
    return [f"request     {plain(request)}", f"material    {', '.join(pieces)}"]


def _thresholds(profile: Mapping[str, Any], policy: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rules of the gate that are on; a threshold of 0 is on, too."""
    rules = {**profile["answer"], **profile["winner"]}
    rules |= {f"lexical_{key}": value for key, value in (policy["lexical"] or {}).items()}
    return {key: value for key, value in rules.items() if value is not None}


def pairs(values: Mapping[str, Any], unit: str = "") -> str:
    """Return names with their values on one line; a unit follows each value."""
    shown = []
    for key, value in values.items():
        number = f"{value:.3g}" if isinstance(value, float) else str(value)
        shown.append(f"{key} {number}{unit}")
    return ", ".join(shown)


def _number(value: float | None) -> str:
    return f"{'-':>6}" if value is None else f"{value:>6.2f}"
