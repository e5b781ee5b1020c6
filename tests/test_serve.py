"""The server as a process of its own, asked by real clients over real sockets."""

from __future__ import annotations

import asyncio
import gzip
import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from conftest import build, skills
from crossgate import Index, Profile, rerank, write_profile

pytest.importorskip("fastapi", reason="the extra serve is not installed")
pytest.importorskip("prometheus_client", reason="the extra serve is not installed")
pytest.importorskip("uvicorn", reason="the extra serve is not installed")
h11 = pytest.importorskip("h11", reason="the extra serve is not installed")

QUERY = "how many nodes does staging have"
TEXTS = ["Lunch is at noon.", "The staging cluster has five nodes.", "Bread needs yeast."]
KEY = "right-key"
# Reading the certificates of authorities would take most of the time of a request.
LOCAL: dict[str, Any] = {"trust_env": False, "verify": False, "timeout": 60}
SCOPE: dict[str, Any] = {
    "type": "http",
    "method": "POST",
    "path": "/v2/rerank",
    "headers": [(b"content-type", b"application/json")],
}


class Served:
    """A server that runs, and how to ask it."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process = process
        self.url = url

    def post(
        self, path: str, content: Any, headers: Mapping[str, str] | None = None
    ) -> httpx2.Response:
        """Ask, with the body as JSON or as it is; with the key, unless other headers are given."""
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        with_key = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
        return httpx2.post(
            self.url + path, content=body, headers=with_key if headers is None else headers, **LOCAL
        )

    def get(self, path: str, **headers: str) -> httpx2.Response:
        """Ask for a page, without the key."""
        return httpx2.get(self.url + path, headers=headers, **LOCAL)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Tell it to stop, and return its exit code."""
        self.process.send_signal(number)
        return self.process.wait(timeout=60)


@contextmanager
def serving(*options: str, key: str = KEY) -> Iterator[Served]:
    script = "import sys; from crossgate._cli import main; sys.exit(main())"
    command = [sys.executable, "-c", script, "serve", "--json", *options]
    environment = {**os.environ, "CROSSGATE_SERVE_KEY": key}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            printed = "".join(iter(process.stdout.readline, "}\n")) + "}"
            yield Served(process, json.loads(printed)["serving"])
        finally:
            process.kill()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path = tmp_path_factory.mktemp("serve") / "skills.cgx"
    build(embedder=None).save(path)
    limits = ["--max-bytes", "100000", "--max-documents", "50"]
    with serving("--port", "0", "--index", str(path), *limits) as running:
        yield running


def test_service_of_the_rag_page_answers_and_refuses(tmp_path: Path) -> None:
    page = (Path(__file__).parents[1] / "docs" / "rag.md").read_text(encoding="utf-8")
    (asked,) = re.findall(r"test_serve runs it -->\n```python\n(.*?)```", page, re.DOTALL)
    chunks = ["The Merula carries 240 passengers and 38 cars.", "Line 4 runs until midnight."]
    path = tmp_path / "handbook.cgx"
    Index.build(chunks).save(path)
    with serving("--port", "0", "--index", str(path), key="") as running:
        exec(asked.replace("http://127.0.0.1:8787", running.url), {})


def test_cohere_client_reads_the_answer(served: Served) -> None:
    cohere = pytest.importorskip("cohere", reason="cohere is not installed")
    httpx = pytest.importorskip("httpx", reason="cohere is not installed")
    with httpx.Client(trust_env=False, verify=False) as http:  # cohere's own is never closed
        given: dict[str, Any] = {"base_url": served.url, "httpx_client": http}
        new = cohere.ClientV2(api_key=KEY, **given)
        answer = new.rerank(model="any", query=QUERY, documents=TEXTS, top_n=2)
        assert answer.results[0].index == 1
        assert len(answer.results) == 2
        assert 1 >= answer.results[0].relevance_score > answer.results[1].relevance_score >= 0
        old = cohere.Client(api_key=KEY, **given)
        documents = [{"text": one} for one in TEXTS]
        earlier = old.rerank(query=QUERY, documents=documents, return_documents=True)
        assert earlier.results[0].document.text == TEXTS[1]
        assert len(earlier.results) == 3
        with pytest.raises(cohere.errors.UnauthorizedError):
            cohere.ClientV2(api_key="wrong", **given).rerank(
                model="any", query=QUERY, documents=TEXTS
            )
        with pytest.raises(cohere.errors.BadRequestError, match="the query is empty"):
            new.rerank(model="any", query=" ", documents=TEXTS)


