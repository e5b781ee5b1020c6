"""The frozen values that go into a decision and come out of it."""

from __future__ import annotations

import copyreg
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, Protocol, overload

import crossgate._core as _core
from crossgate._core import Span
from crossgate._support.errors import ModelError, first_line


def content(title: str, text: str) -> str:
    """Return the head of a document, `title: text`."""
    return f"{title}: {text}" if title and text else title or text


class Vector(Protocol):
    """Numbers in a row: a list, a tuple, an `array.array` or an array of numpy, of one dimension.

    A protocol, since an array of numpy is no `Sequence` to a type checker.
    """

    def __len__(self) -> int:
        """Return how many numbers there are."""

    def __iter__(self) -> Iterator[float]:
        """Return the numbers one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """Something that can be picked: a skill, a tool, a chunk of text.

    Attributes:
        id: Unique within an index. Ties between equal scores go to the smaller id.
        text: The short text of the document; for a skill, its description.
        title: A name or heading, read together with the text; empty if there is none.
        body: The long text, such as what follows the front matter of a skill; empty if there is
            none. Its first 6,000 characters are searched, by their words.
        metadata: JSON values that belong to the caller; kept and never read.
        vector: Embedding of the document by the index's embedder, or None to have it embedded.
    """

    id: str
    text: str
    title: str = ""
    body: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    vector: Vector | None = None

    @property
    def content(self) -> str:
        """The head, which every scorer reads: `title: text`.

        The text of a document with a body is its description. What it says the document is not for
        ("do not use for ...") is left out here: those words would count in the document's favour.
        """
        return content(self.title, _core.announced(self.text) if self.body else self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate(Document):
    """A document that another retriever found, with what that retriever knows about it.

    Attributes:
        cosine: Cosine similarity of query and document in [-1, 1], or None if it is not known.
        score: The retriever's own score, higher is better, of any scale: only the order counts.
    """

    cosine: float | None = None
    score: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """What a reranker reads of a document, and what stage 1 knows about it.

    Attributes:
        id: The document's id.
        text: What to read.
        cosine: Cosine similarity of query and document in [-1, 1]; None without vectors.
        bm25: Raw BM25 score, at least 0.
        blend: Stage-1 score in [-1, 1].
    """

    id: str
    text: str
    cosine: float | None = None
    bm25: float = 0.0
    blend: float = 0.0


class Verdict(StrEnum):
    """What the gate made of stage 1."""

    CONFIDENT = "confident"
    """Stage 1 has a clear winner, so its order stands and stage 2 is not paid for."""
    AMBIGUOUS = "ambiguous"
    """Stage 1 is in doubt, so stage 2 decides."""
    NOTHING_RELEVANT = "nothing_relevant"
    """No candidate fits, so nothing is selected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Degradation:
    """Something that did not run as configured, while the decision went on without it.

    Attributes:
        code: Identifier for programs, such as `reranker_unavailable`.
        detail: One line for a person to read: what happened and what to do.
    """

    code: str
    detail: str


