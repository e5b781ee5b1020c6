"""Shared parts of the pages of `eval`; each page is a single file that loads nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

_STYLE = """
:root { color-scheme: light dark; --ground: #fff; --text: #1d2530; --soft: #5c6875;
  --rule: #d9dee4; --panel: #f5f7f9; --match: #1f6fb2; --no-match: #c2571a; --bad: #a3261b; }
@media (prefers-color-scheme: dark) { :root { --ground: #14181d; --text: #e4e9ee; --soft: #9aa7b4;
  --rule: #323a43; --panel: #1c2229; --match: #6db3f2; --no-match: #f0955a; --bad: #ff8a7d; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 86rem; padding: 1rem 1.5rem; background: var(--ground);
  color: var(--text); font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; line-height: 1.3; margin: .5rem 0; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .5rem; }
h3 { font-size: 1rem; margin: 1.2rem 0 .2rem; }
p, li { margin: .4rem 0; max-width: 60rem; } ul { padding-left: 1.2rem; }
.columns { display: grid; gap: 0 3rem; align-items: start;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 34rem), 1fr)); }
.columns > section { min-width: 0; }
.columns .charts { grid-template-columns: repeat(auto-fill, minmax(min(100%, 15rem), 1fr)); }
.columns table { width: 100%; }
.headline { font-size: 1.1rem; border-left: 4px solid var(--match); padding: .4rem .8rem;
  background: var(--panel); max-width: none; }
.warning { border-color: var(--bad); }
.soft { color: var(--soft); font-size: .9rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid var(--rule);
  white-space: nowrap; vertical-align: top; }
th:first-child, td:first-child { text-align: left; padding-left: 0; position: sticky; left: 0;
  background: var(--ground); }
td:first-child { white-space: normal; min-width: 6.5rem; }
td small { display: block; color: var(--soft); font-size: .78rem; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 20rem), 1fr));
  gap: 1rem; }
.wide { max-width: 38rem; }
figure { margin: 0; } .charts, .wide { margin: 1rem 0; }
figcaption { font-size: .85rem; color: var(--soft); }
svg { width: 100%; height: auto; display: block; }
svg text { fill: var(--text); font: 11px system-ui, sans-serif; }
svg .tick { fill: var(--soft); font-size: 10px; }
.grid { stroke: var(--rule); }
.ideal { stroke: var(--soft); stroke-dasharray: 4 3; }
.line { fill: none; stroke: var(--match); stroke-width: 2; }
.mark { fill: var(--no-match); } .spot { fill: transparent; }
.spot:hover { fill: var(--match); }
.dot { fill: var(--match); fill-opacity: .7; }
.match { fill: var(--match); fill-opacity: .55; }
.no-match { fill: var(--no-match); fill-opacity: .55; }
.key { display: inline-block; width: .8em; height: .8em; margin: 0 .3em 0 .6em; }
.entry { white-space: nowrap; }
.key.match { background: var(--match); } .key.no-match { background: var(--no-match); }
.of-0 { stroke: var(--match); background: var(--match); }
.of-1 { stroke: var(--no-match); background: var(--no-match); }
.of-2 { stroke: #2f9e6b; background: #2f9e6b; } .of-3 { stroke: #8a63d2; background: #8a63d2; }
.of-4 { stroke: var(--soft); background: var(--soft); }
.mark.of-0 { fill: var(--match); } .mark.of-1 { fill: var(--no-match); }
.interval { width: 8rem; } .worse { stroke: var(--bad); fill: var(--bad); }
abbr { text-decoration: underline dotted; cursor: help; }
details { border-bottom: 1px solid var(--rule); padding: .4rem 0; }
summary { cursor: pointer; }
dl { margin: .4rem 0 .4rem 1rem; } dt { font-size: .85rem; color: var(--soft); }
dd { margin: 0 0 .5rem; }
code { font-size: .9em; }
@media (max-width: 32rem) { table { font-size: .82rem; } th, td { padding: .25rem .2rem; }
  td:first-child { min-width: 5.5rem; } td small { font-size: .66rem; letter-spacing: -.02em; }
  body { padding: .7rem; } }
"""


def page(title: str, body: Iterable[str], *, style: str = "", script: str = "") -> str:
    """Return a whole page.

    Args:
        title: Its title, as text.
        body: Markup, in parts.
        style: CSS in addition to that of all pages.
        script: JavaScript that the page runs.
    """
    code = f"<script>{script}</script>" if script else ""
    return _visible(
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}{style}</style></head>"
        f"<body>{''.join(body)}{code}</body></html>\n"
    )


def _visible(page: str) -> str:
    """Return a page without invisible characters and marks that change the writing direction.

    Foreign names and texts may contain control characters such as ESC and direction marks; our own
    text contains only line breaks.
    """
    return "".join(
        character if character == "\n" or character.isprintable() else " " for character in page
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; cells of rows are markup, those of the head are text."""
    top = "".join(f"<th>{explained(cell)}</th>" for cell in head)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><tr>{top}</tr>{body}</table></div>'


_TERMS = {
    "never": "stage 1 alone: the cross-encoder is never asked",
    "gated": "the gate decides for each query whether the cross-encoder is asked",
    "always": "the cross-encoder reads the best candidates of every query",
    "remote": "a provider is asked instead of the cross-encoder",
    "p50": "half of the queries take at most this long",
    "p95": "95 of 100 queries take at most this long",
    "p99": "99 of 100 queries take at most this long",
    "rerank?": "area under the ROC curve for predicting which queries reranking would fix",
    "anything relevant?": "area under the ROC curve for predicting which queries have a match",
    "milliseconds": "from the query to the answer, including its embedding, with models loaded",
    "first pick does not fit": "queries with a match whose first pick is wrong or missing",
    "recall@1": "share of the fitting documents at rank 1",
    "difference": "after minus before, on the same queries, with its 95 % interval",
    "confidence": "the probability that the first pick fits",
    "decided by": "the rule of the gate or of stage 2 that decided the query",
    "stage": "1: meaning and words decided; 2: the cross-encoder was asked too",
}
"""Explanations of the terms in table heads."""


def explained(word: str, meaning: str | None = None) -> str:
    """Return a term as markup, with its explanation on hover if there is one."""
    meaning = meaning or _TERMS.get(word)
    return f'<abbr title="{escape(meaning)}">{escape(word)}</abbr>' if meaning else escape(word)


def legend(entries: Iterable[tuple[str, str]]) -> str:
    """Return the key of a chart from classes and texts; no entry is broken across lines."""
    return " ".join(
        f'<span class="entry"><span class="key {name}"></span>{escape(text)}</span>'
        for name, text in entries
    )


def figure(chart: str, caption: str) -> str:
    """Return a chart with its caption; both are markup."""
    return f"<figure>{chart}<figcaption>{caption}</figcaption></figure>"