def test_voyage_client_reads_the_answer(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    voyageai = pytest.importorskip("voyageai", reason="voyageai is not installed")
    monkeypatch.setenv("NO_PROXY", "*")
    client = voyageai.Client(api_key=KEY, base_url=f"{served.url}/voyage")
    answer = client.rerank(QUERY, TEXTS, model="any", top_k=2)
    assert [one.index for one in answer.results][:1] == [1]
    assert answer.results[0].document == TEXTS[1]
    assert len(answer.results) == 2
    assert 1 >= answer.results[0].relevance_score > answer.results[1].relevance_score >= 0
    with pytest.raises(voyageai.error.InvalidRequestError, match="the query is empty"):
        client.rerank(" ", TEXTS, model="any")
    with pytest.raises(voyageai.error.AuthenticationError):
        voyageai.Client(api_key="wrong", base_url=f"{served.url}/voyage").rerank(
            QUERY, TEXTS, model="any"
        )


def test_server_conforms_to_its_openapi_description(tmp_path: Path) -> None:
    """Schemathesis makes requests of the description, good and bad, and reads the answers."""
    pytest.importorskip("schemathesis", reason="schemathesis is not installed")
    index = tmp_path / "skills.cgx"
    build(embedder=None).save(index)
    # Without weights of relevance, the server would refuse every `min_confidence`.
    weights = {"stage1": {"bm25": 1.0}, "stage2": {"bm25": 1.0}}
    write_profile(index.with_suffix(".profile.json"), Profile(relevance=weights))
    with serving("--port", "0", "--index", str(index)) as served:
        command = [
            *(sys.executable, "-m", "schemathesis.cli", "run", f"{served.url}/openapi.json"),
            *("--header", f"Authorization: Bearer {KEY}", "--max-examples", "10", "--no-shrink"),
            "--generation-deterministic",
        ]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env={**os.environ, "NO_PROXY": "*"},
            capture_output=True,
            text=True,
        )
    assert done.returncode == 0, done.stdout
    assert "10 selected / 10 total" in done.stdout


def test_crossgates_own_clients_read_the_answer(served: Served) -> None:
    from crossgate import rerank
    from crossgate.rerankers import CohereReranker

    reranker = CohereReranker(api_key=KEY, base_url=served.url)
    result = rerank(QUERY, TEXTS, reranker=reranker)
    assert result.hits[0].index == 1
    assert result.hits[0].provider.startswith("cohere")


def test_decision_reranker_reads_the_answer_to_a_choice(served: Served) -> None:
    from crossgate.rerankers import DecisionReranker, passages_of

    decider = DecisionReranker("any", base_url=served.url, api_key=KEY)
    scores = [pair.score for pair in decider.score(QUERY, passages_of(TEXTS)).complete()]
    local = {hit.index: hit.relevance for hit in rerank(QUERY, TEXTS).hits}
    relevance = local[1]
    assert relevance is not None
    assert scores[1] == pytest.approx(math.log(relevance / (1 - relevance)))
    assert scores[1] > 0 > max(scores[0], scores[2])
    result = rerank(QUERY, TEXTS, reranker=decider)
    assert (result.hits[0].index, result.hits[0].provider) == (1, "decision")


def choices(served: Served, questions: Any, state: Any = QUERY) -> dict[str, Any]:
    answer = served.post("/v1/systemone", {"state": state, "questions": questions})
    assert answer.status_code == 200, answer.text
    answers: dict[str, Any] = answer.json()["answers"]
    return answers


def test_choices_of_system_one(served: Served) -> None:
    places = dict(zip(["lunch", "cluster", "bread"], TEXTS, strict=True))
    several = {
        "open": {"type": "choice", "instructions": "Which text?", "criteria": places},
        "none": {"type": "choice", "criteria": {"bread": TEXTS[2], " None of these": ""}},
        "names": {"type": "choice", "criteria": {TEXTS[1]: None, "Bread needs yeast": {}}},
        "one": {"type": "choice", "criteria": {"only": "Lunch"}},
        "empty": {"type": "choice", "criteria": {"none": "nothing fits"}},
    }
    answers = choices(served, several)
    assert list(answers) == list(several)
    assert {name: answer["choice"] for name, answer in answers.items()} == {
        "open": "cluster",
        "none": " None of these",
        "names": TEXTS[1],
        "one": "only",
        "empty": "none",
    }
    for name, answer in answers.items():
        assert list(answer["probabilities"]) == list(several[name]["criteria"])
        assert sum(answer["probabilities"].values()) == pytest.approx(1)
        assert 0 <= answer["confidence"] <= 1
    (structured,) = choices(served, {"q": several["open"]}, {"asked": QUERY}).values()
    assert structured["choice"] == "cluster"


