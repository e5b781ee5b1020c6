"""Requests and responses over HTTP, in the formats of other rerankers, System One and crossgate."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal
from uuid import uuid4

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from crossgate._decision.context import Context
from crossgate._decision.orderings import ranked
from crossgate._values.options import DecisionOptions, summary
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

_STRUCTURED = [{"type": "object"}, {"type": "array"}]

NONE_OPTIONS = frozenset({"none", "none of these", "none of the above"})
"""Names of the option "no option fits", in lower case."""

# Relevances beyond these bounds would give odds of 0 or infinity.
_LEAST, _MOST = 1e-6, 1 - 1e-6

Content = str | dict[str, Any] | list[Any]
Text = str | dict[str, Any]
Query = Annotated[str, WithJsonSchema(_READABLE)]
Documents = Annotated[list[Text], WithJsonSchema(_DOCUMENTS)]
Texts = Annotated[list[str], WithJsonSchema(_TEXTS)]


def _whole(value: object) -> object:
    """Return 3.0 as 3: JSON does not distinguish them."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Count = Annotated[int, Field(ge=1), BeforeValidator(_whole)]


def _option(name: str, default: Any = None) -> Any:
    """Return the field of an option of a decision, with its description and its limits."""
    limits = DecisionOptions.__dataclass_fields__[name].metadata.get("limits", {})

    def limited(schema: dict[str, Any]) -> None:
        schema.get("anyOf", [schema])[0].update(limits)

    return Field(default, description=summary(name), json_schema_extra=limited)


class Asked(BaseModel):
    """A request, without type coercion, so that `false` is not a relevance of 0."""

    model_config = ConfigDict(strict=True)


class GivenContext(Asked):
    """The project and the conversation that a query comes from; other fields are ignored."""

    technologies: list[str] = []
    history: list[str] = Field([], description="Earlier requests of the user, oldest first.")

    def value(self) -> Context:
        """Return the context for a decision."""
        return Context(technologies=tuple(self.technologies), history=tuple(self.history))


class About(Asked):
    """What a request may say about its query; not part of the original APIs."""

    material: str | list[str] | None = _option("material")
    context: GivenContext | None = _option("context")

    def about(self) -> dict[str, Any]:
        """Return these fields as arguments of a decision."""
        context = None if self.context is None else self.context.value()
        return {"material": self.material, "context": context}


class RerankRequest(About):
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


class TextsRequest(About):
    """A request to TEI's `/rerank`; other fields are ignored."""

    query: Query
    texts: Texts
    raw_scores: bool = False
    return_text: bool = False
    top_n: Count | None = None
    min_relevance: float | None = Field(
        None, description="Leave out less relevant documents; not part of the original API."
    )


class VoyageRequest(About):
    """A request to Voyage's `/rerank`; other fields are ignored."""

    query: Query
    documents: Texts
    model: str | None = None
    top_k: Count | None = None
    return_documents: bool = False
    min_relevance: float | None = Field(
        None, description="Leave out less relevant documents; not part of the original API."
    )


class DecisionRequest(About):
    """What a request for a decision over the index names."""

    query: str
    limit: Count | None = _option("limit", 2)
    allow: list[str] | None = _option("allow")
    deny: list[str] = _option("deny", [])
    section: str | None = _option("section")
    grade: str | None = _option("grade")
    min_confidence: float | None = _option("min_confidence")
    coverage: float | None = _option("coverage")
    max_shortlist: Count | None = _option("max_shortlist")


class RouteRequest(DecisionRequest):
    """A request to `/route`."""

    trace: bool = Field(False, description="Return how the decision was made, without texts.")


class ExplainRequest(DecisionRequest):
    """A request to `/explain`."""

    id: str = Field(description="Id or title of the document to explain.")


class Explained(BaseModel):
    """The response of `/explain`."""

    id: str
    step: str = Field(description="Code of the step that lost the document, or `selected`.")
    text: str
    remedy: str
    figures: dict[str, float]
    selected: list[str]


class ListRequest(Asked):
    """A request to `/documents`."""

    search: str = Field(
        "", max_length=200, description="Words that the id, title or text must contain."
    )
    limit: Count = Field(100, description="The most documents to return.")


class Listed(BaseModel):
    """The response of `/documents`."""

    name: str = Field(description="Name of the index file.")
    total: int
    searched: int = Field(
        description="Number of documents that were searched; of a large index, as many of the "
        "first as half a second allows."
    )
    matching: int = Field(description="Number of searched documents that contain the words.")
    documents: list[dict[str, str]] = Field(description="`id`, `title` and `text` of the first.")
    examples: list[str] = Field(description="Prompts from five documents of the index.")


class Feedback(Asked):
    """A request to `/feedback`."""

    decision_id: str = Field(description="The `decision_id` of an answer of `/route`.")
    fits: list[str] = Field(description="Ids of the documents that fit; empty for none.")


