"""Damaged and hostile input, drawn from a seed: each draw is used, or refused with a code.

CI runs a few draws of each kind; `make attack` runs as many as CROSSGATE_ATTACKS says, and prints
how many of each kind were tried, held and broken. A failure names the draw, which is the seed of
the same input on every machine.
"""

from __future__ import annotations

import copy
import json
import math
import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from conftest import LIBRARY, LengthReranker, build
from crossgate import CrossgateError, Index, Profile, Router, read_policy, read_profile, rerank
from crossgate._agents.hook.agents import AGENTS, PROMPT_CHARS, UnreadableCall, read_hook_prompt
from crossgate._agents.hook.answer import answer
from crossgate._agents.hook.options import HookOptions
from crossgate._agents.hook.skill_library import SkillLibrary
from crossgate._cli import run
from crossgate._decision import cascade
from crossgate._decision.log_replay import check_decision
from crossgate._sources.reading import read_sources
from crossgate._sources.rows import read_candidates
from crossgate._values.profile_files import profile_values
from crossgate.evaluation import measure_candidates, read_labels, read_run
from crossgate.rerankers import (
    CohereReranker,
    DecisionReranker,
    LLMReranker,
    passages_of,
    shut_down,
)
from crossgate.telemetry import JsonLinesLog, LoggedDecision, read_log
from local_server import JsonHandler, LocalServer

DRAWS = int(os.environ.get("CROSSGATE_ATTACKS", "150"))

QUERY = "repair a csv with duplicate rows"

VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1, 2**31, 2**63, -(2**64), 10**400, 0.5, -0.0, 1e-320, 1e308),
    *(float("nan"), float("inf"), "", " ", "x", "0", "\0", "\ud800", "\x1b[31m", "\u202e", "é"),
    *("../../etc/passwd", "#/", "#/components/schemas/Pet", "x" * 70_000, "\n" * 500),
    *([], [[]], [None], {}, {"": ""}, {"$ref": "#/"}, ["a"] * 300, {"a": {"a": {"a": {}}}}),
]


