"""Results as text for people: at most 100 columns, and plain where there is no terminal."""

from __future__ import annotations

import json
import textwrap
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from crossgate._types import Document, Hit, RouteResult, Verdict

WIDTH = 100

REASONS = {
    "no_candidates": "there was nothing to choose from",
    "improbable": "nothing is likely to fit",
    "below_floor": "no candidate clears the floor of this section",
    "no_overlap": "no document shares a word with the query",
    "confident_winner": "meaning and words put one document well ahead",
    "lexical_winner": "the words match one document and no other comes near",
    "undecided": "no clear winner, and no cross-encoder to ask",
    "reranked": "no clear winner, so the cross-encoder decided",
    "rejected": "no clear winner, and none that is likely to fit",
}

DROPPED = {
    "nothing_relevant": "nothing is relevant",
    "below_floor": "below the floor",
    "below_cliff": "below the cliff",
    "not_reranked": "not in the pool",
    "disagreement": "stage 1 disagrees",
    "below_minimum": "score too low",
    "improbable": "unlikely to fit",
    "beyond_lead": "too far behind",
    "over_limit": "over the limit",
}

_VERDICT_COLOURS = {
    Verdict.CONFIDENT: "32",
    Verdict.AMBIGUOUS: "33",
    Verdict.NOTHING_RELEVANT: "31",
}


_PASSAGE_LINES = 4


def result(decision: RouteResult, *, explain: bool, colour: bool) -> str:
    """Return a decision: what was selected and why, and with `explain` every candidate."""
    lines = [_selected(hit, colour) for hit in decision.selected] or ["nothing fits"]
    lines += ["", _why(decision, colour)]
    if explain:
        lines += ["", *_candidates(decision.hits), *_passages(decision.hits), "", *_steps(decision)]
    return "\n".join(lines)


def demo(
    skills: Sequence[Document], results: Sequence[tuple[str, RouteResult]], *, colour: bool
) -> str:
    """Return the demo's one screen."""
    lines = [f"{len(skills)} skills, {len(results)} prompts, no network. What fits?", ""]
    for prompt, decision in results:
        names = ", ".join(_paint(one.id, "1", colour) for one in decision.selected) or "nothing"
        lines += [f'  "{prompt}"', f"    -> {names}", f"    {_why(decision, colour)}", ""]
    skipped = sum(decision.stage == 1 for _, decision in results)
    lines += [
        f"The gate answered {skipped} of {len(results)} prompts without the cross-encoder.",
        "",
        "Now with your own:",
        "  crossgate index ~/skills -o skills.cgx",
        '  crossgate route -i skills.cgx --explain "clean up this messy CSV"',
    ]
    return "\n".join(lines)


def indexed(summary: Mapping[str, Any]) -> str:
    """Return what an index was made of."""
    skipped = f", {summary['skipped']} skipped" if summary["skipped"] else ""
    storage = summary["storage"]
    return (
        f"{summary['index']}: {summary['documents']} documents{skipped}, "
        f"{size(summary['bytes'])}, {summary['seconds']:.1f} s\n"
        f"texts {size(storage['texts'])}, vectors {size(storage['vectors'])}; vectors per token "
        f"would take about {size(storage['token_vectors_float32'])}, or "
        f"{size(storage['token_vectors_int8'])} in 8 bits"
    )


def replayed(outcome: Mapping[str, Any]) -> str:
    """Return whether the decisions of a log came out the same, or where the first did not."""
    count, found = outcome["decisions"], outcome["difference"]
    if found is None:
        skipped = f", {outcome['malformed']} malformed lines" if outcome["malformed"] else ""
        return f"{count} decisions made again, all the same{skipped}"
    recorded, recomputed = (
        fit(plain(json.dumps(found[key])), WIDTH - 10) for key in ("recorded", "recomputed")
    )
    return "\n".join(
        [
            plain(f"{outcome['log']}:{found['line']}: {found['field']} differs"),
            f"  logged  {recorded}",
            f"  now     {recomputed}",
        ]
    )


def models(rows: Sequence[Mapping[str, Any]], plugins: Sequence[Mapping[str, str]]) -> str:
    """Return the list of models and plug-ins."""
    lines = []
    for row in rows:
        state = "here" if row["here"] else f"crossgate models pull {row['name']}"
        facts = [row["kind"], size(row["bytes"]) if row["bytes"] else "", row["licence"]]
        lines.append(f"{row['name']}  ({', '.join(fact for fact in facts if fact)})")
        lines.append(f"    {row['description']}")
        lines.append(f"    {state}")
    for plugin in plugins:
        lines.append(f"{plain(plugin['name'])}  (plug-in of {plain(plugin['package'])})")
    return "\n".join(lines)


