"""A report as a page: figures, charts, examples and all queries. A page loads nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import groupby

from crossgate._evaluation.metrics import OUTCOMES, Answered
from crossgate._evaluation.sections import (
    LABELS,
    Chart,
    Section,
    Table,
    advice,
    gate_sentence,
    headline,
    misses,
    reference,
    sections,
    sorted_answers,
    subject,
)
from crossgate._evaluation.summary import Report
from crossgate._values.results import why

_BASE_STYLE = """
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
figure { margin: 0; } .charts { margin: 1rem 0; }
figcaption { font-size: .85rem; color: var(--soft); }
svg { width: 100%; height: auto; display: block; }
svg text { fill: var(--text); font: 11px system-ui, sans-serif; }
svg .tick { fill: var(--soft); font-size: 10px; }
.grid { stroke: var(--rule); }
.ideal { fill: none; stroke: var(--soft); stroke-dasharray: 4 3; }
.line { fill: none; stroke: var(--match); stroke-width: 2; }
.mark { fill: var(--no-match); } .spot { fill: transparent; }
.spot:hover { fill: var(--match); }
.dot { fill: var(--match); fill-opacity: .7; }

abbr { text-decoration: underline dotted; cursor: help; }
details { border-bottom: 1px solid var(--rule); padding: .4rem 0; }
summary { cursor: pointer; } summary h2 { display: inline; }
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
        f"<title>{escape(title)}</title><style>{_BASE_STYLE}{style}</style></head>"
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
    "p50": "half of the queries take at most this long",
    "p95": "95 of 100 queries take at most this long",
    "p99": "99 of 100 queries take at most this long",
    "milliseconds": "from the query to the answer, including its embedding, with models loaded",
    "first pick does not fit": "queries with a match whose first pick is wrong or missing",
    "recall@1": "share of the fitting documents at rank 1",
    "confidence": "the probability that the first pick fits",
    "decided by": "the rule of the gate or of stage 2 that decided the query",
    "stage": "1: meaning and words decided; 2: the cross-encoder was asked too",
}
"""Explanations of the terms in table heads."""


def explained(word: str, meaning: str | None = None) -> str:
    """Return a term as markup, with its explanation on hover if there is one."""
    meaning = meaning or _TERMS.get(word)
    return f'<abbr title="{escape(meaning)}">{escape(word)}</abbr>' if meaning else escape(word)


def figure(chart: str, caption: str) -> str:
    """Return a chart with its caption; both are markup."""
    return f"<figure>{chart}<figcaption>{caption}</figcaption></figure>"


_IDS_SHOWN = 3

STYLE = """
.queries { margin: 1rem 0; } .queries form { display: flex; flex-wrap: wrap; gap: .5rem; }
.queries input, .queries select { font: inherit; font-size: .9rem;
  padding: .3rem .5rem; color: var(--text); background: var(--panel);
  border: 1px solid var(--rule); border-radius: 4px; max-width: 100%; }
.queries input { flex: 1 1 14rem; min-width: 0; }
.queries input::placeholder { color: var(--soft); opacity: 1; }
.queries td abbr { text-decoration: none; }
.queries .scroll { max-height: 32rem; overflow: auto; margin-top: .5rem; }
.queries td, .queries th { text-align: left; white-space: nowrap; overflow-wrap: normal; }
.queries td:first-child, .queries td.ids { white-space: normal; }
.queries td.ids { min-width: 10rem; } .queries table { width: 100%; }
.queries th { position: sticky; top: 0; background: var(--ground); z-index: 1; }
.queries td:first-child { min-width: 14rem; position: static; }
.misses table { width: 100%; } .misses .scroll { max-height: 36rem; overflow: auto; }
.misses td, .misses th { text-align: left; white-space: normal; }
.misses td:first-child { white-space: nowrap; min-width: 8rem; }
.misses td:nth-child(2) { width: 50%; min-width: 11rem; }
.misses th { position: sticky; top: 0; background: var(--ground); z-index: 1; }
@media (max-width: 40rem) { .misses .scroll { max-height: none; }
  .misses tr:first-child { display: none; }
  .misses td, .misses td:first-child, .misses td:nth-child(2) { display: block; width: auto;
    min-width: 0; border: 0; padding: .1rem 0; position: static; }
  .misses td:nth-child(2) { font-size: .95rem; }
  .misses td:nth-child(3)::before { content: "picked "; color: var(--soft); }
  .misses td:nth-child(4)::before { content: "fits "; color: var(--soft); }
  .misses tr { display: block; padding: .5rem 0; border-bottom: 1px solid var(--rule); } }
th button { font: inherit; color: inherit; background: none; border: 0; padding: 0;
  cursor: pointer; }
th[aria-sort] button::after { content: " \\2191"; }
th[aria-sort="descending"] button::after { content: " \\2193"; }
.outcome::before { content: "\\25cf\\a0"; color: var(--match); }
.outcome.wrong::before { content: "\\2717\\a0"; color: var(--bad); }
.outcome.injected::before { content: "+\\a0"; color: var(--bad); font-weight: bold; }
.outcome.missed::before { content: "\\25cb\\a0"; color: var(--no-match); }
.legend { list-style: none; padding: 0; } .legend li { margin: 0; }
noscript { color: var(--soft); }
"""

