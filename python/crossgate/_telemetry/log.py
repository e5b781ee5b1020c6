"""The decision log: JSON lines of decisions, later uses and scores.

`docs/log.md` describes the format, `crossgate-log/3`. Any number of processes may append to one
file: each line is a single write to a file opened for appending.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import crossgate._core as _core
from crossgate._sources.common import Unusable
from crossgate._sources.rows import parse_json
from crossgate._support.checks import check_ids, check_path, is_text
from crossgate._support.errors import InputError, SourceError
from crossgate._support.files import cannot_write, lines_of, open_source

if TYPE_CHECKING:
    from crossgate._telemetry.events import Event
    from crossgate._values.results import RouteResult

SCHEMA = "crossgate-log/3"

MAX_LINE_BYTES = 16_000_000
"""A longer line is malformed, which bounds the memory of a reader."""

_LINES_PER_REPORT = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedDecision:
    """One decision.

    Attributes:
        line: Its number in the file, from 1.
        decision: The id by which later lines refer to it.
        time: When the line was written; an aware time, UTC.
        selected: Ids of the selected documents, best first.
        degraded: Codes of what did not run as configured.
        trace: The trace, enough to replay the decision; see `check_decision`.
        query: The query, if the log keeps texts.
        texts: The documents' texts by id, if the log keeps texts.
    """

    line: int
    decision: str
    time: datetime
    selected: tuple[str, ...]
    degraded: tuple[str, ...]
    trace: Mapping[str, Any]
    query: str | None
    texts: Mapping[str, str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedUse:
    """The documents that were actually used after a decision, selected or not.

    Attributes:
        line: Its number in the file, from 1.
        decision: Id of the decision.
        time: When the line was written; an aware time, UTC.
        used: Ids of the documents that were used; empty if none was.
        judged: Whether this is a person's judgement. The last judgement of a decision replaces all
            its other uses.
    """

    line: int
    decision: str
    time: datetime
    used: tuple[str, ...]
    judged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedScores:
    """The reranker's scores for a decision that was made without it.

    Attributes:
        line: Its number in the file, from 1.
        decision: Id of the decision.
        time: When the line was written; an aware time, UTC.
        reranker: Identity of the reranker.
        pairs: Score and truncation of the candidates in the pool, by id.
    """

    line: int
    decision: str
    time: datetime
    reranker: str
    pairs: Mapping[str, tuple[float, bool]]


LogEntry = LoggedDecision | LoggedUse | LoggedScores


@dataclass(frozen=True, slots=True, kw_only=True)
class MalformedLine:
    """A line that cannot be parsed: cut off by a full disk, or not written by crossgate.

    Attributes:
        line: Its number in the file, from 1.
        reason: Description of the problem, on one line.
    """

    line: int
    reason: str


class JsonLinesLog:
    """A telemetry hook that appends one line per decision to a file.

    The file is not kept open between decisions, so it may be moved, and the process may fork. If it
    cannot be written, the decision continues, and `degraded` contains `telemetry_failed`.

    Args:
        path: The file, in an existing folder. A new file is readable only by its owner.
        text: Keep the query and the documents' texts. By default only their SHA-256 is kept.
    """

    def __init__(self, path: str | os.PathLike[str], *, text: bool = False) -> None:
        self.path = Path(check_path("the log", path))
        self.text = text

    def check(self) -> None:
        """Check that the log can be written, and create it if it does not exist.

        Raises:
            SourceError: `unwritable` if it cannot be written, or is not a regular file; `not_a_log`
                if it holds something else.
        """
        _append_line(self.path, b"", regular=True)

    def on_event(self, event: Event) -> None:
        """Append a line if the event ends a decision.

        Raises:
            SourceError: `unwritable` if the file cannot be written; `not_a_log` if it holds
                something else.
        """
        if event.result is not None:
            _append(
                self.path, _decision_values(event.decision_id, event.result, self._texts(event))
            )

    def used(self, decision_id: str, ids: Iterable[str], *, judged: bool = False) -> None:
        """Record the documents that were actually used, such as skills that an agent read.

        Args:
            decision_id: `RouteResult.decision_id`. The log is not searched for that decision.
            ids: Ids of the documents; empty if none was used.
            judged: Whether this is a person's judgement. The last judgement of a decision replaces
                all its other uses.

        Raises:
            InputError: `out_of_range` for a malformed decision id, or a string instead of a list of
                ids; `invalid_text` for an id that is not text.
            SourceError: `unwritable` if the file cannot be written; `not_a_log` if it holds
                something else.
        """
        uses = list(ids) if not isinstance(ids, str) else ids
        check_ids("used", uses)
        values = {"used": list(dict.fromkeys(uses))}
        self._note("use", decision_id, {**values, "judged": True} if judged else values)

    def scored(self, decision_id: str, reranked: RouteResult) -> None:
        """Record the reranker's scores for a decision that was made without it.

        Args:
            decision_id: `RouteResult.decision_id` of that decision.
            reranked: The result of the same query with a profile whose gate never skips stage 2.

        Raises:
            InputError: `out_of_range` for a malformed decision id, or if no reranker was called.
            SourceError: `unwritable` if the file cannot be written; `not_a_log` if it holds
                something else.
        """
        if not reranked.trace["reranker"]:
            message = "`reranked` has no scores, since no reranker was called for it"
            raise InputError("out_of_range", message)
        scores = {name: reranked.trace[name] for name in ("reranker", "stage2")}
        self._note("scores", decision_id, scores)

    def _note(self, kind: str, decision_id: str, values: Mapping[str, Any]) -> None:
        if not _is_decision_id(decision_id):
            raise InputError(
                "out_of_range",
                f"the decision id is {decision_id!r}: pass RouteResult.decision_id of a router "
                "with telemetry, 32 hexadecimal digits",
            )
        head = {"schema": SCHEMA, "kind": kind, "decision": decision_id, "time": _now()}
        _append(self.path, {**head, **values})

    def _texts(self, event: Any) -> dict[str, Any]:
        texts = {hit.id: hit.document.content for hit in event.result.hits}
        if self.text:
            return {"query": event.query, "texts": texts}
        return {"texts_sha256": {id: _core.sha256_of(text.encode()) for id, text in texts.items()}}


def _decision_values(
    decision_id: str, result: RouteResult, texts: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the line of a decision as JSON values.

    Args:
        decision_id: The decision's id.
        result: The decision.
        texts: The texts or hashes of query and documents.
    """
    return {
        "schema": SCHEMA,
        "kind": "decision",
        "decision": decision_id,
        "time": _now(),
        "selected": result.ids,
        "degraded": [degradation.code for degradation in result.degraded],
        "timings_ms": dict(result.timings),
        **texts,
        "trace": dict(result.trace),
    }


