"""The ASGI application: endpoints, the queue of decisions, and metrics."""

import base64
import hashlib
import html
import json
import re
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from importlib.resources import files
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from fastapi.security import HTTPBearer
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from crossgate._core import __version__
from crossgate._decision.explain import Explanation
from crossgate._decision.rerank_candidates import rerank
from crossgate._decision.router import Router
from crossgate._evaluation.page import page, table
from crossgate._retrieval.document_index import Index
from crossgate._serving.request_limits import Guard, Limits
from crossgate._serving.wire_formats import (
    NONE_OPTIONS,
    Choice,
    Explained,
    ExplainRequest,
    Feedback,
    Listed,
    ListRequest,
    Refusal,
    RerankAnswer,
    RerankRequest,
    RouteRequest,
    ScoredText,
    SystemOneAnswer,
    SystemOneRequest,
    TextsRequest,
    VoyageAnswer,
    VoyageRequest,
    choice_answer,
    readable_chars,
    refusal,
    reranked,
    scored_texts,
    text_of,
    voyage_ranked,
)
from crossgate._support.errors import CrossgateError, InputError
from crossgate._support.wording import counted
from crossgate._telemetry.log import JsonLinesLog
from crossgate._values.inputs import candidate
from crossgate._values.results import DROPPED, Candidate, RouteResult, why

_SEARCH_SECONDS = 0.5
"""Time of a search of documents, which the page starts with each letter; some 70,000 are read."""

Handler = TypeVar("Handler", bound=Callable[..., Any])
Made = TypeVar("Made", RouteResult, Explanation)


class Refused(Exception):
    """A refused request, with its HTTP status."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class AsciiJSON(JSONResponse):
    """JSON that can always be sent, even if it repeats a client's lone surrogate or NaN."""

    def render(self, content: Any) -> bytes:
        """Return the bytes."""
        text = json.dumps(content, separators=(",", ":"))
        if "NaN" in text or "Infinity" in text:  # not JSON, even if a client sent it
            text = json.dumps(json.loads(text, parse_constant=lambda _: None))
        return text.encode("ascii")


class Decisions:
    """Makes decisions in threads: a fixed number at once, the others first come, first served."""

    def __init__(self, limits: Limits, registry: CollectorRegistry) -> None:
        self._limits = limits
        self._turns: anyio.CapacityLimiter | None = None
        self._waiting = 0
        self._verdicts = Counter(
            "crossgate_decisions", "Decisions made.", ["verdict"], registry=registry
        )
        self._degraded = Counter(
            "crossgate_degraded", "What did not run as configured.", ["code"], registry=registry
        )
        gauge = Gauge(
            "crossgate_requests_in_hand", "Requests queued or running.", registry=registry
        )
        gauge.set_function(lambda: self._waiting)

    async def make(self, decide: Callable[[], Made]) -> Made:
        """Decide when it is this request's turn.

        Raises:
            Refused: 429 if too many requests wait.
        """
        if self._turns is None:  # made here, since it belongs to the running event loop
            self._turns = anyio.CapacityLimiter(self._limits.concurrency)
        if self._waiting >= self._limits.concurrency + self._limits.waiting:
            raise Refused(429, "overloaded", "too many requests are waiting: try again later")
        self._waiting += 1
        try:
            decision = await anyio.to_thread.run_sync(decide, limiter=self._turns)
        finally:
            self._waiting -= 1
        result = decision.result if isinstance(decision, Explanation) else decision
        self._verdicts.labels(result.verdict.value).inc()
        for degradation in result.degraded:
            self._degraded.labels(degradation.code).inc()
        return decision


