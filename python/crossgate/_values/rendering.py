"""Renders results as text, as HTML for notebooks, and as pandas tables."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from crossgate._support.extras import package
from crossgate._support.wording import counted
from crossgate._values.messages import DROPPED, why

if TYPE_CHECKING:
    from crossgate._values.results import Hit, RouteResult

_IDS = 3
_ID_CHARACTERS = 40
_TEXT_CHARACTERS = 160
_ROWS = 20


def hit_line(hit: Hit) -> str:
    """Return a hit on one short line."""
    position = "" if hit.index is None else f" at {hit.index}"
    score = "" if hit.score is None else f", score {hit.score:.4g}"
    return f"<Hit {_cut(hit.id, _ID_CHARACTERS)!r}{position}: {hit.dropped or 'selected'}{score}>"


def result_line(result: RouteResult) -> str:
    """Return a decision on one short line."""
    ids = [repr(_cut(id, _ID_CHARACTERS)) for id in result.ids[:_IDS]]
    if len(result.ids) > _IDS:
        ids.append("...")
    parts = [
        f"{len(result.ids)} of {len(result.hits)} selected"
        + (": " if ids else "")
        + ", ".join(ids),
        f"{result.verdict.value} ({result.reason})",
        f"stage {result.stage}",
    ]
    if result.confidence is not None:
        parts.append(f"confidence {result.confidence:.2f}")
    if result.shortlist:
        parts.append(f"shortlist of {len(result.shortlist)}")
    if result.degraded:
        parts.append("degraded: " + ", ".join(note.code for note in result.degraded))
    return f"<RouteResult {'; '.join(parts)}>"


def result_html(result: RouteResult) -> str:
    """Return a decision as an HTML table, with all texts escaped."""
    verdict = result.verdict.value.replace("_", " ")
    sure = "" if result.confidence is None else f", confidence {result.confidence:.2f}"
    if result.any_fits is not None:
        sure += f", {result.any_fits:.0%} that any fits"
    head = (
        f"<b>{escape(verdict)}</b>: {escape(why(result.reason, len(result.ids)))} "
        f"({len(result.ids)} of {len(result.hits)} selected{sure})"
    )
    columns = "".join(
        f"<th style='text-align:left'>{heading}</th>"
        for heading in ("", "id", "text", "fits", "score", "outcome")
    )
    listed = {hit.id for hit in result.shortlist}
    rows = "".join(
        _row(position, hit, listed=hit.id in listed)
        for position, hit in enumerate(result.hits[:_ROWS], start=1)
    )
    more = len(result.hits) - _ROWS
    notes = [f"{counted(more, 'more candidate')} in <code>hits</code>"] if more > 0 else []
    notes += [f"<code>{note.code}</code>: {escape(note.detail)}" for note in result.degraded]
    notes += [
        f"<code>{warning.code}</code>: {escape(warning.detail)}" for warning in result.warnings
    ]
    return (
        f"<div><p>{head}</p><table><thead><tr>{columns}</tr></thead><tbody>{rows}</tbody></table>"
        + "".join(f"<p>{note}</p>" for note in notes)
        + "</div>"
    )


def _row(position: int, hit: Hit, *, listed: bool) -> str:
    outcome = "selected" if hit.dropped is None else DROPPED.get(hit.dropped, hit.dropped)
    if listed and hit.dropped is not None:
        outcome += ", on the shortlist"
    text = f"{hit.title}: {hit.excerpt}" if hit.title not in ("", hit.id) else hit.excerpt
    cells = (
        str(position),
        escape(_cut(hit.id, _ID_CHARACTERS)),
        escape(_cut(text, _TEXT_CHARACTERS)),
        "" if hit.relevance is None else f"{hit.relevance:.0%}",
        "" if hit.score is None else f"{hit.score:.4g}",
        escape(outcome),
    )
    weight = "bold" if hit.dropped is None else "normal"
    row = "".join(f"<td style='text-align:left'>{cell}</td>" for cell in cells)
    return f"<tr style='font-weight:{weight}'>{row}</tr>"


def result_frame(result: RouteResult) -> Any:
    """Return a row per hit as a `pandas.DataFrame`.

    Raises:
        ModelError: `dependency_missing` without pandas.
    """
    pandas = package("pandas", "to_pandas")
    rows: list[dict[str, Any]] = [
        {**hit.to_dict(text=True), "selected": hit.dropped is None} for hit in result.hits
    ]
    columns = ["index", "id", "title", "text", "selected", "dropped", "relevance", "score"]
    columns += ["rerank_score"]
    columns += ["cosine", "bm25", "blend", "stage1_rank", "stage2_rank", "provider", "metadata"]
    return pandas.DataFrame(rows, columns=columns)


def _cut(text: str, most: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"
