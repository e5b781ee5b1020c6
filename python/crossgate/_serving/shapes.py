"""What is asked over HTTP and how it is answered: the shapes of Cohere, Jina and TEI, and ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from uuid import uuid4

from pydantic import BaseModel, Field

from crossgate._ranking import ranked
from crossgate._types import Hit, RouteResult

Text = str | dict[str, Any]
Count = Annotated[int, Field(ge=1)]


class RerankRequest(BaseModel):
    """What `/v1/rerank` and `/v2/rerank` take; further fields are ignored."""

    query: str
    documents: list[Text]
    model: str | None = None
    top_n: Count | None = None
    return_documents: bool | None = None
    min_relevance: float | None = Field(
        None, description="Leave out what is less relevant than this; not in the original."
    )


class TextsRequest(BaseModel):
    """What TEI's `/rerank` takes; further fields are ignored."""

    query: str
    texts: list[str]
    raw_scores: bool = False
    return_text: bool = False
    top_n: Count | None = None
    min_relevance: float | None = Field(
        None, description="Leave out what is less relevant than this; not in the original."
    )


class RouteRequest(BaseModel):
    """What `/route` takes."""

    query: str
    limit: Count | None = 2
    allow: list[str] | None = None
    deny: list[str] = []
    section: str | None = None
    grade: str | None = None


def reranked(
    asked: RerankRequest, result: RouteResult, *, documents: bool, model: str
) -> dict[str, Any]:
    """Answer as Cohere and Jina do: each ignores what only the other knows.

    Args:
        asked: The request.
        result: The decision.
        documents: Whether texts go back where the request does not say.
        model: What answered.
    """
    back = documents if asked.return_documents is None else asked.return_documents
    return {
        "id": str(uuid4()),
        "model": model,
        "results": [
            {"index": hit.index, "relevance_score": number}
            | ({"document": _document(asked.documents, hit)} if back else {})
            for hit, number in ranked(result, limit=asked.top_n, least=asked.min_relevance)
        ],
        "usage": {"total_tokens": 0},
        "meta": {"api_version": {"version": "2"}, "billed_units": {"search_units": 0}},
    }


def scored_texts(asked: TextsRequest, result: RouteResult) -> list[dict[str, Any]]:
    """Answer as TEI does; `raw_scores` are the cross-encoder's own, where it answered."""
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
        message: What was wrong, the limit and the way out.
        texts: Whether the request was in TEI's shape.
    """
    if texts:
        kind = "Overloaded" if code == "overloaded" else "Validation"
        return {"error": message, "error_type": kind, "code": code}
    if path in ("/rerank", "/v2/rerank", "/v1/rerank"):
        return {"message": message, "detail": message, "code": code}
    return {"error": {"code": code, "message": message}}


def _document(given: Sequence[Text], hit: Hit) -> Mapping[str, Any]:
    document = given[hit.index or 0]
    return {"text": document} if isinstance(document, str) else document