def verified(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the outcome of checking files against their hashes."""
    lines = [
        f"{'ok     ' if row['ok'] else 'ALTERED'}  {row['model']}/{row['file']}"
        + (f"  {row['detail']}" if not row["ok"] else "")
        for row in rows
    ]
    return "\n".join(lines)


def doctor(report: Sequence[Mapping[str, str]]) -> str:
    """Return the state of everything, with what to do where it is not well."""
    marks = {"ok": "ok    ", "off": "off   ", "broken": "BROKEN"}
    lines = []
    for check in report:
        lines.append(f"{marks[check['state']]}  {check['what']}: {check['detail']}")
        if check["advice"]:
            lines.append(f"        {check['advice']}")
    return "\n".join(lines)


def plain(text: str) -> str:
    """Return a text on one line and without control characters.

    Documents, ids and file names come from anywhere; an escape sequence in one of them must not
    reach the terminal.
    """
    return " ".join("".join(one if one.isprintable() else " " for one in text).split())


def columns(text: str) -> int:
    """Return how many columns of a terminal a text takes; some letters take two."""
    return len(text) + sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)


def fit(text: str, width: int) -> str:
    """Return a text that takes at most `width` columns, cut at its end where it is longer."""
    if columns(text) <= width:
        return text
    while columns(text) > width - 1:
        text = text[: min(len(text) - 1, width)]
    return f"{text.rstrip()}…"


def size(count: int) -> str:
    """Return a number of bytes for people, in powers of 1,000."""
    if count < 1_000_000:
        return f"{count / 1_000:.0f} kB"
    return f"{count / 1_000_000:.1f} MB"


def _selected(hit: Hit, colour: bool) -> str:
    indent = " " * 4
    title = hit.document.title
    name = plain(hit.id if title in ("", hit.id) else f"{hit.id}  {title}")
    text = fit(plain(hit.document.text), WIDTH - len(indent))
    return f"{_paint(fit(name, WIDTH), '1', colour)}\n{indent}{text}"


def _why(decision: RouteResult, colour: bool) -> str:
    verdict = decision.verdict.value.replace("_", " ")
    painted = _paint(verdict, _VERDICT_COLOURS[decision.verdict], colour)
    reason = REASONS.get(decision.reason, decision.reason)
    return f"{painted}: {reason} ({decision.timings['total']:.0f} ms)"


def _candidates(hits: Sequence[Hit]) -> list[str]:
    width = min(max((columns(plain(hit.id)) for hit in hits), default=0), 34)
    lines = [
        f"{'':>2}  {'candidate':<{width}}  {'cosine':>6}  {'bm25':>6}  {'blend':>6}  "
        f"{'rerank':>6}  {'score':>6}  outcome"
    ]
    for place, hit in enumerate(hits, start=1):
        name = fit(plain(hit.id), width)
        name += " " * (width - columns(name))
        outcome = "selected" if hit.dropped is None else DROPPED.get(hit.dropped, hit.dropped)
        cut = ", document cut" if hit.truncated else ""
        scores = (hit.cosine, hit.bm25, hit.blend, hit.rerank_score, hit.score)
        numbers = "  ".join(map(_number, scores))
        lines.append(f"{place:>2}  {name}  {numbers}  {outcome}{cut}")
    return lines


def _passages(hits: Sequence[Hit]) -> list[str]:
    """Return what of the bodies fits best, for the selected hits, or without one for the first."""
    shown = [hit for hit in hits if hit.dropped is None] or list(hits[:1])
    lines = []
    for hit in shown:
        if hit.passage is not None:
            place = f"characters {hit.passage.start} to {hit.passage.end} of its body"
            lines += ["", fit(f"{plain(hit.id)}, {place}:", WIDTH)]
            text = textwrap.wrap(plain(" ".join(hit.excerpt.split())), WIDTH - 4)
            lines += [f"    {line}" for line in text[:_PASSAGE_LINES]]
            if len(text) > _PASSAGE_LINES:
                lines.append("    ...")
    return lines


def _steps(decision: RouteResult) -> list[str]:
    trace = decision.trace
    lines = []
    gate, profile = trace["gate"], trace["profile"]
    if gate["signals"] is not None:
        lines.append("signals     " + _pairs(gate["signals"]))
    thresholds = _thresholds(profile, trace["policy"])
    lines.append("thresholds  " + (_pairs(thresholds) or "none, the gate is off"))
    if decision.confidence is not None:
        lines.append(f"confidence  {decision.confidence:.3f}")
    lines.append(f"profile     {plain(profile['name'])}")
    if gate["floor"] is not None:
        lines.append(f"floor       cosine {gate['floor']:.3g}")
    if gate["cliff"] is not None:
        cliff = {**gate["cliff"], "cut": len(gate["cliff"]["cut"])}
        lines.append("cliff       " + _pairs(cliff))
    if trace["reranker"]:
        lines.append(f"stage 2     {trace['reranker']}, {len(trace['stage2'])} pairs")
    lines.append("time        " + _pairs(decision.timings, " ms"))
    if decision.decision_id is not None:
        lines.append(f"logged as   {decision.decision_id}")
    wrapped = (textwrap.wrap(line, WIDTH, subsequent_indent=" " * 12) for line in lines)
    return [line for lines in wrapped for line in lines]


def _thresholds(profile: Mapping[str, Any], policy: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rules of the gate that are on; 0 is a threshold like any other."""
    rules = {**profile["answer"], **profile["winner"]}
    rules |= {f"lexical_{key}": value for key, value in (policy["lexical"] or {}).items()}
    return {key: value for key, value in rules.items() if value is not None}


def _pairs(values: Mapping[str, Any], unit: str = "") -> str:
    shown = []
    for key, value in values.items():
        number = f"{value:.3g}" if isinstance(value, float) else str(value)
        shown.append(f"{key} {number}{unit}")
    return ", ".join(shown)


def _number(value: float | None) -> str:
    return f"{'-':>6}" if value is None else f"{value:>6.2f}"


def _paint(text: str, code: str, colour: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if colour else text
