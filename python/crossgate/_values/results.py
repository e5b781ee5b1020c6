"""Frozen values: documents, candidates, passages, hits and results, and how they are shown."""

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
    """A one-dimensional vector: a list, a tuple, an `array.array` or an array of numpy.

    A protocol, since type checkers do not treat arrays of numpy as a `Sequence`.
    """

    def __len__(self) -> int:
        """Return how many numbers there are."""

    def __iter__(self) -> Iterator[float]:
        """Return the numbers one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A skill, a tool or a chunk of text that a query can select.

    Attributes:
        id: Unique within an index. Ties between equal scores go to the smaller id.
        text: The short text of the document; for a skill, its description.
        title: A name or heading, read together with the text; may be empty.
        body: The long text, such as the Markdown of a skill below its front matter; may be empty.
            An index searches its first 6,000 characters, by their words; stage 2 reads the
            best-matching passages of all of it.
        metadata: JSON values of the caller, stored and never interpreted.
        vector: Embedding of the document by the index's embedder, or None to have it embedded.
        triggers: Words and phrases that should select the document, beside those that its
            description lists.
        examples: Prompts that should select the document.
        counterexamples: Prompts that should not select the document.
        is_description: Whether `text` describes a skill or tool, so that triggers are read from it
            and its exclusions ("do not use for ...") are not searched; a passage of text is
            content. None to decide by the document: it has a body, or a name such as
            `release-notes` as its title, or as its id without a title.
    """

    id: str
    text: str
    title: str = ""
    body: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    vector: Vector | None = None
    triggers: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    counterexamples: tuple[str, ...] = ()
    is_description: bool | None = None

    def is_read_as_description(self) -> bool:
        """Return whether the text describes a skill or tool."""
        if self.is_description is not None:
            return self.is_description
        return _core.is_description(self.id, self.title, self.text, self.body)

    @property
    def content(self) -> str:
        """The head, which every scorer reads: `title: text`.

        The exclusions of a description ("do not use for ...") are left out, since their words would
        raise the document's score.
        """
        text = _core.strip_exclusions(self.text) if self.is_read_as_description() else self.text
        return content(self.title, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate(Document):
    """A document that another retriever found, with the retriever's scores.

    Attributes:
        cosine: Cosine similarity of query and document in [-1, 1], or None if unknown.
        score: The retriever's score on any scale, higher is better; only the order counts.
        embedder: Identity of the embedder whose vectors have the cosine, as `Index.search` sets it;
            empty if unknown. The bundled profile has weights for cosines of the bundled embedder.
    """

    cosine: float | None = None
    score: float | None = None
    embedder: str = ""

    def is_read_as_description(self) -> bool:
        """Return whether the text describes a body; without a body, it is a passage."""
        return bool(self.body) if self.is_description is None else self.is_description


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """The text of a document for a reranker, with its stage-1 scores.

    Attributes:
        id: The document's id.
        text: The text to score.
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
    """The gate's judgement of stage 1."""

    CONFIDENT = "confident"
    """Stage 1 has a clear winner: its order is final, and stage 2 is skipped."""
    AMBIGUOUS = "ambiguous"
    """Stage 1 is ambiguous: stage 2 decides."""
    NOTHING_RELEVANT = "nothing_relevant"
    """No candidate fits, so nothing is selected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Degradation:
    """A part of the cascade that did not run as configured, although the decision was made.

    Attributes:
        code: Identifier for programs, such as `reranker_unavailable`.
        detail: One human-readable line with the problem and the remedy.
    """

    code: str
    detail: str


def degradation(part: Literal["embedder", "reranker"], error: Exception) -> Degradation:
    """Return the degradation for an error in an optional part of the cascade."""
    unavailable, failed = {
        "embedder": ("embedder_unavailable", "embedder_failed"),
        "reranker": ("reranker_unavailable", "reranker_failed"),
    }[part]
    absent = isinstance(error, ModelError) and error.code != "model_failed"
    return Degradation(code=unavailable if absent else failed, detail=first_line(error))


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultWarning:
    """A sign that a result is unreliable, although everything ran as configured.

    Attributes:
        code: Identifier for programs, such as `flat_scores`.
        detail: One human-readable line with the observation, the threshold and the remedy.
    """

    code: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One candidate with all of its scores and ranks.

    Attributes:
        document: The document itself, with its metadata.
        cosine: Cosine similarity in [-1, 1], or None without vectors.
        bm25: Raw BM25 score, at least 0, without an upper bound.
        blend: Stage-1 score in [-1, 1]: the weighted mean of cosine and bounded BM25.
        rerank_score: The reranker's raw score: the logit of a cross-encoder, or a remote reranker's
            number. None if stage 2 did not score this pair. Not comparable between queries or
            rerankers.
        score: The score of the final order; its scale depends on `combine` and on the stage. None
            for a candidate that a floor dropped or that was outside of stage 2's pool.
        relevance: The probability that the document fits, in [0, 1], given the scores of all
            candidates; None if the profile has no weights for it. Those of all hits add up to
            `any_fits`; with the profile for passages, several can fit, and the sum has no meaning.
        stage1_rank: Rank after stage 1, from 1.
        stage2_rank: Rank after stage 2, from 1, or None if stage 2 did not score this pair.
        provider: Origin and scale of `score`: `stage1` or the name of the reranker. Scores of two
            providers are not comparable.
        truncated: Whether the models read the document in part: the windows of a text of more than
            1,200 characters or a body of more than 6,000, or as much as fitted into their input.
        dropped: Why the hit was not selected, as a stable code, or None for a selected hit.
        passage: The best-matching part of the document's body, in characters; of the text, for a
            document without a body whose text is read in windows. None if the text was read whole,
            or if the body has no matching words.
        index: Position in the `candidates` argument of `rerank`, from 0; None for `Router.route`.
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
        """The document's title, which may be empty."""
        return self.document.title

    @property
    def excerpt(self) -> str:
        """The best-matching passage, or the text."""
        if self.passage is None:
            return self.document.text
        source = self.document.body or self.document.text
        return source[self.passage.start : self.passage.end]

    def to_dict(self, *, text: bool = False) -> dict[str, Any]:
        """Return the hit as JSON values, without the document's vector.

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
        return _hit_line(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteResult:
    """A decision: the selected documents, all candidates, and the reason.

    Its length is the number of selected hits, and iteration yields them, best first, so a result
    without a selection is false. Notebooks show it as a table.

    Attributes:
        verdict: The gate's judgement of stage 1.
        reason: Stable code of the rule that decided; see `docs/reasons.md`.
        stage: 1 if the order of stage 1 is final, 2 if a reranker's scores count.
        confidence: The probability that the first hit fits, in [0, 1], which is its relevance; None
            if the profile has no weights for it.
        any_fits: The probability that any of the hits fits, in [0, 1]; None if the profile has no
            model of it. See docs/profile.md.
        selected: The hits that are likely enough to act on, best first; may be empty.
        shortlist: The fewest hits, best first, that contain a fitting document with the probability
            `coverage`, given that one of the documents fits; empty if that is unlikely. It starts
            with the first selected hit. See docs/skills.md.
        coverage: The probability that `shortlist` promises, in (0, 1); None without a promise.
        hits: All considered candidates, best first, including the selected ones.
        degraded: Parts that did not run as configured; empty if all did.
        timings: Milliseconds per step. The only part of a result that differs between two runs.
        trace: The inputs and outputs of each step, as JSON values, enough to replay the decision.
        decision_id: Identifies the decision in a log, 32 hexadecimal digits; None without
            telemetry.
        warnings: Signs that the result is unreliable; see docs/reasons.md.
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
    any_fits: float | None = None
    shortlist: tuple[Hit, ...] = ()
    coverage: float | None = None

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
            "any_fits": self.any_fits,
            "selected": self.ids,
            "shortlist": [hit.id for hit in self.shortlist],
            "coverage": self.coverage,
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
            TypeError: If a document's metadata contains values that JSON cannot represent.
            ValueError: If it contains NaN or an infinite number.
        """
        values = self.to_dict(trace=trace, text=text)
        return json.dumps(values, allow_nan=False, indent=indent)

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
        return _result_line(self)


def span(start: int, end: int) -> Span:
    """Return a span of characters."""
    values = {"id": "", "cosine": None, "bm25": 0.0, "overlap": 0, "blend": 0.0}
    made = _core.Scored(**values, passage={"start": start, "end": end}).passage
    assert made is not None
    return made


# Lets results pass through a process pool.
copyreg.pickle(Span, lambda value: (span, (value.start, value.end)))


REASONS = {
    "no_candidates": "there was nothing to choose from",
    "improbable": "no candidate is likely enough",
    "below_floor": "no candidate reaches the floor of this section",
    "no_overlap": "no document shares a word with the query",
    "confident_winner": "one document leads, so stage 1 decides without the cross-encoder",
    "lexical_winner": "the words match one document, and no other comes close",
    "unreadable": "the models do not read the language of the query",
    "named": "the query names it",
    "unknown_name": "the query names what does not exist",
    "undecided": "no clear winner, and no cross-encoder available",
    "reranked": "no clear winner, so the cross-encoder decided",
    "rejected": "no clear winner, and no candidate is likely enough",
}
"""Explanation of a decision, by `RouteResult.reason`."""

_SEVERAL = "stage 1 decides without the cross-encoder, and the others have similar scores"

VERDICTS = {
    Verdict.CONFIDENT: "clear",
    Verdict.AMBIGUOUS: "ambiguous",
    Verdict.NOTHING_RELEVANT: "nothing relevant",
}
"""Words for a verdict, which is not a probability and so not called confident."""


def why(reason: str, picks: int) -> str:
    """Return the explanation of a decision that selected `picks` documents."""
    if picks > 1 and reason in ("confident_winner", "lexical_winner"):
        return _SEVERAL
    return REASONS.get(reason, reason)


DROPPED = {
    "nothing_relevant": "nothing is relevant",
    "below_floor": "below the floor",
    "below_cliff": "below the cliff",
    "not_reranked": "not in the pool",
    "not_named": "not named",
    "disagreement": "stage 1 disagrees",
    "rerank_min": "score too low",
    "rerank_margin": "too far behind",
    "irrelevant": "not relevant enough",
    "improbable": "unlikely to fit",
    "runner_up": "too far behind",
    "over_limit": "over the limit",
    "empty": "empty",
}
"""Why a hit was not selected, by `Hit.dropped`."""


_IDS = 3
_ID_CHARACTERS = 40


def _hit_line(hit: Hit) -> str:
    """Return a hit on one short line."""
    position = "" if hit.index is None else f" at {hit.index}"
    score = "" if hit.score is None else f", score {hit.score:.4g}"
    return f"<Hit {_cut(hit.id, _ID_CHARACTERS)!r}{position}: {hit.dropped or 'selected'}{score}>"


def _result_line(result: RouteResult) -> str:
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


def _cut(text: str, most: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"