def test_choice_without_probabilities_is_refused() -> None:
    question = {"type": "choice", "criteria": {"a": TEXTS[1]}}
    with serving("--port", "0", "--reranker", "none") as running:
        answer = running.post("/v1/systemone", {"state": QUERY, "questions": {"q": question}})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_probabilities")


def test_compressed_request_is_refused(served: Served) -> None:
    body = gzip.compress(json.dumps({"query": QUERY, "documents": TEXTS}).encode())
    headers = {"Authorization": f"Bearer {KEY}", "Content-Encoding": "gzip"}
    answer = served.post("/v2/rerank", body, headers)
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_encoding")


def test_answers_have_the_shape_of_each_api(served: Served) -> None:
    jina = served.post("/v1/rerank", {"query": QUERY, "documents": TEXTS, "top_n": 1}).json()
    (one,) = jina["results"]
    assert (one["index"], one["document"]) == (1, {"text": TEXTS[1]})
    assert jina["usage"]["total_tokens"] == 0
    quiet = {"query": QUERY, "documents": TEXTS, "return_documents": False}
    assert "document" not in served.post("/v1/rerank", quiet).json()["results"][0]
    tei = served.post("/rerank", {"query": QUERY, "texts": TEXTS, "return_text": True}).json()
    assert (tei[0]["index"], tei[0]["text"]) == (1, TEXTS[1])
    assert [one["score"] for one in tei] == sorted((one["score"] for one in tei), reverse=True)
    raw = served.post("/rerank", {"query": QUERY, "texts": TEXTS, "raw_scores": True}).json()
    assert min(one["score"] for one in raw) < 0
    either = served.post("/rerank", {"query": QUERY, "documents": TEXTS}).json()
    assert either["results"][0] == {"index": 1, "relevance_score": tei[0]["score"]}
    whole = {"query": QUERY, "texts": TEXTS, "top_n": 1.0}
    assert served.post("/rerank", whole).json() == [{"index": 1, "score": tei[0]["score"]}]
    few = served.post("/v2/rerank", {"query": QUERY, "documents": TEXTS, "min_relevance": 0.1})
    assert [one["index"] for one in few.json()["results"]] == [1]


def test_route(served: Served) -> None:
    answer = served.post("/route", {"query": "merge pdf files", "limit": 1}).json()
    assert answer["schema"] == "crossgate/1"
    assert answer["hits"][0]["id"] == "pdf-toolkit"
    assert answer["hits"][0]["text"]
    denied = served.post("/route", {"query": "merge pdf files", "deny": ["pdf-toolkit"]}).json()
    assert "pdf-toolkit" not in [one["id"] for one in denied["hits"]]
    empty = served.post("/route", {"query": ""}).json()
    assert (empty["selected"], empty["warnings"][0]["code"]) == ([], "empty_query")
    wrong = served.post("/route", {"query": "x" * 65_537})
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, "query_too_long")


def test_explain(served: Served) -> None:
    asked = {"query": "merge pdf files", "id": "pdf-toolkit"}
    answer = served.post("/explain", asked).json()
    assert (answer["step"], answer["selected"][0]) == ("selected", "pdf-toolkit")
    denied = served.post("/explain", {**asked, "deny": ["pdf-toolkit"]}).json()
    assert denied["step"] == "denied"
    assert "pdf-toolkit" not in denied["selected"]
    unknown = served.post("/explain", {**asked, "id": "pdf-tolkit"})
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "unknown_document")