# Works on every table of queries. Nothing is loaded, and nothing leaves the page.
SCRIPT = """
for (const box of document.querySelectorAll(".queries")) {
  const form = box.querySelector("form"), rows = [...box.querySelectorAll("tbody tr")];
  const count = box.querySelector("output");

  const filter = () => {
    const words = form.search.value.toLowerCase().split(/\\s+/).filter(Boolean);
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !(words.every(word => text.includes(word))
        && (!form.outcome.value || row.dataset.outcome === form.outcome.value)
        && (!form.kind || !form.kind.value || row.dataset.kind === form.kind.value));
    }
    count.textContent = rows.filter(row => !row.hidden).length + " of " + rows.length;
  };
  form.addEventListener("input", filter);
  form.addEventListener("submit", event => event.preventDefault());

  const body = box.querySelector("tbody"), heads = [...box.querySelectorAll("thead th")];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = row => row.cells[column].textContent;
      rows.sort((one, other) => key(one).localeCompare(key(other), undefined, { numeric: true }));
      if (down) rows.reverse();
      body.append(...rows);
    });
  });
  form.hidden = false;
  filter();
}
"""


def queries_table(queries: Sequence[Answered], mode: str) -> Iterator[str]:
    """Yield the table of all queries; without scripts it is shown in full."""
    if not queries:
        return
    outcomes = Counter(query.outcome for query in queries)
    kinds = sorted({query.kind for query in queries} - {""})
    yield f'<h2>All queries, {escape(mode)}</h2><div class="queries"><form hidden>'
    yield '<input name="search" type="search" placeholder="search" aria-label="search">'
    yield '<select name="outcome" aria-label="outcome"><option value="">all outcomes</option>'
    for name in OUTCOMES:
        if outcomes[name]:
            yield f'<option value="{name}">{LABELS[name]}: {outcomes[name]}</option>'
    yield "</select>"
    if kinds:
        yield '<select name="kind" aria-label="kind"><option value="">all kinds</option>'
        yield "".join(f'<option value="{escape(kind)}">{escape(kind)}</option>' for kind in kinds)
        yield "</select>"

    yield '<output class="soft"></output></form>'
    yield "<noscript>Searching needs JavaScript; the table is complete.</noscript>"
    titles = ["query", *(["kind"] if kinds else []), "fits", "picked", "outcome"]
    titles += ["confidence", "decided by", "stage", "id"]
    head = "".join(f"<th>{explained(title)}</th>" for title in titles)
    yield f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>'
    yield from (_query_row(query, with_kind=bool(kinds)) for query in queries)
    yield "</tbody></table></div></div>"


def _query_row(query: Answered, *, with_kind: bool) -> str:
    meaning = escape(OUTCOMES[query.outcome])
    confidence = "" if query.confidence is None else f"{query.confidence:.3f}"
    head = [query.text, query.kind] if with_kind else [query.text]
    reason = explained(query.reason, why(query.reason, len(query.picked)))
    rest = [confidence, reason, str(query.stage), escape(query.id)]
    return (
        f'<tr data-outcome="{query.outcome}" data-kind="{escape(query.kind)}">'
        f"{''.join(f'<td>{escape(cell)}</td>' for cell in head)}"
        f"{_ids(query.fits)}{_ids(query.picked)}"
        f'<td class="outcome {query.outcome}" title="{meaning}">{LABELS[query.outcome]}</td>'
        f"{''.join(f'<td>{cell}</td>' for cell in rest)}</tr>"
    )


def _ids(ids: Sequence[str]) -> str:
    """Return a cell with the first ids; all are shown on hover."""
    whole, more = escape(", ".join(ids)), len(ids) - _IDS_SHOWN
    if more <= 0:
        return f'<td class="ids">{whole}</td>'
    first = escape(", ".join(ids[:_IDS_SHOWN]))
    return f'<td class="ids" title="{whole}">{first} <span class="soft">and {more} more</span></td>'


