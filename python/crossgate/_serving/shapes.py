"""Requests and responses over HTTP, in the formats of Cohere, Jina, TEI, Voyage and crossgate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from uuid import uuid4

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from crossgate._decision.orderings import ranked
from crossgate._values.results import Hit, RouteResult

# These schemas describe checks of `rerank`, which has error codes for them.
_READABLE = {"type": "string", "pattern": r"[^\s\u0000\u001c-\u001f\u0085]"}
_ROW = {
    "type": "object",
    "properties": {"text": {"type": ["string", "null"]}, "title": {"type": ["string", "null"]}},
    "anyOf": [{"required": ["text"]}, {"required": ["title"]}],
}
_TEXTS = {"type": "array", "items": {"type": "string"}, "minItems": 1}
_DOCUMENTS = {"type": "array", "items": {"anyOf": [{"type": "string"}, _ROW]}, "minItems": 1}

# English text has about four characters per token.
_CHARS_PER_TOKEN = 4

Text = str | dict[str, Any]
Query = Annotated[str, WithJsonSchema(_READABLE)]
Documents = Annotated[list[Text], WithJsonSchema(_DOCUMENTS)]
Texts = Annotated[list[str], WithJsonSchema(_TEXTS)]


def _whole(value: object) -> object:
    """Return 3.0 as 3: JSON does not distinguish them."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Count = Annotated[int, Field(ge=1), BeforeValidator(_whole)]


class Asked(BaseModel):
    """A request, without type coercion, so that `false` is not a relevance of 0."""

    model_config = ConfigDict(strict=True)


class RerankRequest(Asked):
    """A request to `/v1/rerank` or `/v2/rerank`; other fields are ignored."""

    query: Query
    documents: Documents
    model: str | None = None
    top_n: Count | None = None
    return_documents: bool | None = None
    max_tokens_per_doc: Count | None = Field(
        None, description="Read only the start of each document; a token has four characters."
    )
    min_relevance: float | None = Field(
        None, description="Leave out less relevant documents; not part of the original API."
    )


class TextsRequest(Asked):
    """A request to TEI's `/rerank`; other fields are ignored."""

    query: Query
    texts: Texts
    raw_scores: bool = False
    return_text: bool = False
    top_n: Count | None = None
    min_relevance: float | None = Field(
        None, description="Leave out less relevant documents; not part of the original API."
    )


class VoyageRequest(Asked):
    """A request to Voyage's `/rerank`; other fields are ignored."""

    query: Query
    documents: Texts
    model: str | None = None
    top_k: Count | None = None
    return_documents: bool = False
    min_relevance: float | None = Field(
        None, description="Leave out less relevant documents; not part of the original API."
    )


class RouteRequest(Asked):
    """A request to `/route`."""

    query: str
    limit: Count | None = 2
    allow: list[str] | None = None
    deny: list[str] = []
    section: str | None = None
    grade: str | None = None
    material: str | list[str] | None = Field(
        None, description="Pasted texts that belong to the query; left out, they are recognised."
    )
    min_confidence: float | None = None
    coverage: float | None = Field(
        None, description="Probability that the shortlist contains a fitting document if one fits."
    )
    max_shortlist: Count | None = None


class Ranked(BaseModel):
    """One document in a response."""

    index: int = Field(description="Its position in the request, from 0.")
    relevance_score: float
    truncated: bool | None = Field(None, description="True if the document was read in part.")
    document: dict[str, Any] | str | None = None


class RerankAnswer(BaseModel):
    """The response of `/v1/rerank` and `/v2/rerank`."""

    id: str
    model: str
    results: list[Ranked]
    usage: dict[str, int]
    meta: dict[str, Any]


class VoyageAnswer(BaseModel):
    """The response of Voyage's `/rerank`."""

    object: str
    data: list[Ranked]
    model: str
    usage: dict[str, int]


class ScoredText(BaseModel):
    """One text in TEI's response."""

    index: int = Field(description="Its position in the request, from 0.")
    score: float
    text: str | None = None


class Refusal(BaseModel):
    """An error; which field holds the message depends on the format."""

    message: str | None = None
    detail: str | None = None
    error: str | dict[str, str] | None = None
    error_type: str | None = None
    code: str | None = None


def reranked(
    asked: RerankRequest, result: RouteResult, *, documents: bool, model: str
) -> dict[str, Any]:
    """Answer as Cohere and Jina do: clients of each ignore the fields of the other.

    Args:
        asked: The request.
        result: The decision.
        documents: Whether texts are returned if the request does not say.
        model: Name of the model that answered.
    """
    back = documents if asked.return_documents is None else asked.return_documents
    return {
        "id": str(uuid4()),
        "model": model,
        "results": [
            {"index": hit.index, "relevance_score": number}
            | ({"truncated": True} if _is_truncated(asked, hit) else {})
            | ({"document": _document(asked.documents, hit)} if back else {})
            for hit, number in ranked(result, limit=asked.top_n, least=asked.min_relevance)
        ],
        "usage": {"total_tokens": 0},
        "meta": {"api_version": {"version": "2"}, "billed_units": {"search_units": 0}},
    }


def voyage_ranked(asked: VoyageRequest, result: RouteResult, *, model: str) -> dict[str, Any]:
    """Answer as Voyage does."""
    return {
        "object": "list",
        "data": [
            {"index": hit.index, "relevance_score": number}
            | ({"document": hit.document.text} if asked.return_documents else {})
            for hit, number in ranked(result, limit=asked.top_k, least=asked.min_relevance)
        ],
        "model": model,
        "usage": {"total_tokens": 0},
    }


def scored_texts(asked: TextsRequest, result: RouteResult) -> list[dict[str, Any]]:
    """Answer as TEI does; `raw_scores` are the cross-encoder's scores, if it answered."""
    pairs = ranked(result, limit=asked.top_n, least=asked.min_relevance)
    raw = asked.raw_scores and all(hit.rerank_score is not None for hit, _ in pairs)
    if raw:
        pairs.sort(key=lambda pair: -(pair[0].rerank_score or 0.0))
    return [
        {"index": hit.index, "score": hit.rerank_score if raw else number}
        | ({"text": hit.document.text} if asked.return_text else {})
        for hit, number in pairs
    ]


def refusal(path: str, code: str, message: str, *, texts: bool = False) -> dict[str, Any]:
    """Return an error as the clients of an endpoint read it, with our code beside it.

    Args:
        path: The endpoint.
        code: Identifier for programs.
        message: The problem, the limit and the remedy.
        texts: Whether the request was in TEI's shape.
    """
    if texts:
        kind = "Overloaded" if code == "overloaded" else "Validation"
        return {"error": message, "error_type": kind, "code": code}
    if path.endswith("/rerank"):
        return {"message": message, "detail": message, "code": code}
    return {"error": {"code": code, "message": message}}


def readable_chars(asked: RerankRequest) -> int | None:
    """Return how many characters of each document are read; None for all."""
    tokens = asked.max_tokens_per_doc
    return None if tokens is None else tokens * _CHARS_PER_TOKEN


def _is_truncated(asked: RerankRequest, hit: Hit) -> bool:
    chars = readable_chars(asked)
    if chars is None:
        return hit.truncated
    document = asked.documents[hit.index or 0]
    texts = [document] if isinstance(document, str) else document.values()
    return hit.truncated or any(isinstance(text, str) and len(text) > chars for text in texts)


def _document(given: Sequence[Text], hit: Hit) -> Mapping[str, Any]:
    document = given[hit.index or 0]
    return {"text": document} if isinstance(document, str) else document