def test_route_names_no_folder_of_the_machine(tmp_path: Path) -> None:
    from crossgate._sources.reading import read_sources

    folder = skills(tmp_path / "skills", {"pdf": "Merge pdf files."})
    documents = read_sources([folder]).documents
    assert str(tmp_path) in str(documents[0].metadata["root"])
    Index.build(documents, embedder=None).save(tmp_path / "skills.cgx")
    index = str(tmp_path / "skills.cgx")
    with serving("--port", "0", "--index", index, "--reranker", "none") as running:
        answer = running.post("/route", {"query": "merge pdf files"})
    (hit,) = answer.json()["hits"]
    assert hit["metadata"]["path"] == "pdf/SKILL.md"
    assert str(tmp_path) not in answer.text


def test_route_uses_the_reranker_and_the_policy_of_the_command_line(tmp_path: Path) -> None:
    from crossgate._values.profile_files import write_profile

    index, policy = tmp_path / "skills.cgx", tmp_path / "policy.json"
    build(embedder="default").save(index)
    write_profile(tmp_path / "skills.profile.json", Profile())  # stage 2 reads for every query
    floors = {"sections": {"nothing": 1.0}}
    policy.write_text(json.dumps({"schema": "crossgate-policy/2", "floors": floors}))
    options = ["--index", str(index), "--policy", str(policy), "--reranker", "none"]
    with serving("--port", "0", *options) as running:
        asked = {"query": "merge and compress pdf files"}
        answer = running.post("/route", asked).json()
        assert (answer["selected"][:1], answer["stage"]) == (["pdf-toolkit"], 1)
        answer = running.post("/route", {**asked, "section": "nothing"}).json()
        assert answer["selected"] == []


CHOICE = {"type": "choice", "criteria": {"a": "an option"}}
NOUL = {"type": "noul", "instructions": "Is it so?"}
MANY = dict.fromkeys(map(str, range(51)), CHOICE)
ONE: dict[str, Any] = {"query": "a", "documents": ["a"]}
BAD: list[tuple[str, Any, int, str]] = [
    ("/v2/rerank", b"{", 400, "malformed_request"),
    ("/v2/rerank", [], 400, "malformed_request"),
    ("/v2/rerank", {"query": "a"}, 400, "malformed_request"),
    ("/v2/rerank", {"query": "a", "documents": []}, 400, "no_documents"),
    ("/v2/rerank", {"query": "a", "documents": [{"text": 5}]}, 400, "malformed_candidate"),
    ("/v2/rerank", ONE | {"max_tokens_per_doc": 0}, 400, "malformed_request"),
    ("/v2/rerank", b'{"query": "\\ud800", "documents": ["a"]}', 400, "invalid_text"),
    ("/v2/rerank", ONE | {"top_n": 0}, 400, "malformed_request"),
    ("/v1/rerank", {"query": "a", "documents": "a"}, 422, "malformed_request"),
    ("/rerank", {"query": "a", "texts": [5]}, 422, "malformed_request"),
    ("/voyage/rerank", {"query": "a", "documents": [{"text": "a"}]}, 400, "malformed_request"),
    ("/v2/rerank", ONE | {"min_relevance": False}, 400, "malformed_request"),
    ("/rerank", {"query": "", "texts": ["a"]}, 400, "empty_query"),
    ("/v2/rerank", {"query": "a", "documents": ["a"] * 51}, 413, "too_many_documents"),
    ("/v2/rerank", b" " * 100_001, 413, "too_large"),
    ("/v1/systemone", {"state": "a", "questions": {}}, 400, "malformed_request"),
    ("/v1/systemone", {"state": " ", "questions": {"q": CHOICE}}, 400, "empty_query"),
    ("/v1/systemone", {"state": "a", "questions": {"q": NOUL}}, 400, "malformed_request"),
    ("/v1/systemone", {"state": "a", "questions": MANY}, 413, "too_many_documents"),
]


@pytest.mark.parametrize(("path", "body", "status", "code"), BAD)
def test_unusable_request_is_refused(
    served: Served, path: str, body: Any, status: int, code: str
) -> None:
    answer = served.post(path, body)
    values = answer.json()
    found = values.get("code") or values["error"]["code"]
    assert (answer.status_code, found) == (status, code)
    tei = isinstance(body, dict) and "texts" in body
    nested = path == "/v1/systemone"
    assert values["error" if tei or nested else "message"]
    assert served.post("/v2/rerank", {"query": "a", "documents": ["a"]}).status_code == 200


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank", "/voyage/rerank", "/rerank"])
def test_empty_document_is_the_last_result(served: Served, path: str) -> None:
    name = "texts" if path == "/rerank" else "documents"
    answer = served.post(path, {"query": QUERY, name: ["", *TEXTS]})
    values = answer.json()
    rows = values if isinstance(values, list) else values.get("results") or values["data"]
    assert answer.status_code == 200
    assert [row["index"] for row in rows][0::3] == [2, 0]
    assert rows[-1].get("relevance_score", rows[-1].get("score")) == 0


