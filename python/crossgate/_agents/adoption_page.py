"""Renders the figures of `crossgate usage` as an HTML page without scripts or external files."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from crossgate._agents.adoption import NOTES, UsageCounts, UsageReport
from crossgate._support.wording import counted

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;margin:1rem 0}th,td{padding:.2rem .8rem;text-align:right}"
    "th:first-child,td:first-child{text-align:left}tr{border-bottom:1px solid #8884}"
)
_COLUMNS = ("used", "not used", "used without a suggestion", "neither")


def usage_page(report: UsageReport) -> str:
    """Return the page; it has no text of any prompt."""
    parts = [
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>crossgate usage</title>',
        f"<style>{_STYLE}</style><h1>crossgate usage</h1>",
        f"<p>{escape(summary(report))}</p>",
        _table("week", {**report.weeks, "all": report.total}),
        _table("form of the suggestion", report.forms),
        _table("skill", report.skills),
    ]
    proposals = "".join(
        f"<li><b>{escape(name)}</b>: {escape(text)}</li>" for name, text in report.proposals()
    )
    parts.append(f"<h2>Proposals</h2><ul>{proposals}</ul>" if proposals else "")
    notes = "".join(f"<li>{escape(note)}</li>" for note in NOTES)
    return "\n".join([*filter(None, parts), f"<h2>How it is counted</h2><ul>{notes}</ul></html>\n"])


def summary(report: UsageReport) -> str:
    """Return one sentence with the main figures."""
    total = report.total
    suggested = total.used + total.unused
    share = f" ({total.used / suggested:.0%})" if suggested else ""
    mode = f", {report.shadow} of them withheld in shadow mode" if report.shadow else ""
    return (
        f"{counted(report.logged, 'prompt')} in the hook's log, {report.matched} of them in "
        f"transcripts: {counted(suggested, 'suggestion')}{mode}, {total.used} used{share}; "
        f"{counted(total.unprompted, 'use')} without a suggestion; about "
        f"{counted(report.tokens, 'token')} of context"
    )


def _table(title: str, rows: Mapping[str, UsageCounts]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{escape(column)}" for column in (title, *_COLUMNS))
    body = "".join(
        f"<tr><td>{escape(name)}"
        + "".join(f"<td>{n}" for n in (row.used, row.unused, row.unprompted, row.neither))
        for name, row in rows.items()
    )
    return f"<table><tr>{head}{body}</table>"