def html_report(reports: Sequence[Report]) -> str:
    """Return one HTML page with all reports; the texts of queries and documents are escaped."""
    names = ", ".join(f"{report.header.dataset} {report.header.split}" for report in reports)
    parts = (part for report in reports for part in _report(report))
    return page(f"crossgate eval: {names}", parts, style=STYLE, script=SCRIPT)


def _report(report: Report) -> Iterator[str]:
    header = report.header
    yield f"<h1>{escape(header.dataset)}, split {escape(header.split)}</h1>"
    yield f'<p class="headline">{escape(headline(report))}</p>'
    yield from _misses(report)
    sentence = gate_sentence(report)
    kind = "headline warning" if sentence.startswith("WARNING") else "headline"
    yield f'<p class="{kind}">{escape(sentence)}</p>'
    yield from _columns(map(_section, sections(report)))
    yield from queries_table(sorted_answers(report), reference(report))
    yield from _subject(report)


def _columns(parts: Iterable[str]) -> Iterator[str]:
    """Put parts side by side on a wide page, below each other on a narrow one."""
    markup = "".join(f"<section>{part}</section>" for part in parts if part)
    if markup:
        yield f'<div class="columns">{markup}</div>'


def html_sections(title: str, sentence: str, sections: Sequence[Section]) -> str:
    """Return a page of sections under a sentence; the first section is open."""
    head = f'<h1>{escape(title)}</h1><p class="headline">{escape(sentence)}</p>'
    return page(
        title,
        [head, _section(sections[0], " open"), *_columns(map(_section, sections[1:]))],
    )


def _section(section: Section, opened: str = "") -> str:
    parts = []
    for kind, group in groupby(section.parts, type):
        markup = "".join(map(_part, group))
        parts.append(f'<div class="charts">{markup}</div>' if kind is Chart else markup)
    return _folded(section.title, parts, opened)


def _folded(title: str, parts: Iterable[str], opened: str = "") -> str:
    """Return a part of the page that opens on a click."""
    return f"<details{opened}><summary><h2>{escape(title)}</h2></summary>{''.join(parts)}</details>"


def _part(part: str | Table | Chart) -> str:
    if isinstance(part, str):
        return f"<p>{escape(part)}</p>"
    if isinstance(part, Chart):
        return figure(part.svg(), escape(part.caption))
    rows = []
    for row in part.rows:
        notes = [f"the same: {name}" for name in row.same]
        notes = [row.explanation, *notes] if row.explanation else notes
        small = "".join(f"<small>{escape(note)}</small>" for note in notes)
        rows.append([f"{escape(row.name)}{small}", *map(_stacked, row.cells)])
    return table(part.head, rows)


def _stacked(cell: str) -> str:
    """Return a cell as markup, with its interval on a separate line."""
    value, bracket, interval = escape(cell).partition(" [")
    return f"{value}<small>[{interval}</small>" if bracket else value


def _misses(report: Report) -> Iterator[str]:
    """Yield the queries with a wrong answer, and advice."""
    wrong = misses(report)
    if wrong:
        rows = table(["outcome", "query", "picked", "fits"], [_miss(query) for query in wrong])
        found = Counter(query.outcome for query in wrong)
        marks = "".join(
            f'<li><span class="outcome {name}">{LABELS[name]}</span>, {found[name]}: {meaning}</li>'
            for name, meaning in OUTCOMES.items()
            if found[name]
        )
        yield f'<h2>Queries to look at</h2><ul class="legend soft">{marks}</ul>'
        yield f'<div class="misses">{rows}</div>'
    suggestions = "".join(f"<li>{_code(escape(line))}</li>" for line in advice(report))
    if suggestions:
        yield f"<h2>What to try</h2><ul>{suggestions}</ul>"


def _miss(query: Answered) -> list[str]:
    label = f'<span class="outcome {query.outcome}">{LABELS[query.outcome]}</span>'
    picked, fitting = (
        ", ".join(f"<code>{escape(id)}</code>" for id in ids) or "nothing"
        for ids in (query.picked, query.fits)
    )
    sure = "" if query.confidence is None else f"<small>confidence {query.confidence:.2f}</small>"
    return [label, escape(query.text), f"{picked}{sure}", fitting]


def _code(markup: str) -> str:
    """Mark the commands between backticks as code."""
    parts = markup.split("`")
    return "".join(f"<code>{part}</code>" if at % 2 else part for at, part in enumerate(parts))


def _subject(report: Report) -> Iterator[str]:
    yield (
        "<h2>How this was measured</h2>"
        "<p>Stage 1 scores all documents by meaning and words. Stage 2, the cross-encoder, reads "
        "the best of them together with the query. The gate decides which queries it reads. "
        "Brackets contain 95 % of bootstrap replicates.</p>"
    )
    yield "".join(f'<p class="soft">{escape(line)}</p>' for line in subject(report))
