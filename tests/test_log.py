"""The decision log: what a line holds, what many writers leave, and what hostile lines do."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands import Run, checked, python
from conftest import LIBRARY, LengthReranker, build, refused
from crossgate import Policy, Profile, Router, RouteResult, SourceError
from crossgate._core import (
    Combine,
)
from crossgate._decision.log_replay import Difference, check_decision
from crossgate._pipelines.postprocessing import diversify_sources, postprocess
from crossgate._telemetry.log import (
    MAX_LINE_BYTES,
    SCHEMA,
    JsonLinesLog,
    LoggedDecision,
    LoggedScores,
    LoggedUse,
    MalformedLine,
    parse_line,
    read_log,
)

QUERY = "clean up this messy csv"
ID = "0123456789abcdef" * 2


def route(log: JsonLinesLog | None, query: str = QUERY, **options: Any) -> RouteResult:
    values: dict[str, Any] = {
        "reranker": LengthReranker(),
        "profile": Profile(combine=Combine.Replace()),
        "policy": Policy(cliff_core=1),
        **options,
    }
    return Router(build(), telemetry=log, **values).route(query, limit=2)


def decisions(path: Path) -> list[LoggedDecision]:
    return [one for one in read_log(path) if isinstance(one, LoggedDecision)]


def malformed(line: str | bytes) -> str:
    """Check that a line is malformed, and return why, which stands on one line."""
    found = parse_line(line.encode() if isinstance(line, str) else line, 7)
    assert isinstance(found, MalformedLine), found
    assert found.line == 7
    assert len(found.reason.splitlines()) == 1
    return found.reason


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "decisions.jsonl"


# Writing.


def test_a_line_holds_the_decision(path: Path) -> None:
    before = datetime.now(UTC)
    result = route(JsonLinesLog(path))
    (raw,) = path.read_text(encoding="ascii").splitlines()
    values = json.loads(raw)
    assert (values["schema"], values["kind"]) == ("crossgate-log/3", "decision")
    assert values["decision"] == result.decision_id
    assert values["selected"] == result.ids
    assert values["trace"] == json.loads(json.dumps(result.trace))
    assert values["timings_ms"] == result.timings
    assert values["time"].endswith("Z")
    (logged,) = decisions(path)
    assert before - timedelta(seconds=1) <= logged.time <= datetime.now(UTC)
    assert logged.selected == tuple(result.ids)
    assert logged.decision == result.decision_id
    assert check_decision(logged) is None


def test_texts_are_hashed_unless_asked_for(path: Path) -> None:
    hashed, asked = JsonLinesLog(path), JsonLinesLog(path, text=True)
    result = route(hashed)
    plain = path.read_text()
    assert not any(text in plain for text in (QUERY, *LIBRARY.values()))
    values = json.loads(plain)
    assert values["texts_sha256"] == {
        hit.id: sha256(LIBRARY[hit.id].encode()).hexdigest() for hit in result.hits
    }
    assert values["trace"]["query_sha256"] == sha256(QUERY.encode()).hexdigest()
    route(asked)
    without, with_text = decisions(path)
    assert (without.query, without.texts) == (None, None)
    assert with_text.query == QUERY
    assert with_text.texts == {hit.id: LIBRARY[hit.id] for hit in result.hits}


def test_used_documents_are_logged(path: Path) -> None:
    log = JsonLinesLog(path)
    result = route(log)
    assert result.decision_id is not None
    log.used(result.decision_id, ["csv-cleaner", "csv-cleaner", "two\nlines", "ü"])
    log.used(result.decision_id, iter([]), judged=True)
    assert "judged" not in path.read_text().splitlines()[1]
    _, use, none = read_log(path)
    assert isinstance(use, LoggedUse)
    assert not use.judged
    assert (use.line, use.decision) == (2, result.decision_id)
    assert use.used == ("csv-cleaner", "two\nlines", "ü")
    assert isinstance(none, LoggedUse)
    assert (none.used, none.judged) == ((), True)


def test_late_scores_of_the_reranker_are_logged(path: Path) -> None:
    log = JsonLinesLog(path)
    skipped, asked = route(log, reranker=None), route(None)
    assert skipped.decision_id is not None
    assert asked.trace["stage2"]
    log.scored(skipped.decision_id, asked)
    _, scores = read_log(path)
    assert isinstance(scores, LoggedScores)
    assert (scores.decision, scores.reranker) == (skipped.decision_id, asked.trace["reranker"])
    assert {id: score for id, (score, _) in scores.pairs.items()} == {
        one["id"]: one["score"] for one in asked.trace["stage2"]
    }
    refused("out_of_range", log.scored, skipped.decision_id, skipped)
    refused("out_of_range", log.scored, "no id", asked)


def test_log_refuses_values_that_it_cannot_record(path: Path, tmp_path: Path) -> None:
    log = JsonLinesLog(path)
    for wrong in ("", "x" * 32, ID.upper(), ID[:31], None, 5):
        refused("out_of_range", log.used, wrong, ["a"])
    refused("out_of_range", log.used, ID, "csv-cleaner")
    refused("invalid_text", log.used, ID, [5])
    refused("invalid_text", log.used, ID, ["\ud800"])
    assert not path.exists()
    refused("unwritable", JsonLinesLog(tmp_path / "no" / "log").used, ID, ["a"])


def test_the_file_is_its_owners_alone(path: Path) -> None:
    route(JsonLinesLog(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_every_id_stays_on_its_line(path: Path) -> None:
    log = JsonLinesLog(path)
    odd = ["\n", "\r\n", "\u2028", "\x85", "\0", '"', "🦀", "\x1b[31m"]
    router = Router(
        build(dict.fromkeys(odd, "clean csv")), reranker=None, profile=Profile(), telemetry=log
    )
    result = router.route("csv", limit=None)
    assert result.degraded == ()
    (logged,) = read_log(path)
    assert isinstance(logged, LoggedDecision)
    assert sorted(logged.selected) == sorted(odd)
    assert check_decision(logged) is None


def test_processes_and_threads_append_at_once(path: Path) -> None:
    script = textwrap.dedent(
        """
        import sys, threading
        from crossgate import Document, Index, Profile, Router
        from crossgate._telemetry.log import JsonLinesLog
        texts = ["clean csv " + "x" * 3000, "merge pdf"]
        index = Index.build([Document(id=t[:9] + "é" * 900, text=t) for t in texts], embedder=None)
        router = Router(
            index, reranker=None, profile=Profile(), telemetry=JsonLinesLog(sys.argv[1], text=True)
        )
        def many():
            for _ in range(50):
                assert not router.route("clean csv").degraded
        threads = [threading.Thread(target=many) for _ in range(2)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        """
    )
    writers = [subprocess.Popen([sys.executable, "-c", script, path]) for _ in range(4)]
    assert [writer.wait(timeout=60) for writer in writers] == [0] * 4
    found = list(read_log(path))
    assert len(found) == 400
    assert all(isinstance(one, LoggedDecision) for one in found)
    assert len({one.decision for one in found if isinstance(one, LoggedDecision)}) == 400


def fifo(folder: Path) -> Path:
    os.mkfifo(folder / "pipe")
    return folder / "pipe"


def written(path: Path, data: bytes) -> Path:
    """Write a file that is not a log."""
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("make", "code", "said"),
    [
        (lambda folder: Path("/dev/full"), "unwritable", "No space left"),
        (lambda folder: folder / "missing" / "log.jsonl", "unwritable", "No such file"),
        (lambda folder: folder, "unwritable", "Is a directory"),
        (lambda folder: folder / ("x" * 300), "unwritable", "name too long"),
        (lambda folder: folder / "nul\0byte", "unwritable", "null byte"),
        (
            lambda folder: written(folder / "a.profile.json", b'{"schema": "x/1"}'),
            "not_a_log",
            "is not a decision log",
        ),
        (
            lambda folder: written(folder / "a.cgx", bytes(range(256)) * 8),
            "not_a_log",
            "is not a decision log",
        ),
    ],
    ids=["disk full", "folder missing", "folder", "name too long", "nul", "profile", "index"],
)
def test_a_log_that_cannot_be_written_stops_no_decision(
    make: Callable[[Path], Path], code: str, said: str, tmp_path: Path
) -> None:
    log = JsonLinesLog(make(tmp_path))
    result = route(log)
    assert result.ids == route(None).ids
    assert [one.code for one in result.degraded] == ["telemetry_failed"]
    assert said in result.degraded[0].detail
    refused(code, log.used, ID, [])


def test_file_that_is_not_a_log_is_not_changed(tmp_path: Path) -> None:
    path = written(tmp_path / "skills.cgx", bytes(range(256)) * 8)
    before = path.read_bytes()
    with pytest.raises(SourceError, match="choose another file"):
        JsonLinesLog(path).used(ID, [])
    route(JsonLinesLog(path))
    assert path.read_bytes() == before
    # Empty lines are skipped, and a torn log is still a log.
    for torn in (b"\n", b'\n{"schema": "crossgate-log/3", "ki'):
        path.write_bytes(torn)
        JsonLinesLog(path).used(ID, ["a"])
        assert path.read_bytes().splitlines()[-1].startswith(b'{"schema": "crossgate-log/3", "ki')


def test_write_to_a_pipe_without_a_reader_does_not_block(tmp_path: Path) -> None:
    log = JsonLinesLog(fifo(tmp_path))
    assert [one.code for one in route(log).degraded] == ["telemetry_failed"]
    # With a reader, the pipe takes the bytes that fit, and the writer does not wait.
    reader = os.open(log.path, os.O_RDONLY | os.O_NONBLOCK)
    degraded = [bool(route(log).degraded) for _ in range(200)]
    os.close(reader)
    assert degraded[0] is False
    assert degraded[-1] is True


def test_a_full_disk_tears_one_line_and_no_other(path: Path) -> None:
    script = """
        import resource, signal, sys
        from crossgate import Document, Index, Profile, Router
        from crossgate._telemetry.log import JsonLinesLog
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        index = Index.build([Document(id="a", text="clean csv")], embedder=None)
        router = Router(
            index, reranker=None, profile=Profile(), telemetry=JsonLinesLog(sys.argv[1])
        )
        router.route("csv")
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, resource.RLIM_INFINITY))
        codes = [one.code for _ in range(3) for one in router.route("csv").degraded]
        assert codes == ["telemetry_failed"] * len(codes) and codes, codes
        resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))
        assert not router.route("csv").degraded
    """
    python(script, path)
    found = list(read_log(path))
    torn = [one for one in found if isinstance(one, MalformedLine)]
    assert len(torn) == 1
    assert isinstance(found[0], LoggedDecision)
    assert isinstance(found[-1], LoggedDecision)
    assert found[-1].line == len(found)


def test_a_log_that_was_moved_away_is_begun_anew(path: Path) -> None:
    log = JsonLinesLog(path)
    route(log)
    path.rename(path.with_suffix(".1"))
    route(log)
    assert len(decisions(path)) == len(decisions(path.with_suffix(".1"))) == 1


# Reading.


def test_malformed_lines(path: Path) -> None:
    route(JsonLinesLog(path))
    good = path.read_bytes().rstrip(b"\n")
    with path.open("wb") as stream:
        stream.write(b"\n" + good + b"\r\n\n  \n\xff\xfe\n" + b'"' + b"x" * MAX_LINE_BYTES + b'"\n')
        stream.write(good[:-9] + b"\n" + good)
    found = list(read_log(path))
    assert [(type(one).__name__, one.line) for one in found] == [
        ("LoggedDecision", 2),
        ("MalformedLine", 5),
        ("MalformedLine", 6),
        ("MalformedLine", 7),
        ("LoggedDecision", 8),
    ]
    reasons = [one.reason for one in found if isinstance(one, MalformedLine)]
    assert "UTF-8" in reasons[0]
    assert "16,000,000 bytes" in reasons[1]
    assert "not JSON" in reasons[2]


def line(**changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "schema": SCHEMA,
        "kind": "decision",
        "decision": ID,
        "time": "2026-11-22T03:34:09.762081Z",
        "selected": ["a"],
        "degraded": [],
        "trace": {},
        **changes,
    }
    return {key: value for key, value in values.items() if value is not ...}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"schema": "crossgate-log/1"}, "the version is 'crossgate-log/1'"),
        ({"schema": ...}, "schema"),
        ({"kind": "other"}, "kind"),
        ({"kind": ["use"]}, "kind"),
        ({"decision": ...}, "decision"),
        ({"decision": 5}, "decision"),
        ({"decision": "x" * 32}, "decision"),
        ({"time": "yesterday"}, "time"),
        ({"time": "2026-11-22T03:34:09"}, "time"),
        ({"time": "0001-01-01T00:00:00+14:00"}, "time"),
        ({"time": 1e9}, "time"),
        ({"selected": "a"}, "selected"),
        ({"selected": [1]}, "selected"),
        ({"selected": ["\ud800"]}, "selected"),
        ({"degraded": None}, "degraded"),
        ({"trace": []}, "trace"),
        ({"query": 5}, "query"),
        ({"texts": {"a": 5}}, "texts"),
        ({"texts": ["a"]}, "texts"),
        ({"kind": "use"}, "used"),
        ({"kind": "use", "used": [None]}, "used"),
        ({"kind": "scores"}, "reranker"),
        ({"kind": "scores", "reranker": "a"}, "stage2"),
        ({"kind": "scores", "reranker": "a", "stage2": ["a"]}, "stage2"),
        ({"kind": "scores", "reranker": "a", "stage2": [{"id": "a"}]}, "stage2"),
        ({"kind": "scores", "reranker": "a", "stage2": [{"id": 1, "score": 1}]}, "stage2"),
        ({"kind": "scores", "reranker": "a", "stage2": [{"id": "a", "score": True}]}, "stage2"),
        ({"kind": "scores", "reranker": "a", "stage2": [{"id": "a", "score": 10**400}]}, "stage2"),
    ],
)
def test_malformed_line_names_the_problem(changes: dict[str, Any], named: str) -> None:
    assert isinstance(parse_line(json.dumps(line()).encode(), 7), LoggedDecision)
    assert named in malformed(json.dumps(line(**changes)))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)


@given(st.one_of(st.binary(max_size=80), JSON.map(lambda value: json.dumps(value).encode())))
def test_no_bytes_break_the_parser(raw: bytes) -> None:
    assert isinstance(parse_line(raw, 1), MalformedLine)


# Replaying.


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("trace", "decision", "reason"), "undecided"),
        (("trace", "decision", "stage"), 1),
        (("trace", "decision", "selected", 0), "other"),
        (("trace", "decision", "places", 1, "score"), 0.5),
        (("trace", "gate", "signals", "overlap"), 9),
        (("trace", "gate", "cliff", "cliff_position"), 9),
        (("trace", "gate", "floor"), 0.25),
        (("selected", 0), "other"),
    ],
)
def test_a_change_is_found_where_it_was_made(
    path: Path, place: tuple[Any, ...], value: object
) -> None:
    route(JsonLinesLog(path))
    values = json.loads(path.read_bytes())
    parent = values
    for key in place[:-1]:
        parent = parent[key]
    before, parent[place[-1]] = parent[place[-1]], value
    logged = parse_line(json.dumps(values).encode(), 1)
    assert isinstance(logged, LoggedDecision)
    found = check_decision(logged)
    name = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in place)[1:]
    assert found == Difference(field=name, recorded=value, recomputed=before)


def test_later_steps_may_select_otherwise(path: Path) -> None:
    result = route(JsonLinesLog(path))
    stepped = postprocess(result, [diversify_sources], limit=1)
    values = json.loads(path.read_bytes())
    values |= {"selected": stepped.ids, "trace": stepped.to_dict(trace=True)["trace"]}
    assert stepped.ids != result.ids
    logged = parse_line(json.dumps(values).encode(), 1)
    assert isinstance(logged, LoggedDecision)
    assert check_decision(logged) is None


# The command line.


def test_route_logs_and_replay_agrees(run: Any, words: Path, path: Path) -> None:
    arguments = ["route", "clean csv", "-i", words, "--reranker", "none", "--json"]
    values = checked(run(*arguments, "--log", path), "result")
    by_variable = run(*arguments, variables={"CROSSGATE_LOG": str(path)})
    assert checked(by_variable, "result")["decision_id"] != values["decision_id"]
    assert "decision_id" not in checked(run(*arguments, variables={"CROSSGATE_LOG": ""}), "result")
    assert decisions(path)[0].decision == values["decision_id"]

    decision = ["--decision", values["decision_id"]]
    noted = run("feedback", "used", "csv-cleaner", *decision, "--log", path, "--json")
    assert (noted.code, checked(noted, "feedback")["used"]) == (0, ["csv-cleaner"])
    silent = run("feedback", "used", *decision, variables={"CROSSGATE_LOG": str(path)})
    assert (silent.code, silent.err) == (0, "")
    replayed = run("replay", path, "--json")
    outcome = checked(replayed, "replay")
    assert (replayed.code, replayed.err) == (0, "")
    assert (outcome["decisions"], outcome["uses"], outcome["malformed"]) == (2, 2, 0)
    assert run("replay", path).out == "2 decisions made again, all equal\n"


def test_rerank_logs_texts_if_asked(run: Any, path: Path) -> None:
    done = run(
        *("rerank", "fox", "--reranker", "none", "--log", path, "--log-text", "--json"),
        stdin=b'{"text": "red fox"}\n',
    )
    assert checked(done, "result")["decision_id"]
    assert decisions(path)[0].texts == {"0": "red fox"}
    assert decisions(path)[0].query == "fox"


@pytest.mark.parametrize(
    "content", [b"a, b\n1, 2\n", b'{"schema": "x/1"}\n', bytes(range(256)) * 8]
)
def test_commands_on_a_file_of_another_kind_exit_with_2(
    run: Any, tmp_path: Path, content: bytes
) -> None:
    other = written(tmp_path / "other", content)
    for arguments, code in (
        (("feedback", "right", "--log", other), "not_a_log"),
        (("calibrate", "--from-log", other, "-o", tmp_path / "p.json"), "no_labels"),
    ):
        done: Run = run(*arguments)
        assert (done.code, done.error) == (2, code)
    assert run("replay", other).code == 2
    assert other.read_bytes() == content


def test_replay_ends_at_the_first_difference(run: Any, path: Path) -> None:
    log = JsonLinesLog(path)
    results = [route(log) for _ in range(4)]
    log.scored(results[0].decision_id or "", results[0])
    lines = path.read_text().splitlines()
    for place in (1, 2):
        values = json.loads(lines[place])
        (first, *_) = values["trace"]["decision"]["selected"]
        values["trace"]["decision"]["selected"][0] = "so\nmething"
        lines[place] = json.dumps(values)
    path.write_text("\n".join([*lines, "{", ""]))
    shown = run("replay", path)
    assert shown.code == 1
    assert shown.out.splitlines()[0] == f"{path}:2: trace.decision.selected[0] differs"
    assert len(shown.out.splitlines()) == 3
    outcome = checked(run("replay", path, "--json"), "replay")
    assert outcome["decisions"] == 2
    assert outcome["difference"] == {
        "line": 2,
        "field": "trace.decision.selected[0]",
        "recorded": "so\nmething",
        "recomputed": first,
    }


def test_replay_names_malformed_lines_and_goes_on(run: Any, path: Path) -> None:
    log = JsonLinesLog(path)
    route(log)
    with path.open("a") as stream:
        stream.write("{\n" * 7)
        stream.write(json.dumps(line()) + "\n")
    route(log)
    done = run("replay", path)
    assert done.code == 2
    assert done.out == "2 decisions made again, all equal, 8 malformed lines\n"
    said = done.err.splitlines()
    assert said[0].startswith(f"crossgate: malformed {path}:2: not JSON")
    assert len(said) == 6
    assert said[-1].startswith("crossgate: and 3 more malformed lines")