def test_max_tokens_per_doc_limits_the_text_read(served: Served) -> None:
    text = "Lunch is served at noon. " * 8 + TEXTS[1]
    asked = {"query": QUERY, "documents": [text, "Bread needs yeast."]}
    (whole, _) = served.post("/v2/rerank", asked).json()["results"]
    cut = served.post("/v2/rerank", {**asked, "max_tokens_per_doc": 40}).json()["results"]
    by_index = {row["index"]: row for row in cut}
    assert whole["index"] == 0
    assert "truncated" not in whole
    assert by_index[0]["relevance_score"] < whole["relevance_score"]
    assert (by_index[0]["truncated"], "truncated" in by_index[1]) == (True, False)


def test_request_without_the_key_is_refused(served: Served) -> None:
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {KEY}"}):
        answer = served.post("/v2/rerank", {}, {"Content-Type": "application/json", **headers})
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")


@pytest.mark.parametrize("key", ["ключ", os.fsdecode(b"caf\xe9")])
def test_key_may_have_any_bytes(key: str) -> None:
    from crossgate._serving.request_limits import Guard, Limits

    async def app(*_: Any) -> None: ...

    guard = Guard(app, limits=Limits(), key=key)
    assert guard._has_key("/route", f"Bearer {os.fsencode(key).decode('latin-1')}")
    assert not guard._has_key("/route", "Bearer other")


def asked_as(served: Served, host: str) -> tuple[int, str | None]:
    answer = served.get("/v2/rerank", Host=host)
    return answer.status_code, answer.json()["code"]


def test_loopback_without_a_key_refuses_the_host_of_a_web_page() -> None:
    known = ("localhost", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:8787", "[::1]", "[::1]:80")
    unknown = (
        "evil.example",
        "evil.example:8787",
        "localhost.evil.example",
        "127.0.0.1.nip.io",
        "",
    )
    with serving("--host", "127.0.0.2", "--port", "0", "--reranker", "none", key="") as running:
        for host in (*known, "127.0.0.2", running.url.removeprefix("http://")):
            assert asked_as(running, host) == (405, "method_not_allowed"), host
        for host in unknown:
            assert asked_as(running, host) == (403, "unknown_host"), host
        page = running.get("/docs", Host="a.example")
        assert page.status_code == 403  # pages that need no key are refused too


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({}, 415, "unsupported_type"),
        ({"content-type": "text/plain"}, 415, "unsupported_type"),
        ({"content-type": "application/json, text/plain"}, 415, "unsupported_type"),
        ({"origin": "https://a.test"}, 403, "foreign_origin"),
        ({"origin": "null"}, 403, "foreign_origin"),
        ({"origin": "http://localhost:9"}, 403, "foreign_origin"),
    ],
)
def test_request_of_a_web_page_elsewhere_is_refused_before_the_application(
    headers: dict[str, str], status: int, code: str
) -> None:
    from crossgate._serving.request_limits import Guard, Limits

    sent: list[Any] = []

    async def app(*_: Any) -> None:
        raise AssertionError

    async def receive() -> Any:
        return {"type": "http.request", "body": b"{}"}

    async def send(message: Any) -> None:
        sent.append(message)

    guard = Guard(app, limits=Limits(), key=None, hosts=frozenset({"localhost"}))
    lines = {"host": "localhost:8787", **headers}
    lines_sent = [(name.encode(), value.encode()) for name, value in lines.items()]
    asyncio.run(guard(SCOPE | {"headers": lines_sent}, receive, send))
    assert sent[0]["status"] == status
    assert json.loads(sent[1]["body"])["code"] == code


def test_page_of_the_server_may_ask_it() -> None:
    with serving("--port", "0", "--reranker", "none", key="") as running:
        for origin in (running.url, running.url.replace("127.0.0.1", "localhost")):
            host = origin.removeprefix("http://")
            headers = {"Content-Type": "application/json", "Origin": origin, "Host": host}
            body = {"query": QUERY, "documents": TEXTS}
            assert running.post("/v2/rerank", body, headers).is_success