def read_log(
    path: str | os.PathLike[str], *, progress: Callable[[int, int], None] | None = None
) -> Iterator[LogEntry | MalformedLine]:
    """Yield the parsed lines of a log, in order; empty lines are skipped.

    Traces are not checked, so a decision may still fail to replay.

    Args:
        path: The file.
        progress: Called regularly with the bytes read so far and the total.

    Raises:
        SourceError: `source_missing` or `source_unreadable`.
    """
    path = check_path("the log", path)
    try:
        with open_source(path) as stream:
            size = os.fstat(stream.fileno()).st_size
            for line, raw in lines_of(stream, MAX_LINE_BYTES):
                if progress is not None and line % _LINES_PER_REPORT == 0:
                    progress(stream.tell(), max(stream.tell(), size))
                if raw is None:
                    reason = f"longer than {MAX_LINE_BYTES:,} bytes"
                    yield MalformedLine(line=line, reason=reason)
                elif raw.strip(b" \t\r\n"):
                    yield parse_line(raw, line)
    except FileNotFoundError as error:
        raise SourceError("source_missing", f"no such file: {path}") from error
    except OSError as error:
        raise SourceError("source_unreadable", f"cannot read {path}: {error.strerror}") from error


def parse_line(raw: bytes, line: int) -> LogEntry | MalformedLine:
    """Parse one line; never raises.

    Args:
        raw: The line.
        line: Its number, from 1.
    """
    try:
        try:
            values = parse_json(raw.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise Unusable(f"not UTF-8: byte {error.start + 1} of the line") from None
        return _parsed(values, line)
    except Unusable as unusable:
        return MalformedLine(line=line, reason=str(unusable))


def _parsed(values: object, line: int) -> LogEntry:
    schema = values.get("schema") if isinstance(values, dict) else None
    if not isinstance(values, dict) or not isinstance(schema, str):
        raise Unusable(f'"schema": "{SCHEMA}" is missing')
    if schema != SCHEMA:
        raise Unusable(f"the version is {schema[:60]!r}, not {SCHEMA!r}: write a new log")
    decision = values.get("decision")
    if not isinstance(decision, str) or not _is_decision_id(decision):
        raise Unusable("decision must be an id of 32 hexadecimal digits")
    time = _time(values.get("time"))
    match values.get("kind"):
        case "use":
            used, judged = _ids(values, "used"), values.get("judged") is True
            return LoggedUse(line=line, decision=decision, time=time, used=used, judged=judged)
        case "scores":
            reranker = values.get("reranker")
            if not _is_unicode(reranker):
                raise Unusable("reranker must be text")
            pairs = _pairs(values.get("stage2"))
            return LoggedScores(
                line=line, decision=decision, time=time, reranker=reranker, pairs=pairs
            )
        case "decision":
            trace = values.get("trace")
            if not isinstance(trace, dict):
                raise Unusable("trace must be an object")
            query, texts = values.get("query"), values.get("texts")
            if query is not None and not _is_unicode(query):
                raise Unusable("query must be text")
            if texts is not None and not (
                isinstance(texts, dict) and all(map(_is_unicode, (*texts, *texts.values())))
            ):
                raise Unusable("texts must be an object of strings")
            return LoggedDecision(
                line=line,
                decision=decision,
                time=time,
                selected=_ids(values, "selected"),
                degraded=_ids(values, "degraded"),
                trace=trace,
                query=query,
                texts=texts,
            )
        case _:
            raise Unusable("kind must be decision, use or scores")


def _ids(values: Mapping[str, Any], key: str) -> tuple[str, ...]:
    ids = values.get(key)
    if not isinstance(ids, list) or not all(map(_is_unicode, ids)):
        raise Unusable(f"{key} must be a list of strings")
    return tuple(ids)


def _pairs(rows: object) -> dict[str, tuple[float, bool]]:
    pairs: dict[str, tuple[float, bool]] = {}
    for value in rows if isinstance(rows, list) else [None]:
        row = value if isinstance(value, dict) else {}
        id, score = row.get("id"), row.get("score")
        if not _is_unicode(id) or not isinstance(score, float | int) or isinstance(score, bool):
            raise Unusable("stage2 must be a list of objects with id and score")
        if not -_LARGEST <= score <= _LARGEST:
            raise Unusable("the scores of stage2 must be from -1e100 to 1e100")
        pairs[id] = float(score), row.get("truncated") is True
    return pairs


_LARGEST = 1e100
"""Largest absolute score that the core accepts."""


def _is_unicode(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and is_text(value)


def _is_decision_id(value: object) -> bool:
    return isinstance(value, str) and len(value) == 32 and set(value) <= set("0123456789abcdef")


def _time(value: object) -> datetime:
    try:
        time = datetime.fromisoformat(value) if isinstance(value, str) else None
        if time is not None and time.tzinfo is not None:
            return time.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise Unusable("time must be an ISO 8601 time with its offset from UTC")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _append(path: Path, values: Mapping[str, Any]) -> None:
    """Append a line with a single write, so that lines of several processes do not mix.

    In append mode, POSIX seeks to the end and writes in one step. If a full disk cut off the last
    line, a line feed is written first, so that the new line stays intact.
    """
    # Encoded as ASCII, since an id may contain a line feed.
    _append_line(path, json.dumps(values, allow_nan=False).encode() + b"\n")


def _append_line(path: Path, line: bytes, *, regular: bool = False) -> None:
    """Append a line; with `regular`, refuse pipes and devices."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | _FLAGS
    try:
        handle = os.open(path, flags, 0o600)
        try:
            status = os.fstat(handle)
            if regular and not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, "it is not a regular file")
            if _is_torn(path, status):
                line = b"\n" + line
            if os.write(handle, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(handle)
    except ValueError as error:
        raise SourceError("unwritable", f"cannot write the log {path}: {error}") from error
    except OSError as error:
        raise SourceError("unwritable", cannot_write(f"the log {path}", error)) from error


# O_NONBLOCK: opening a pipe must not wait. O_CLOEXEC: child processes must not inherit the file.
_FLAGS = sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))


def _is_torn(path: Path, status: os.stat_result) -> bool:
    """Return whether the last line of a file is incomplete; False if the file cannot be read.

    Raises:
        SourceError: `not_a_log` for a file of another kind, such as an index, which a line would
            damage.
    """
    if not stat.S_ISREG(status.st_mode) or not status.st_size:
        return False
    try:
        with path.open("rb", buffering=0) as stream:
            start = stream.read(_HEAD_BYTES).lstrip()
            stream.seek(-1, os.SEEK_END)
            torn = stream.read(1) != b"\n"
    except OSError:
        return False
    if start and _FAMILY not in start:
        message = f"{path} is not a decision log, and nothing was written: choose another file"
        raise SourceError("not_a_log", message)
    return torn


_HEAD_BYTES = 512
_FAMILY = SCHEMA.partition("/")[0].encode() + b"/"