class Counted:
    """Counts the requests that are answered, and the time until each answer begins."""

    def __init__(self, app: ASGIApp, *, registry: CollectorRegistry, paths: frozenset[str]) -> None:
        self._app = app
        self._paths = paths
        self._requests = Counter(
            "crossgate_requests", "Requests answered.", ["path", "status"], registry=registry
        )
        self._seconds = Histogram(
            "crossgate_request_seconds", "Time to answer a request.", ["path"], registry=registry
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and count its answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        # An unknown path must not create a time series of its own.
        path = scope["path"] if scope["path"] in self._paths else "other"

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._requests.labels(path, str(message["status"])).inc()
                self._seconds.labels(path).observe(time.perf_counter() - start)
            await send(message)

        await self._app(scope, receive, answer)


def application(
    *,
    router: Router | None,
    limits: Limits,
    key: str | None,
    hosts: frozenset[str] | None,
    options: dict[str, Any],
    log: JsonLinesLog | None = None,
) -> FastAPI:
    """Return the application.

    Args:
        router: The router of `/route`; None for a server that only reranks.
        limits: The limits of the server.
        key: The key that requests must send; None for none.
        hosts: Hosts, in lower case and without a port, that a request may name; None for any.
        options: Further arguments of `rerank`: the reranker, profile and policy.
        log: The log to which `router` writes, and `/feedback` appends; None for neither.
    """
    app = FastAPI(title="crossgate", version=__version__, docs_url=None, redoc_url=None)
    registry = CollectorRegistry()
    decisions = Decisions(limits, registry)
    _explain_refusals(app)
    app.add_middleware(Guard, limits=limits, key=key, hosts=hosts)
    name = options.get("reranker")
    model = name if isinstance(name, str) and name != "default" else "crossgate"

    def check_number(documents: int) -> None:
        if documents > limits.documents:
            raise Refused(
                413,
                "too_many_documents",
                f"{counted(documents, 'document')} sent, and the limit is "
                f"{limits.documents:,}: send fewer",
            )

    async def decided(
        query: str, about: dict[str, Any], documents: list[Any], chars: int | None = None
    ) -> RouteResult:
        if not documents:
            raise InputError("no_documents", "there are no documents: send at least one")
        check_number(len(documents))
        return await decisions.make(
            lambda: rerank(query, _candidates(documents, chars), **about, **options)
        )

    # Only for the OpenAPI description; `Guard` checks the key.
    asks_for_key = [Depends(HTTPBearer(auto_error=False))] if key else []

    def post(path: str, summary: str, answer: Any = None) -> Callable[[Handler], Handler]:
        described: dict[int | str, Any] = {"4XX": {"model": Refusal}, "5XX": {"model": Refusal}}
        if answer is not None:
            described[200] = {"model": answer}
        return app.post(path, summary=summary, responses=described, dependencies=asks_for_key)

    @post("/v1/rerank", "Like Jina's /v1/rerank and Cohere's version 1", RerankAnswer)
    async def rerank_v1(request: RerankRequest) -> Response:
        result = await decided(
            request.query, request.about(), request.documents, readable_chars(request)
        )
        return _answer(reranked(request, result, documents=True, model=model), result)

    @post("/v2/rerank", "Like Cohere's version 2", RerankAnswer)
    async def rerank_v2(request: RerankRequest) -> Response:
        result = await decided(
            request.query, request.about(), request.documents, readable_chars(request)
        )
        return _answer(reranked(request, result, documents=False, model=model), result)

    @post("/voyage/rerank", "Like Voyage's /v1/rerank", VoyageAnswer)
    async def rerank_voyage(request: VoyageRequest) -> Response:
        result = await decided(request.query, request.about(), list(request.documents))
        return _answer(voyage_ranked(request, result, model=model), result)

    @post(
        "/rerank",
        "Like TEI's with texts, like Cohere's with documents",
        list[ScoredText] | RerankAnswer,
    )
    async def rerank_either(request: TextsRequest | RerankRequest) -> Response:
        if isinstance(request, TextsRequest):
            result = await decided(request.query, request.about(), list(request.texts))
            return _answer(scored_texts(request, result), result)
        return await rerank_v2(request)

    async def chosen(query: str, question: Choice) -> tuple[dict[str, Any], list[RouteResult]]:
        documents = {
            option: text_of(content) or option
            for option, content in question.criteria.items()
            if option.strip().lower() not in NONE_OPTIONS
        }
        if not documents:
            return choice_answer(list(question.criteria), {}), []
        result = await decided(query, {}, list(documents.values()))
        names = list(documents)
        # An option that was too unlikely to be read has no relevance.
        relevances = {
            names[hit.index]: hit.relevance or 0.0 for hit in result.hits if hit.index is not None
        }
        if all(hit.relevance is None for hit in result.hits):
            raise Refused(
                503,
                "no_probabilities",
                "the reranker did not answer, or has no profile: start the server with the default "
                "reranker, or with --profile",
            )
        return choice_answer(list(question.criteria), relevances), [result]

    @post("/v1/systemone", "Like TypeSafe's /v1/systemone, choices only", SystemOneAnswer)
    async def systemone(request: SystemOneRequest) -> Response:
        check_number(sum(len(question.criteria) for question in request.questions.values()))
        query = text_of(request.state)
        answers: dict[str, Any] = {}
        results: list[RouteResult] = []
        for name, question in request.questions.items():
            answers[name], decisions_made = await chosen(query, question)
            results += decisions_made
        usage = {"input_tokens": 0, "output_tokens": 0}
        return _answer({"model": model, "answers": answers, "usage": usage}, *results)

    def indexed() -> Router:
        if router is None:
            raise Refused(
                404, "no_index", "this server has no index: start it with --index skills.cgx"
            )
        return router

    @post("/explain", "Why a document of the index was not picked", Explained)
    async def explain(request: ExplainRequest) -> Response:
        arguments = request.model_dump() | request.about()
        explanation = await decisions.make(partial(indexed().explain, **arguments))
        return _answer(explanation.to_dict(), explanation.result)

    @post("/route", "Pick the documents of the index that fit, or none")
    async def route(request: RouteRequest) -> Response:
        arguments = request.model_dump(exclude={"trace"}) | request.about()
        result = await decisions.make(partial(indexed().route, **arguments))
        values = result.to_dict(trace=request.trace, text=True)
        if request.trace:
            values["why"] = why(result.reason, len(result.selected))
        for row, hit in zip(values["hits"], result.hits, strict=True):
            if request.trace:
                dropped = hit.dropped
                row["outcome"] = "picked" if dropped is None else DROPPED.get(dropped, dropped)
                row["excerpt"] = hit.excerpt if hit.passage else None
            row["metadata"].pop("root", None)  # a folder of this machine
        return AsciiJSON(values)

    @post("/documents", "The documents of the index that contain words", Listed)
    async def documents(request: ListRequest) -> Response:
        values = await anyio.to_thread.run_sync(partial(_listed, indexed().index, request))
        return AsciiJSON(values)

    if log is not None:
        feedback_log = log

        @post("/feedback", "Record which documents fit the query of a decision")
        async def feedback(request: Feedback) -> Response:
            # Only JSON is read, which a web page elsewhere cannot send without asking first.
            await anyio.to_thread.run_sync(
                partial(feedback_log.used, request.decision_id, request.fits, judged=True)
            )
            return AsciiJSON({"recorded": len(request.fits)})

    @app.get("/", include_in_schema=False)
    async def start() -> HTMLResponse:
        return _start_page()

    @app.get("/health", summary="Whether the server can decide")
    async def health() -> dict[str, Any]:
        count = None if router is None else len(router.index)
        return {"status": "ok", "version": __version__, "documents": count}

    @app.get("/metrics", summary="Counters for Prometheus", response_class=PlainTextResponse)
    async def metrics() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    # FastAPI's own pages load scripts from the network.
    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(_docs(app.openapi()))

    # The last middleware is the outermost, so that requests refused by `Guard` are counted.
    paths = frozenset(getattr(route, "path", "") for route in app.routes)
    app.add_middleware(Counted, registry=registry, paths=paths)
    return app


def _candidates(documents: list[Any], chars: int | None) -> list[Candidate]:
    """Read texts and mappings, and number them: a client's ids may occur twice.

    Args:
        documents: The documents of the request.
        chars: Characters of each text and body that are read, from its start; None for all.
    """
    candidates = [candidate(number, value) for number, value in enumerate(documents)]
    return [
        replace(one, id=str(number), text=one.text[:chars], body=one.body[:chars])
        for number, one in enumerate(candidates)
    ]


def _listed(index: Index, request: ListRequest) -> dict[str, Any]:
    words = request.search.lower().split()
    ids = index.ids
    found: list[dict[str, str]] = []
    searched = matching = 0
    until = time.monotonic() + _SEARCH_SECONDS
    for id in ids if words else ids[: request.limit]:
        if searched and time.monotonic() > until:
            break
        searched += 1
        document = index.get(id)
        if document is None:  # deleted in the meantime
            continue
        text = f"{id} {document.title} {document.text}".lower()
        if all(word in text for word in words):
            matching += 1
            if len(found) < request.limit:
                found.append({"id": id, "title": document.title, "text": document.text})
    return {
        "name": "" if index.path is None else index.path.stem,
        "total": len(ids),
        "searched": searched if words else len(ids),
        "matching": matching if words else len(ids),
        "documents": found,
        "examples": list(_examples(index)),
    }


def _examples(index: Index) -> Iterator[str]:
    """Yield a prompt for each of up to five documents, spread over the index."""
    ids = index.ids
    for id in dict.fromkeys(ids[len(ids) * place // 5] for place in range(5) if ids):
        if document := index.get(id):
            sentence = re.split(r"(?<=[.!?])\s|\n|: | \(", document.text.strip(), maxsplit=1)[0]
            prompt = document.examples[0] if document.examples else sentence or document.title
            yield textwrap.shorten(prompt, 120, placeholder="").rstrip(".,;") or id


def _answer(values: Any, *results: RouteResult) -> Response:
    """Answer with our own JSON: the framework's fails on a lone surrogate in a client's field."""
    codes = (degradation.code for result in results for degradation in result.degraded)
    degraded = ",".join(dict.fromkeys(codes))
    return AsciiJSON(values, headers={"x-crossgate-degraded": degraded} if degraded else None)


def _explain_refusals(app: FastAPI) -> None:
    def answer(
        request: Request,
        status: int,
        code: str,
        message: str,
        *,
        texts: bool,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        if status == 429:
            headers = {"Retry-After": "1"}
        values = refusal(request.url.path, code, message, texts=texts)
        return AsciiJSON(values, status_code=status, headers=headers)

    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, error: RequestValidationError) -> Response:
        texts = isinstance(error.body, dict) and "texts" in error.body
        details = error.errors()
        # The body may have one of two formats: report the errors of the one that it resembles.
        meant = "TextsRequest" if texts else "RerankRequest"
        first = next((detail for detail in details if meant in detail["loc"]), details[0])
        field = ".".join(str(part) for part in first["loc"] if part not in ("body", meant))
        message = f"{field or 'the request'}: {first['msg']}; see /docs"
        status = 422 if texts or request.url.path == "/v1/rerank" else 400
        return answer(request, status, "malformed_request", message, texts=texts)

    @app.exception_handler(CrossgateError)
    async def unusable(request: Request, error: CrossgateError) -> Response:
        status = 400 if isinstance(error, InputError) else 500
        if error.code == "unknown_document":
            status = 404
        texts = await _in_texts(request)
        return answer(request, status, error.code, str(error), texts=texts)

    @app.exception_handler(HTTPException)
    async def unread(request: Request, error: HTTPException) -> Response:
        codes = {400: "malformed_request", 404: "not_found", 405: "method_not_allowed"}
        message = f"{error.detail}; see /docs"
        code = codes.get(error.status_code, "refused")
        headers = error.headers  # such as the methods that a path allows
        return answer(request, error.status_code, code, message, texts=False, headers=headers)

    @app.exception_handler(RecursionError)
    async def too_deep(request: Request, error: RecursionError) -> Response:
        message = "the body is nested too deeply: send text, not nested structures"
        return answer(request, 400, "malformed_request", message, texts=False)

    @app.exception_handler(Refused)
    async def refused(request: Request, error: Refused) -> Response:
        texts = await _in_texts(request)
        return answer(request, error.status, error.code, str(error), texts=texts)


async def _in_texts(request: Request) -> bool:
    if request.url.path != "/rerank":
        return False
    values = json.loads(await request.body())
    return isinstance(values, dict) and "texts" in values


def _docs(openapi: dict[str, Any]) -> str:
    """Return a page that lists the endpoints with their objects and loads nothing."""
    schemas = openapi["components"]["schemas"]
    parts = ["<h1>Endpoints</h1>", '<p>For programs: <a href="openapi.json">openapi.json</a></p>']
    for path, methods in openapi["paths"].items():
        for method, operation in methods.items():
            title = html.escape(f"{method.upper()} {path}")
            summary = html.escape(operation.get("summary", ""))
            parts.append(f"<h2><code>{title}</code></h2><p>{summary}</p>")
            names = re.findall(r'"#/components/schemas/(\w+)"', json.dumps(operation))
            parts += [_object(name, schemas[name]) for name in dict.fromkeys(names)]
    parts.append("<h2>All objects</h2>")
    parts += [_object(name, schema) for name, schema in schemas.items()]
    style = ".scroll td, .scroll th { text-align: left; white-space: normal; }"
    return page(f"crossgate {__version__}", parts, style=style)


def _object(name: str, schema: dict[str, Any]) -> str:
    """Return the fields of an object as a table that opens on a click."""
    needed = schema.get("required", ())
    rows = [
        [
            f"<code>{html.escape(field)}</code>",
            html.escape(_kind(values) + (", required" if field in needed else "")),
            html.escape(values.get("description", "")),
        ]
        for field, values in schema.get("properties", {}).items()
    ]
    fields = table(("field", "type", "meaning"), rows)
    return f"<details><summary>{html.escape(name)}</summary>{fields}</details>"


def _kind(schema: dict[str, Any]) -> str:
    """Return the type of a field in words, such as "string or list of string"."""
    if "anyOf" in schema:
        return " or ".join(map(_kind, schema["anyOf"]))
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return str(schema.get("type") or schema.get("$ref", "any").rpartition("/")[2])


@cache
def _start_page_text() -> str:
    return files("crossgate._serving").joinpath("page.html").read_text(encoding="utf-8")


@cache
def _security_policy() -> str:
    """Return the Content-Security-Policy: the page's own script and style, and this server only."""

    def hashed(tag: str) -> str:
        match = re.search(rf"<{tag}>(.*?)</{tag}>", _start_page_text(), re.DOTALL)
        content = match[1] if match else ""
        digest = base64.b64encode(hashlib.sha256(content.encode("utf-8")).digest()).decode("ascii")
        return f"'sha256-{digest}'"

    return (
        f"default-src 'none'; script-src {hashed('script')}; style-src {hashed('style')}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )


def _start_page() -> HTMLResponse:
    """Return the page for decisions, a file, with the headers that protect it."""
    return HTMLResponse(
        _start_page_text(),
        headers={
            "content-security-policy": _security_policy(),
            "referrer-policy": "no-referrer",
            "x-content-type-options": "nosniff",
            "cache-control": "no-store",
        },
    )