def test_other_spellings_of_loopback_refuse_the_host_of_a_web_page() -> None:
    with serving("--host", "127.1", "--port", "0", "--reranker", "none", key="") as running:
        assert asked_as(running, "evil.example") == (403, "unknown_host")
        assert asked_as(running, "127.1") == (405, "method_not_allowed")


def test_host_is_free_on_a_server_with_a_key(served: Served) -> None:
    assert served.get("/health", Host="a.example").status_code == 200


def test_pages_for_machines_and_people(served: Served) -> None:
    health = served.get("/health").json()
    assert (health["status"], health["documents"]) == ("ok", len(build(embedder=None)))
    served.post("/v2/rerank", {"query": "a", "documents": ["a"]})
    served.post("/no/such/page", {})
    counted = served.get("/metrics").text
    assert re.search(r'crossgate_requests_total\{path="/v2/rerank",status="200"\} \d', counted)
    assert "no/such" not in counted
    described = served.get("/openapi.json").json()
    schemas = described["components"]["schemas"]
    assert "trace" in schemas["RouteRequest"]["properties"]
    assert "trace" not in schemas["ExplainRequest"]["properties"]
    paths = {"/v1/rerank", "/v2/rerank", "/rerank", "/voyage/rerank", "/v1/systemone"}
    paths |= {"/route", "/explain", "/documents", "/health", "/metrics"}
    assert set(described["paths"]) == paths
    page = served.get("/docs").text
    assert "/v2/rerank" in page
    assert page.count("min_relevance") >= 3
    assert "://" not in page
    assert "src=" not in page


def test_requests_refused_before_parsing_are_counted(served: Served) -> None:
    def counted() -> dict[str, float]:
        page = served.get("/metrics").text
        line = r'^crossgate_requests_total\{path="/v2/rerank",status="(\d+)"\} (\S+)'
        return {status: float(number) for status, number in re.findall(line, page, re.MULTILINE)}

    before = counted()
    assert served.post("/v2/rerank", {}, {}).status_code == 401
    assert served.post("/v2/rerank", b" " * 100_001).status_code == 413
    assert served.post("/v2/rerank", {"query": "a", "documents": ["a"]}).status_code == 200
    after = counted()
    more = {status: number - before.get(status, 0) for status, number in after.items()}
    assert {status: one for status, one in more.items() if one} == {"200": 1, "401": 1, "413": 1}


def test_a_slow_client_holds_no_worker(served: Served) -> None:
    host, port = served.url.removeprefix("http://").split(":")
    head = f"POST /v2/rerank HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {KEY}\r\n"
    slow = [socket.create_connection((host, int(port))) for _ in range(40)]
    try:
        for one in slow:
            one.sendall(f"{head}Content-Length: 1000\r\n\r\n{{".encode())
        answer = served.post("/v2/rerank", {"query": "a", "documents": ["a"]})
        assert answer.status_code == 200
    finally:
        for one in slow:
            one.close()


@pytest.mark.parametrize(
    "sent",
    [b"", b"POST /route HTTP/1.1\r\nHost: x\r\n", b"GET /a HTTP/1.1\r\nHost: x\r\n\r\nGET /b"],
    ids=["nothing", "first", "second"],
)
def test_headers_that_do_not_arrive_close_the_connection(sent: bytes) -> None:
    """The first request or a further one on the same connection, which uvicorn waits for."""
    import uvicorn

    from crossgate._serving.request_limits import Connection

    class Hasty(Connection):
        seconds = 3_600 if b"GET" in sent else 0.01

    async def app(scope: Any, receive: Any, send: Any) -> None:
        Hasty.seconds = 0.01
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    async def ask() -> bytes:
        # Idle connections would be closed in any case, so they are not tested.
        config = uvicorn.Config(app, http=Hasty, lifespan="off", timeout_keep_alive=3_600)
        server = uvicorn.Server(config)
        with socket.create_server(("127.0.0.1", 0)) as listening:
            running = asyncio.create_task(server.serve([listening]))
            reader, writer = await asyncio.open_connection(*listening.getsockname())
            writer.write(sent)
            answered = await asyncio.wait_for(reader.read(), 30)
            writer.close()
            server.should_exit = True
            await running
        return answered

    assert asyncio.run(ask())[:12] == (b"HTTP/1.1 204" if b"GET" in sent else b"")