def containers(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every container of a JSON value with each of its keys."""
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from containers(value[key])


def damaged(draw: random.Random, value: Any) -> bytes:
    """Return a value as JSON with some of it replaced, removed, repeated, or broken as text."""
    value = json.loads(json.dumps(value))
    for _ in range(draw.choice((1, 1, 1, 2, 5))):
        found = list(containers(value))
        if not found:
            break
        holder, key = draw.choice(found)
        match draw.randrange(6):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, dict):
                holder[draw.choice(("x", "", "schema", "\ud800", str(key) * 2))] = holder.pop(key)
            case 2 if isinstance(holder, list):
                holder.extend([holder[key]] * draw.choice((1, 50)))
            case 3:
                holder[key] = [holder[key]]
            case _:
                holder[key] = copy.deepcopy(draw.choice(VALUES))
    data = bytearray(json.dumps(value).encode())
    match draw.randrange(12):
        case 0:
            del data[draw.randrange(len(data) + 1) :]
        case 1:
            for _ in range(draw.randrange(1, 6)):
                data[draw.randrange(len(data))] = draw.randrange(256)
        case 2:
            at = draw.randrange(len(data) + 1)
            data[at:at] = draw.choice(
                (b"[" * 100_000, b'{"a":' * 100_000, b"\xff", b"\0", b"9" * 5_000)
            )
    return bytes(data)


class Tally:
    """Counts the draws of each kind, and prints a table; SECURITY.md has its sums."""

    def __init__(self) -> None:
        self.kind = ""
        self.tried: Counter[str] = Counter()
        self.broken: Counter[str] = Counter()

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print one row for each kind."""
        rows = ["| kind | tried | held | broken |", "| --- | --- | --- | --- |"]
        for kind in [*self.tried, ""]:
            tried = self.tried[kind] if kind else self.tried.total()
            broken = self.broken[kind] if kind else self.broken.total()
            rows.append(f"| {kind or 'all'} | {tried:,} | {tried - broken:,} | {broken:,} |")
        for row in rows:
            terminalreporter.line(row)


TALLY = Tally()


@pytest.fixture(scope="module", autouse=True)
def _table(request: pytest.FixtureRequest) -> None:
    if "CROSSGATE_ATTACKS" in os.environ:
        request.config.pluginmanager.register(TALLY)


@pytest.fixture(autouse=True)
def _kind(request: pytest.FixtureRequest) -> None:
    name, _, case = request.node.name.removeprefix("test_").rstrip("]").partition("[")
    TALLY.kind = f"{name.replace('_', ' ')}{f' ({case})' if case else ''}"


@contextmanager
def naming_the_draw(number: int) -> Iterator[None]:
    """Accept errors with a code, and name the draw in any other error."""
    TALLY.tried[TALLY.kind] += 1
    try:
        yield
    except CrossgateError as error:
        if not error.code:
            TALLY.broken[TALLY.kind] += 1
            raise AssertionError(f"draw {number}: no code") from error
    except Exception as error:
        TALLY.broken[TALLY.kind] += 1
        raise AssertionError(f"draw {number}: {error!r}") from error


def attack(value: Any, use: Callable[[bytes], object], draws: int = DRAWS) -> None:
    """Use a number of damaged forms of a value."""
    for number in range(draws):
        data = damaged(random.Random(number), value)
        with naming_the_draw(number):
            use(data)


@pytest.fixture(scope="module")
def index() -> Index:
    return build(embedder=None)


@pytest.fixture(scope="module")
def trace(index: Index) -> Any:
    result = Router(index, reranker=None).route(QUERY)
    return json.loads(json.dumps(result.trace))


SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "The file", "enum": ["a", "b"]},
        "rows": {"type": "array", "items": {"$ref": "#/$defs/Row"}},
    },
    "$defs": {"Row": {"anyOf": [{"properties": {"cell": {"const": 1}}}, {"$ref": "#/$defs/Row"}]}},
}
TOOLS = {
    "result": {
        "tools": [
            {"name": "read", "title": "Read", "description": "Read a file", "inputSchema": SCHEMA},
            {"type": "function", "function": {"name": "write", "parameters": SCHEMA}},
        ]
    }
}
OPENAPI = {
    "openapi": "3.1.0",
    "paths": {
        "/pets/{id}": {
            "parameters": [{"name": "id", "schema": {"type": "string"}}],
            "get": {"operationId": "getPet", "summary": "One pet", "parameters": []},
            "post": {
                "description": "Change a pet",
                "requestBody": {"$ref": "#/components/requestBodies/Pet"},
            },
        },
        "/all": {"$ref": "#/components/pathItems/All"},
    },
    "components": {
        "schemas": {"Pet": SCHEMA},
        "pathItems": {"All": {"get": {"summary": "All pets"}}},
        "requestBodies": {
            "Pet": {
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}}
            }
        },
    },
}


@pytest.mark.parametrize("value", [TOOLS, OPENAPI], ids=["tools", "openapi"])
def test_damaged_tools_are_refused_with_a_code(tmp_path: Path, value: Any) -> None:
    path = tmp_path / "tools.json"

    def use(data: bytes) -> None:
        path.write_bytes(data)
        documents = read_sources([path]).documents
        Index.build(documents, embedder=None)
        assert all(len(document.body) <= 6_000 for document in documents)

    attack(value, use)


def test_damaged_profiles_and_policies_are_refused_with_a_code(
    tmp_path: Path, index: Index
) -> None:
    path = tmp_path / "settings.json"
    profile = profile_values(read_profile(_bundled_profile()))
    policy = {
        "schema": "crossgate-policy/2",
        "floors": {"default": 0.1, "sections": {"chat": 0.3}},
    }

    def use(data: bytes) -> None:
        path.write_bytes(data)
        for read, option in ((read_profile, "profile"), (read_policy, "policy")):
            try:
                settings: Any = {option: read(path)}
            except CrossgateError:
                continue
            given = {"profile": Profile(), **settings}
            result = Router(index, reranker=None, **given).route(QUERY)
            assert cascade.replay(result.trace)["decision"] == result.trace["decision"]

    attack(profile, use)
    attack(policy, use)


def _bundled_profile() -> Path:
    from crossgate._decision.router import DEFAULT_PROFILE

    return DEFAULT_PROFILE


def test_damaged_traces_are_refused_with_a_code(trace: Any) -> None:
    def use(data: bytes) -> None:
        try:
            found = json.loads(data)
        except (ValueError, RecursionError):
            return
        # It never raises, whatever the log contains.
        logged = LoggedDecision(
            line=1,
            decision="0" * 32,
            time=datetime.now(UTC),
            selected=("a",),
            degraded=(),
            trace=found,
            query=None,
            texts=None,
        )
        check_decision(logged)

    attack(trace, use)


