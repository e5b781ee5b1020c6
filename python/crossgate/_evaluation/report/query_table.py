"""The table of all queries in a page; a few lines of script search, filter and save it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape

from crossgate._evaluation.measures.per_query import OUTCOMES, Answered
from crossgate._evaluation.report.page import explained
from crossgate._values.messages import why

_IDS_SHOWN = 3

STYLE = """
.queries { margin: 1rem 0; } .queries form { display: flex; flex-wrap: wrap; gap: .5rem; }
.queries input, .queries select, .queries button { font: inherit; font-size: .9rem;
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
.outcome.wrong::before, .outcome.missed::before, .outcome.injected::before { color: var(--bad); }
noscript { color: var(--soft); }
"""

# Works on every table of the page. Nothing is loaded, and nothing leaves the page without a click.
SCRIPT = """
for (const box of document.querySelectorAll(".queries")) {
  const form = box.querySelector("form"), rows = [...box.querySelectorAll("tbody tr")];
  const count = box.querySelector("output");
  const shown = () => rows.filter(row => !row.hidden);
  const filter = () => {
    const words = form.search.value.toLowerCase().split(/\\s+/).filter(Boolean);
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !(words.every(word => text.includes(word))
        && (!form.outcome.value || row.dataset.outcome === form.outcome.value)
        && (!form.kind || !form.kind.value || row.dataset.kind === form.kind.value));
    }
    count.textContent = shown().length + " of " + rows.length;
  };
  form.addEventListener("input", filter);
  form.addEventListener("submit", event => event.preventDefault());
  form.save.addEventListener("click", () => {
    // The apostrophe keeps a spreadsheet from taking a cell for a formula.
    const text = node => node.dataset.whole ?? node.textContent;
    const safe = text => text.replace(/^[=+@\\t\\r-]/, "'$&").replace(/"/g, '""');
    const cell = node => '"' + safe(text(node)) + '"';
    const lines = [box.querySelector("thead tr"), ...shown()]
      .map(row => [...row.cells].map(cell).join(","));
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob(["\\ufeff" + lines.join("\\r\\n")],
      { type: "text/csv" }));
    link.download = "queries.csv";
    link.click();
    URL.revokeObjectURL(link.href);
  });
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
            yield f'<option value="{name}">{name}: {outcomes[name]}</option>'
    yield "</select>"
    if kinds:
        yield '<select name="kind" aria-label="kind"><option value="">all kinds</option>'
        yield "".join(f'<option value="{escape(kind)}">{escape(kind)}</option>' for kind in kinds)
        yield "</select>"
    yield '<button name="save" type="button">Save as CSV</button>'
    yield '<output class="soft"></output></form>'
    yield "<noscript>Searching and saving need JavaScript; the table is complete.</noscript>"
    titles = ["query", *(["kind"] if kinds else []), "fits", "picked", "outcome"]
    titles += ["confidence", "decided by", "stage", "id"]
    head = "".join(f"<th>{explained(title)}</th>" for title in titles)
    yield f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>'
    yield from (_row(query, with_kind=bool(kinds)) for query in queries)
    yield "</tbody></table></div></div>"


def _row(query: Answered, *, with_kind: bool) -> str:
    meaning = escape(OUTCOMES[query.outcome])
    confidence = "" if query.confidence is None else f"{query.confidence:.3f}"
    head = [query.text, query.kind] if with_kind else [query.text]
    reason = explained(query.reason, why(query.reason, len(query.picked)))
    rest = [confidence, reason, str(query.stage), escape(query.id)]
    return (
        f'<tr data-outcome="{query.outcome}" data-kind="{escape(query.kind)}">'
        f"{''.join(f'<td>{escape(cell)}</td>' for cell in head)}"
        f"{_ids(query.fits)}{_ids(query.picked)}"
        f'<td class="outcome {query.outcome}" title="{meaning}">{query.outcome}</td>'
        f"{''.join(f'<td>{cell}</td>' for cell in rest)}</tr>"
    )


def _ids(ids: Sequence[str]) -> str:
    """Return a cell with the first ids; all are shown on hover, and saved."""
    whole, more = escape(", ".join(ids)), len(ids) - _IDS_SHOWN
    if more <= 0:
        return f'<td class="ids">{whole}</td>'
    shown = escape(", ".join(ids[:_IDS_SHOWN]))
    return (
        f'<td class="ids" title="{whole}" data-whole="{whole}">{shown} '
        f'<span class="soft">and {more} more</span></td>'
    )