def sent_at_once(served: Served, request: bytes) -> bytes:
    host, port = served.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as one:
        one.sendall(request)
        return b"".join(iter(lambda: one.recv(10_000), b""))  # until the server closes


def test_long_headers_in_one_read_are_refused(served: Served) -> None:
    head = b"GET /health HTTP/1.1\r\nHost: x\r\nX-A: " + b"a" * 70_000
    assert sent_at_once(served, head + b"\r\n\r\n").startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize("order", [1, -1])
def test_a_request_with_two_lengths_is_refused_and_its_connection_closed(
    served: Served, order: int
) -> None:
    lengths = [b"Content-Length: 5", b"Transfer-Encoding: chunked"][::order]
    head = b"\r\n".join([b"POST /v2/rerank HTTP/1.1", b"Host: x", *lengths])
    after = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    answer = sent_at_once(served, head + b"\r\n\r\n0\r\n\r\n" + after)
    assert answer.startswith(b"HTTP/1.1 400")
    assert answer.count(b"HTTP/1.1") == 1


def test_a_client_cannot_fill_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    upgrade = b"Connection: Upgrade, close\r\nUpgrade: websocket\r\n"
    upgrade += b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    with serving("--port", "0", "--reranker", "none") as running:
        capfd.readouterr()
        head = b"GET /v2/rerank HTTP/1.1\r\nHost: x\r\n"
        assert sent_at_once(running, head + upgrade + b"\r\n").startswith(b"HTTP/1.1 401")
        assert sent_at_once(running, b"nonsense\r\n\r\n").startswith(b"HTTP/1.1 400")
        assert running.stop() == 0
    lines = capfd.readouterr().err.splitlines()
    assert [line for line in lines if not line.startswith("crossgate: serving ")] == []


def test_incomplete_request_times_out() -> None:
    from crossgate._serving.request_limits import Guard, Limits

    sent: list[Any] = []

    async def never(*_: Any) -> Any:
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    guard = Guard(never, limits=Limits(read_seconds=0.01), key=None)
    asyncio.run(guard(SCOPE, never, send))
    assert sent[0]["status"] == 408


def test_requests_beyond_the_queue_are_refused() -> None:
    from prometheus_client import CollectorRegistry

    from crossgate import rerank
    from crossgate._serving.app import Decisions, Refused
    from crossgate._serving.request_limits import Limits

    go = threading.Event()

    def decide() -> Any:
        go.wait()
        return rerank("a", ["a"], reranker=None)

    async def ask() -> list[Any]:
        decisions = Decisions(Limits(concurrency=1, waiting=2), CollectorRegistry())
        asked = [asyncio.create_task(decisions.make(decide)) for _ in range(5)]
        done, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        assert len(done) == 2
        go.set()
        return await asyncio.gather(*asked, return_exceptions=True)

    answers = asyncio.run(ask())
    refused = [one for one in answers if isinstance(one, Refused)]
    assert [(one.status, one.code) for one in refused] == [(429, "overloaded")] * 2


def test_queued_request_of_a_gone_client_is_cancelled(served: Served) -> None:
    """Of forty clients that hang up, those that still wait give up their places at once."""

    def counted() -> tuple[float, float]:
        page = served.get("/metrics").text
        in_hand = re.search(r"^crossgate_requests_in_hand (\S+)", page, re.MULTILINE)
        made = re.findall(r"^crossgate_decisions_total\S* (\S+)", page, re.MULTILINE)
        assert in_hand
        return float(in_hand[1]), sum(map(float, made))

    _, before = counted()
    host, port = served.url.removeprefix("http://").split(":")
    texts = [f"{one} {n} " * 20 for n in range(16) for one in TEXTS]
    body = json.dumps({"query": QUERY, "documents": texts})
    head = f"POST /v2/rerank HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {KEY}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    clients = [socket.create_connection((host, int(port))) for _ in range(40)]
    try:
        for one in clients:
            one.sendall((head + body).encode())
        while counted()[0] < 36:
            assert counted()[1] - before < 40
    finally:
        for one in clients:
            one.close()
    assert served.post("/v2/rerank", {"query": "a", "documents": ["a"]}).status_code == 200
    while counted()[0]:
        pass
    assert counted()[1] - before < 40