def test_damaged_logs_and_runs_are_refused_with_a_code(tmp_path: Path, index: Index) -> None:
    path = tmp_path / "log.jsonl"
    router = Router(index, reranker=None, telemetry=JsonLinesLog(path, text=True))
    router.route(QUERY)
    line = json.loads(path.read_text())

    def use(data: bytes) -> None:
        path.write_bytes(data + b"\n")
        for entry in read_log(path):
            if isinstance(entry, LoggedDecision):
                check_decision(entry)
        read_run(path)

    attack(line, use)


def test_damaged_candidates_are_refused_with_a_code(tmp_path: Path) -> None:
    rows = [
        {"id": "a", "title": "t", "text": "a csv", "score": 0.5, "cosine": 0.1, "metadata": {}},
        {"_id": 2, "page_content": "rows", "body": "long", "vector": [0.1, 0.2]},
    ]
    path = tmp_path / "candidates.json"

    def use(data: bytes) -> None:
        path.write_bytes(data)
        found = read_candidates(path.read_text("utf-8", "surrogateescape"), name="candidates")
        rerank(QUERY, found, reranker=None).to_json(trace=True)

    attack(rows, use)
    attack(rows, lambda data: rerank(QUERY, _parsed(data), reranker=None).to_json())


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return []


def test_damaged_datasets_and_labels_are_refused_with_a_code(tmp_path: Path) -> None:
    corpus, labels = tmp_path / "corpus.jsonl", tmp_path / "labels.jsonl"
    corpus.write_text('{"_id": "a", "text": "a csv"}\n{"_id": "b", "text": "a pdf"}\n')
    rows = [
        {"query": "mend rows", "relevant": ["a"], "split": "test"},
        {"query": "cook", "relevant": []},
        {"prompt": "x", "should_trigger": True, "expected_skill": "b"},
    ]

    def use(data: bytes) -> None:
        labels.write_bytes(data)
        for suffix in (".jsonl", ".json", ".csv"):
            given = labels.with_suffix(suffix)
            given.write_bytes(data)
            with naming_the_draw(-1):
                read_labels(corpus, [given])

    attack(rows, use, draws=DRAWS // 2)


@pytest.mark.parametrize("agent", AGENTS)
def test_damaged_hook_input_never_fails_the_hook(tmp_path: Path, index: Index, agent: str) -> None:
    path = tmp_path / "skills.cgx"
    index.save(path)
    call = {
        "hook_event_name": AGENTS[agent].event,
        "prompt": QUERY,
        "session_id": "s",
        "cwd": "/",
        "transcript_path": "/x",
    }
    library = SkillLibrary(sources=("x",), folder=tmp_path)
    options = HookOptions(index=str(path), budget_ms=60_000)

    def use(data: bytes) -> None:
        try:
            prompt = read_hook_prompt(AGENTS[agent], data)
        except UnreadableCall as error:
            if len(str(error).splitlines()) != 1:
                raise
            return
        assert len(prompt.text) <= PROMPT_CHARS
        found = answer(AGENTS[agent], prompt, options, library, started=0.0, clock=lambda: 0.0)
        assert found.context.isascii() or found.context.encode()
        assert set(found.ids) <= set(LIBRARY)

    attack(call, use, draws=DRAWS // 4)


def test_damaged_request_bodies_are_refused_by_the_server(tmp_path: Path, index: Index) -> None:
    pytest.importorskip("fastapi", reason="the extra serve is not installed")
    pytest.importorskip("uvicorn", reason="the extra serve is not installed")
    from test_serve import serving

    path = tmp_path / "skills.cgx"
    index.save(path)
    documents = [{"text": "a csv", "id": 3, "title": "t"}, "rows"]
    bodies: dict[str, Any] = {
        "/v1/rerank": {
            "query": QUERY,
            "documents": documents,
            "top_n": 1,
            "return_documents": True,
        },
        "/v2/rerank": {"query": QUERY, "documents": documents, "min_relevance": 0.1, "model": "m"},
        "/rerank": {"query": QUERY, "texts": ["a csv"], "raw_scores": True, "return_text": True},
        "/explain": {"query": QUERY, "id": "a", "limit": 2},
        "/route": {"query": QUERY, "limit": 2, "allow": ["a"], "deny": ["b"], "section": "s"},
    }
    with serving("--port", "0", "--index", str(path), "--reranker", "none") as served:
        for place, body in bodies.items():

            def use(data: bytes, place: str = place) -> None:
                answered = served.post(place, data)
                assert answered.status_code < 500, (place, data[:300])
                found = answered.json()
                if answered.status_code >= 400:
                    assert "code" in (found["error"] if place in ("/route", "/explain") else found)

            attack(body, use, draws=DRAWS // 3)
        assert served.stop() == 0


def refusing(arguments: list[str], errors: Callable[[], str], codes: set[int]) -> None:
    """Run a command in this process; it exits with an expected code and prints the error."""
    code = run(arguments)
    told = errors()
    assert code in codes, (code, told)
    assert code != 3 or "error[unwritable]" in told, told
    assert "Traceback" not in told, told
    assert code < 2 or told.startswith("crossgate: "), told


def test_damaged_reports_are_refused_by_compare(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from crossgate._evaluation.compare import REPORTS_SCHEMA
    from outcome_queries import CLOSED, PROFILE, many

    before, after = (
        {"schema": REPORTS_SCHEMA, "reports": list(many(profile, count=1).values())}
        for profile in (PROFILE, CLOSED)
    )
    sound, path, page = (tmp_path / name for name in ("sound.json", "other.json", "page.html"))
    sound.write_text(json.dumps(before))

    def use(data: bytes) -> None:
        path.write_bytes(data)
        for files in ([sound, path], [path, sound]):
            given = ["eval", "compare", *map(str, files), "--html", str(page)]
            refusing(given, lambda: capsys.readouterr().err, {0, 1, 2})
            assert not page.exists() or "\x1b" not in page.read_text()

    attack(after, use, draws=DRAWS // 5)


def test_damaged_logs_and_transcripts_are_refused_by_feedback_and_usage(
    tmp_path: Path, index: Index, capsys: pytest.CaptureFixture[str]
) -> None:
    log, transcript = tmp_path / "log.jsonl", tmp_path / "t" / "a.jsonl"
    Router(index, reranker=None, telemetry=JsonLinesLog(log, text=True)).route(QUERY)
    decision = json.loads(log.read_text())
    said = {"type": "user", "message": {"role": "user", "content": QUERY}, "isMeta": False}
    block = {"type": "tool_use", "id": "t", "name": "Skill", "input": {"skill": "csv-cleaner"}}
    called = {"type": "assistant", "message": {"role": "assistant", "content": [block]}}
    transcript.parent.mkdir()

    def use(data: bytes) -> None:
        # The value is the list of the file's lines, so each line may be damaged.
        try:
            lines = [json.dumps(row).encode() for row in json.loads(data)]
        except (ValueError, TypeError, RecursionError):
            lines = [data]
        log.write_bytes(b"\n".join(lines[:1]) + b"\n")
        transcript.write_bytes(b"\n".join(lines[1:] or lines) + b"\n")
        counted = ["usage", "--transcripts", str(transcript.parent)]
        for given in (["feedback", "right", "--log", str(log)], counted):
            # 1: the hook has logged nothing; 3: the log is another file, and is not changed.
            refusing(given, lambda: capsys.readouterr().err, {0, 1, 2, 3})

    attack([decision, said, called], use)


def test_damaged_candidate_runs_are_refused_by_eval(tmp_path: Path) -> None:
    row = {
        "query": "merge two pdf files",
        "relevant": ["pdf"],
        "candidates": [
            {"id": "pdf", "title": "PDF", "text": "merge and split pdf files", "cosine": 0.8},
            {"_id": "csv", "content": "repair tables", "cosine": 0.1, "page": 3},
        ],
    }
    path, output = tmp_path / "found.jsonl", tmp_path / "found.run.jsonl"

    def use(data: bytes) -> None:
        path.write_bytes(data + b"\n" + json.dumps(row).encode() + b"\n")
        measure_candidates(path, output, reranker=LengthReranker(), embedder="mine@1")
        read_run(output)

    attack(row, use)


OPTIONS = ["option 1", "option 2", "none"]
ANSWERS: dict[str, Any] = {
    "cohere": {"results": [{"index": 0, "relevance_score": 0.5}, {"index": 1}]},
    "systemone": {
        "answers": {"fit": {"type": "choice", "probabilities": dict.fromkeys(OPTIONS, 0.33)}}
    },
    "llm": {"choices": [{"message": {"role": "assistant", "content": "[2] > [1]"}}]},
}


class AnyAnswer(LocalServer):
    """A server that answers each request with the same bytes."""

    def __init__(self) -> None:
        self.body = b""
        answers = self

        class Handler(JsonHandler):
            def do_POST(self) -> None:
                self.request_body()
                self.reply(answers.body)

        super().__init__(Handler)


@pytest.fixture
def answering() -> Iterator[AnyAnswer]:
    with AnyAnswer() as answers:
        yield answers
        shut_down()


@pytest.mark.parametrize("format", list(ANSWERS))
def test_damaged_answers_of_remote_tiers_are_refused_with_a_code(
    answering: AnyAnswer, format: str
) -> None:
    options: dict[str, Any] = {"base_url": answering.address, "api_key": "key", "attempts": 1}
    tier: Any
    if format == "cohere":
        tier = CohereReranker(**options)
    elif format == "llm":
        tier = LLMReranker("any", **options)
    else:
        tier = DecisionReranker("any", **options)
    passages = passages_of(["one text", "another text"])

    def use(data: bytes) -> None:
        answering.body = data
        for pair in tier.score("query", passages):
            if pair is not None and not math.isfinite(pair.score):
                raise AssertionError(f"score {pair.score}")

    attack(ANSWERS[format], use, draws=min(DRAWS, 1_000))


def test_calibrate_refuses_hostile_labels_with_a_code(tmp_path: Path) -> None:
    """With the embedder; `calibrate` needs some seconds per draw, so there are few."""
    documents, labels, output = (tmp_path / name for name in ("d.jsonl", "l.jsonl", "o.json"))
    rows = [{"id": id, "text": text} for id, text in LIBRARY.items()]
    documents.write_text("".join(json.dumps(row) + "\n" for row in rows))

    for number in range(min(DRAWS // 50, 40)):
        draw = random.Random(number)
        ids = [*LIBRARY, "unknown"]
        kind = draw.randrange(4)
        hostile = []
        for place in range(30):
            query = draw.choice((LIBRARY[draw.choice(list(LIBRARY))], "same", "?" * (place + 1)))
            relevant = [[], ids, [draw.choice(ids)], draw.choice(VALUES)][kind]
            hostile.append({"query": query, "relevant": relevant})
        labels.write_text("".join(json.dumps(row) + "\n" for row in hostile))
        output.unlink(missing_ok=True)
        with naming_the_draw(number):
            code = run(["calibrate", str(documents), str(labels), "-o", str(output)])
            if code not in (0, 1, 2) or (code == 0) != output.exists():
                raise AssertionError(f"exit code {code}")
            if code == 0:
                read_profile(output)


def test_index_that_is_changed_while_it_is_read_gives_one_version_or_an_error(
    tmp_path: Path,
) -> None:
    """The file is replaced, overwritten, truncated and changed; a reader finds one version."""
    path = tmp_path / "skills.cgx"
    fill = "merge split rotate compress " * 30
    versions = [
        build(
            {
                f"{id}{n}": f"csv {text} {fill} v{v}"
                for id, text in LIBRARY.items()
                for n in range(60)
            },
            embedder=None,
        )
        for v in range(2)
    ]
    files = []
    for built in versions:
        built.save(path)
        files.append(path.read_bytes())
    assert len(files[0]) > 100_000  # several blocks of documents
    stop = threading.Event()

    def write() -> None:
        draw = random.Random(5)
        while not stop.is_set():
            version = draw.randrange(2)
            versions[version].save(path)
            with path.open("r+b") as file:
                match draw.randrange(4):
                    case 0:
                        file.write(files[1 - version])
                    case 1:
                        file.truncate(draw.randrange(len(files[0])))
                    case 2:
                        file.seek(draw.randrange(len(files[0])))
                        file.write(draw.randbytes(3))

    writer = threading.Thread(target=write)
    writer.start()
    answered = 0
    try:
        for number in range(DRAWS * 2):
            with naming_the_draw(number):
                result = Router(Index.open(path), reranker=None).route(f"csv row {number}")
                found = {hit.document.text.rpartition(" ")[2] for hit in result.hits}
                if len(found) != 1:
                    raise AssertionError(f"versions {found}")
                answered += 1
    finally:
        stop.set()
        writer.join()
    assert answered > 0