def degradation(part: Literal["embedder", "reranker"], error: Exception) -> Degradation:
    """Name what went wrong in a part of the cascade that the decision can do without."""
    unavailable, failed = {
        "embedder": ("embedder_unavailable", "embedder_failed"),
        "reranker": ("reranker_unavailable", "reranker_failed"),
    }[part]
    absent = isinstance(error, ModelError) and error.code != "model_failed"
    return Degradation(code=unavailable if absent else failed, detail=first_line(error))


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultWarning:
    """A sign that a result is worth less than it looks, although everything ran as configured.

    Attributes:
        code: Identifier for programs, such as `flat_scores`.
        detail: One line for a person to read: what was seen, the threshold, and what to look at.
    """

    code: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One candidate with everything that was computed about it.

    Attributes:
        document: The document itself, with its metadata.
        cosine: Cosine similarity in [-1, 1], or None without vectors.
        bm25: Raw BM25 score, at least 0, without an upper bound.
        blend: Stage-1 score in [-1, 1]: the weighted mean of cosine and bounded BM25.
        rerank_score: The reranker's raw score: a logit of a cross-encoder, a remote reranker's own
            number. None if stage 2 did not read this pair. Not comparable between two queries or
            two rerankers.
        score: What the final order is made of; its scale depends on `combine` and on the stage.
            None for a candidate that a floor dropped or that stage 2 had no room for.
        relevance: The probability that the document fits, in [0, 1], whatever the other
            candidates are like; None where the profile has no model of that.
        stage1_rank: Place after stage 1, from 1.
        stage2_rank: Place after stage 2, from 1, or None if stage 2 did not read this pair.
        provider: What made `score`, and with it the scale of the score: `stage1` or the name
            of the reranker. Later steps must not compare scores of two providers.
        truncated: Whether the end of the document did not fit into the reranker's input.
        dropped: Why the hit was not selected, as a stable code, or None for a selected hit.
        passage: The part of the document's body that fits the query best, in characters; None
            where it has no body, or none of its words.
        index: Place among the candidates that `rerank` was given, from 0; None where there is no
            such list, as for `Router.route`.
    """

    document: Document
    cosine: float | None
    bm25: float
    blend: float
    rerank_score: float | None
    score: float | None
    stage1_rank: int
    stage2_rank: int | None
    provider: str
    truncated: bool
    dropped: str | None
    relevance: float | None = None
    passage: Span | None = None
    index: int | None = None

    @property
    def id(self) -> str:
        """The document's id."""
        return self.document.id

    @property
    def title(self) -> str:
        """The document's title; empty where it has none."""
        return self.document.title

    @property
    def excerpt(self) -> str:
        """What of the document fits the query best: the passage, or without one the text."""
        if self.passage is None:
            return self.document.text
        return self.document.body[self.passage.start : self.passage.end]

    def to_dict(self, *, text: bool = False) -> dict[str, Any]:
        """Return the hit as JSON values, the document's vector left out.

        `provider` says what made `score`; the steps of `crossgate.pipelines`
        scale their boosts by it.

        Args:
            text: Also include the document's text.
        """
        return {
            "id": self.document.id,
            "index": self.index,
            "title": self.document.title,
            **({"text": self.document.text} if text else {}),
            "cosine": self.cosine,
            "bm25": self.bm25,
            "blend": self.blend,
            "rerank_score": self.rerank_score,
            "score": self.score,
            "relevance": self.relevance,
            "stage1_rank": self.stage1_rank,
            "stage2_rank": self.stage2_rank,
            "provider": self.provider,
            "truncated": self.truncated,
            "dropped": self.dropped,
            "passage": None if self.passage is None else self.passage.to_dict(),
            "metadata": dict(self.document.metadata),
        }

    def __repr__(self) -> str:
        from crossgate._values.rendering import hit_line

        return hit_line(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteResult:
    """A decision: what was selected, from which candidates, and why.

    Its length is the number of selected hits, and iterating yields them, best first; so it is false
    if nothing fits. A notebook shows it as a table.

    Attributes:
        verdict: What the gate made of stage 1.
        reason: Stable code of the rule that decided; see `docs/reasons.md`.
        stage: 1 if the stage-1 order stands, 2 if a reranker's scores count.
        confidence: The probability that the first hit fits rather than nothing, in [0, 1]; None
            where the profile has no model for it. See docs/profile.md.
        selected: The hits that fit, best first; empty if nothing does.
        hits: All candidates that were considered, best first, the selected ones among them.
        degraded: What did not run as configured; empty when all went well.
        timings: Milliseconds per step. The only part of a result that differs between two runs.
        trace: The inputs and outputs of each step, as JSON values, enough to replay the decision.
        decision_id: Identifies the decision in a log, 32 hexadecimal digits; None without
            telemetry.
        warnings: Signs that the result is worth less than it looks; see docs/reasons.md.
    """

    verdict: Verdict
    reason: str
    stage: int
    confidence: float | None
    selected: tuple[Hit, ...]
    hits: tuple[Hit, ...]
    degraded: tuple[Degradation, ...]
    timings: Mapping[str, float]
    trace: Mapping[str, Any]
    decision_id: str | None = None
    warnings: tuple[ResultWarning, ...] = ()

    @property
    def ids(self) -> list[str]:
        """The ids of the selected documents, best first."""
        return [hit.id for hit in self.selected]

    def to_dict(self, *, trace: bool = False, text: bool = False) -> dict[str, Any]:
        """Return the result as JSON values.

        Args:
            trace: Also include the trace.
            text: Also include the text of each hit.
        """
        values: dict[str, Any] = {
            "schema": "crossgate/1",
            "verdict": self.verdict.value,
            "reason": self.reason,
            "stage": self.stage,
            "confidence": self.confidence,
            "selected": self.ids,
            "hits": [hit.to_dict(text=text) for hit in self.hits],
            "degraded": [{"code": note.code, "detail": note.detail} for note in self.degraded],
            "warnings": [
                {"code": warning.code, "detail": warning.detail} for warning in self.warnings
            ],
            "timings_ms": dict(self.timings),
        }
        if self.decision_id is not None:
            values["decision_id"] = self.decision_id
        if trace:
            values["trace"] = dict(self.trace)
        return values

    def to_json(self, *, trace: bool = False, text: bool = True, indent: int | None = None) -> str:
        """Return the result as JSON, in ASCII.

        Args:
            trace: Also include the trace.
            text: Also include the text of each hit.
            indent: Spaces per level; None for one line.

        Raises:
            TypeError: If a document's metadata holds what JSON cannot.
        """
        values = self.to_dict(trace=trace, text=text)
        return json.dumps(values, allow_nan=False, indent=indent)

    def to_pandas(self) -> Any:
        """Return all hits as a `pandas.DataFrame`, a row each, best first.

        Raises:
            ModelError: `dependency_missing` without pandas.
        """
        from crossgate._values.rendering import result_frame

        return result_frame(self)

    def __len__(self) -> int:
        return len(self.selected)

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.selected)

    @overload
    def __getitem__(self, position: int) -> Hit: ...
    @overload
    def __getitem__(self, position: slice) -> tuple[Hit, ...]: ...
    def __getitem__(self, position: int | slice) -> Hit | tuple[Hit, ...]:
        return self.selected[position]

    def __repr__(self) -> str:
        from crossgate._values.rendering import result_line

        return result_line(self)

    def _repr_html_(self) -> str:
        from crossgate._values.rendering import result_html

        return result_html(self)


def _span(start: int, end: int) -> Span:
    values = {"id": "", "cosine": None, "bm25": 0.0, "overlap": 0, "blend": 0.0}
    span = _core.Scored(**values, passage={"start": start, "end": end}).passage
    assert span is not None
    return span


# For results to go through a process pool.
copyreg.pickle(Span, lambda span: (_span, (span.start, span.end)))