def test_open_requests_are_answered_on_shutdown() -> None:
    with serving("--port", "0") as running, ThreadPoolExecutor(6) as pool:
        asked = {"query": QUERY, "documents": [f"{one} {n}" for n in range(40) for one in TEXTS]}
        answers = [pool.submit(running.post, "/v2/rerank", asked) for _ in range(6)]
        counted = ""
        while "in_hand 6.0" not in counted:
            counted = running.get("/metrics").text
            assert not any(one.done() for one in answers)
        assert running.stop() == 0
        assert [one.result().status_code for one in answers] == [200] * 6
        with pytest.raises(httpx2.ConnectError):
            running.post("/v2/rerank", asked)


TOLD_EARLY = """
import os, signal, sys, uvicorn
import crossgate._cli.serve as serve
from crossgate._cli import main

owner, name = {"print": (serve, "show_json"), "run": (uvicorn.Server, "run")}[sys.argv.pop(1)]
told = getattr(owner, name)

def tell(*arguments, **options):
    os.kill(os.getpid(), signal.SIGTERM)
    return told(*arguments, **options)

setattr(owner, name, tell)
sys.exit(main())
"""


@pytest.mark.parametrize("moment", ["print", "run"])
def test_server_stops_on_a_signal_during_startup(moment: str) -> None:
    """Between its address and its first request no signal is lost, and none kills it."""
    command = [sys.executable, "-c", TOLD_EARLY, moment, "serve", "--json"]
    done = subprocess.run(
        [*command, "--port", "0", "--reranker", "none"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["serving"]


def test_ipv6_address_is_usable_by_clients() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    with serving("--host", "::1", "--port", "0", "--reranker", "none") as running:
        assert running.url.startswith("http://[::1]:")
        assert running.post("/v2/rerank", {"query": "a", "documents": ["a"]}).status_code == 200


def started(*options: str) -> tuple[int, str]:
    script = "import sys; from crossgate._cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", script, "serve", *options], capture_output=True, text=True
    )
    code = re.search(r"error\[(\w+)\]", done.stderr)
    return done.returncode, code[1] if code else done.stderr


def test_unusable_options_are_refused_at_start(tmp_path: Path) -> None:
    assert started("--port", "70000") == (2, "address_unusable")
    assert started("--host", "\u202eé..", "--port", "0") == (2, "address_unusable")
    assert "'-1' is not a whole number" in started("--port", "0", "--concurrency", "-1")[1]
    assert started("--port", "0", "--index", str(tmp_path / "none.cgx")) == (2, "index_missing")


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from crossgate._cli import run

    monkeypatch.setitem(sys.modules, "fastapi", None)
    said: list[str] = []
    monkeypatch.setattr("crossgate._cli.output.say", said.append)
    assert run(["serve", "--port", "0"]) == 2
    assert "pip install 'crossgate[serve]'" in said[0]


@pytest.mark.parametrize("place", ["/v1/rerank", "/v2/rerank", "/rerank"])
@pytest.mark.parametrize("odd", [b'"\\ud800"', b"NaN", b"-Infinity"])
def test_values_outside_json_do_not_break_the_answer(
    served: Served, place: str, odd: bytes
) -> None:
    text = json.dumps(QUERY).encode()
    body = b'{"query":%s,"documents":[{"text":"a","x":%s}],"return_documents":true}' % (text, odd)
    answered = served.post(place, body)
    assert answered.status_code == 200
    (found,) = answered.json()["results"]
    assert found["document"]["text"] == "a"
    assert found["document"]["x"] in (None, "\ud800")
    key = b'{"query":%s,"documents":[{"text":"a","\\ud800":1}],"return_documents":true}' % text
    assert served.post(place, key).json()["results"][0]["document"]["\ud800"] == 1
    named = served.post(place, b'{"query":%s,"documents":[{"t\\ud800":"a"}]}' % text)
    assert (named.status_code, named.json()["code"]) == (400, "malformed_candidate")
    for unreadable in (b"[" * 90_000, b'{"query":' + b"9" * 5_000 + b"}", b"\xff\xfe"):
        answered = served.post(place, unreadable)
        assert answered.status_code in (400, 422)
        assert answered.json()["code"] == "malformed_request"


def test_invalid_address_has_an_error_code(served: Served) -> None:
    assert served.post("/nowhere", {}).json()["error"]["code"] == "not_found"
    assert served.post("/health", {}).json()["error"]["code"] == "method_not_allowed"