class Choice(Asked):
    """A question of System One that selects one of the options in `criteria`."""

    type: Literal["choice"]
    instructions: Content | None = Field(None, description="Not read.")
    criteria: dict[str, Content | None] = Field(
        min_length=1,
        max_length=255,
        description="Options with their descriptions; an option without one is read by its name.",
    )


class SystemOneRequest(Asked):
    """A request to `/v1/systemone`; other fields are ignored."""

    state: Annotated[Content, WithJsonSchema({"anyOf": [_READABLE, *_STRUCTURED]})]
    questions: dict[str, Choice] = Field(min_length=1)
    model: str | None = None


class ChoiceAnswer(BaseModel):
    """The answer to one question."""

    type: Literal["choice"]
    choice: str = Field(description="The option with the highest probability.")
    confidence: float = Field(description="0 if all options are equally likely, 1 if one is sure.")
    probabilities: dict[str, float]


class SystemOneAnswer(BaseModel):
    """The response of `/v1/systemone`."""

    model: str
    answers: dict[str, ChoiceAnswer]
    usage: dict[str, int]


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
    request: RerankRequest, result: RouteResult, *, documents: bool, model: str
) -> dict[str, Any]:
    """Answer as Cohere and Jina do: clients of each ignore the fields of the other.

    Args:
        request: The request.
        result: The decision.
        documents: Whether texts are returned if the request does not say.
        model: Name of the model that answered.
    """
    back = documents if request.return_documents is None else request.return_documents
    return {
        "id": str(uuid4()),
        "model": model,
        "results": [
            {"index": hit.index, "relevance_score": number}
            | ({"truncated": True} if _is_truncated(request, hit) else {})
            | ({"document": _document(request.documents, hit)} if back else {})
            for hit, number in ranked(result, limit=request.top_n, least=request.min_relevance)
        ],
        "usage": {"total_tokens": 0},
        "meta": {"api_version": {"version": "2"}, "billed_units": {"search_units": 0}},
    }


def voyage_ranked(request: VoyageRequest, result: RouteResult, *, model: str) -> dict[str, Any]:
    """Answer as Voyage does."""
    return {
        "object": "list",
        "data": [
            {"index": hit.index, "relevance_score": number}
            | ({"document": hit.document.text} if request.return_documents else {})
            for hit, number in ranked(result, limit=request.top_k, least=request.min_relevance)
        ],
        "model": model,
        "usage": {"total_tokens": 0},
    }


def scored_texts(request: TextsRequest, result: RouteResult) -> list[dict[str, Any]]:
    """Answer as TEI does; `raw_scores` are the cross-encoder's scores, if it answered."""
    pairs = ranked(result, limit=request.top_n, least=request.min_relevance)
    raw = request.raw_scores and all(hit.rerank_score is not None for hit, _ in pairs)
    return [
        {"index": hit.index, "score": hit.rerank_score if raw else number}
        | ({"text": hit.document.text} if request.return_text else {})
        for hit, number in pairs
    ]


def choice_answer(options: Sequence[str], relevances: Mapping[str, float]) -> dict[str, Any]:
    """Answer a choice question of System One.

    The odds of an option against "none" are those of its relevance, so without such an option only
    the ratios of the options count.

    Args:
        options: The options in the order of the request.
        relevances: Relevance of each option but "none", in [0, 1].
    """
    odds = {}
    for option in options:
        relevance = min(max(relevances.get(option, 0.5), _LEAST), _MOST)
        odds[option] = relevance / (1 - relevance)
    total = sum(odds.values())
    probabilities = {option: value / total for option, value in odds.items()}
    choice = max(options, key=probabilities.__getitem__)
    rest = len(options) - 1
    confidence = (len(options) * probabilities[choice] - 1) / rest if rest else 1.0
    return {
        "type": "choice",
        "choice": choice,
        "confidence": min(max(confidence, 0.0), 1.0),
        "probabilities": probabilities,
    }


def text_of(content: Content | None) -> str:
    """Return content as text: structures as JSON, nothing as an empty text."""
    if content is None or isinstance(content, str):
        return content or ""
    return json.dumps(content, ensure_ascii=False)


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


def readable_chars(request: RerankRequest) -> int | None:
    """Return how many characters of each document are read; None for all."""
    tokens = request.max_tokens_per_doc
    return None if tokens is None else tokens * _CHARS_PER_TOKEN


def _is_truncated(request: RerankRequest, hit: Hit) -> bool:
    chars = readable_chars(request)
    if chars is None:
        return hit.truncated
    document = request.documents[hit.index or 0]
    texts = [document] if isinstance(document, str) else document.values()
    return hit.truncated or any(isinstance(text, str) and len(text) > chars for text in texts)


def _document(documents: Sequence[Text], hit: Hit) -> Mapping[str, Any]:
    document = documents[hit.index or 0]
    return {"text": document} if isinstance(document, str) else document
