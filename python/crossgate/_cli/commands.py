"""One function per command: read the options, call the library, print, return the exit code."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, TextIO

from crossgate._cli import DONE, FAILURE, NOTHING_RELEVANT, render
from crossgate._errors import IndexFileError, InputError
from crossgate._files import read_source
from crossgate._limits import CANDIDATES_BYTES
from crossgate._types import RouteResult

if TYPE_CHECKING:
    from crossgate._telemetry.events import TelemetryHook

Options = argparse.Namespace

LOG_VARIABLE = "CROSSGATE_LOG"
"""Environment variable that names the log where `--log` does not; empty for none."""


def demo(options: Options) -> int:
    """Route four prompts through a small skill library."""
    from crossgate._cli.demo import PROMPTS, SKILLS
    from crossgate._index import Index
    from crossgate._router import Router

    with _progress("embedding skills") as progress:
        router = Router(Index.build(SKILLS, progress=progress))
    router.warm_up()
    results = [(prompt, router.route(prompt)) for prompt in PROMPTS]
    if options.json:
        _print_json({"results": [{"query": one, **result.to_dict()} for one, result in results]})
    else:
        print(render.demo(SKILLS, results, colour=_colour()))
    return DONE


def index(options: Options) -> int:
    """Index documents into a file."""
    from crossgate._index import Index
    from crossgate._sources import read_sources
    from crossgate._storage import storage

    start = perf_counter()
    output = Path(options.output)
    _check_writable(output)
    earlier = _earlier_index(output)
    loaded = read_sources(options.source, kind=options.kind)
    for problem in loaded.problems:
        print(f"crossgate: skipped {render.plain(str(problem))}", file=sys.stderr)
    with _progress("embedding") as progress:
        built = Index.build(
            loaded.documents,
            embedder=None if options.embedder == "none" else options.embedder,
            language=options.language,
            reuse=earlier,
            progress=progress,
        )
    built.save(output)
    summary = {
        "index": str(output),
        "documents": len(built),
        "skipped": len(loaded.problems),
        "bytes": output.stat().st_size,
        "storage": storage(loaded.documents, built.dimension),
        "embedder": built.embedder,
        "fingerprint": built.fingerprint,
        "seconds": perf_counter() - start,
    }
    if options.json:
        _print_json(summary)
    else:
        print(render.indexed(summary))
    return DONE


def route(options: Options) -> int:
    """Pick the documents of an index that fit a query."""
    from crossgate._index import Index, embedder_mismatch
    from crossgate._router import Router

    query = _stdin() if options.query == "-" else options.query
    embedder = None if options.embedder == "none" else options.embedder
    opened = Index.open(options.index, embedder=embedder)
    if options.embedder == "none" and opened.embedder:
        raise embedder_mismatch(options.index, opened.embedder, "none")
    router = Router(
        opened,
        reranker=None if options.reranker == "none" else options.reranker,
        profile=options.profile,
        policy=options.policy,
        telemetry=_log(options),
    )
    result = router.route(
        query,
        limit=options.limit,
        allow=options.allow,
        deny=options.deny or (),
        section=options.section,
        grade=options.grade,
    )
    return _print_result(result, options)


def rerank(options: Options) -> int:
    """Reorder candidates that another retriever found."""
    from crossgate._rerank import rerank as decide
    from crossgate._sources import read_candidates

    name = "stdin" if options.candidates == "-" else options.candidates
    candidates = read_candidates(_text(options.candidates).split("\n"), name=name)
    result = decide(
        options.query,
        candidates,
        limit=options.limit,
        reranker=None if options.reranker == "none" else options.reranker,
        profile=options.profile,
        policy=options.policy,
        section=options.section,
        grade=options.grade,
        telemetry=_log(options),
    )
    return _print_result(result, options)


def replay(options: Options) -> int:
    """Make the decisions of a log again and compare."""
    from crossgate._cli.replay import replay

    with _progress("replaying") as progress:
        code, outcome = replay(options.log, progress)
    if options.json:
        _print_json(outcome)
    else:
        print(render.replayed(outcome))
    return code


def used(options: Options) -> int:
    """Note in a log what was used of a decision."""
    from crossgate._telemetry.log import JsonLinesLog

    path = _log_path(options)
    if path is None:
        raise InputError("out_of_range", f"no log: name one with --log FILE or {LOG_VARIABLE}")
    JsonLinesLog(path).used(options.decision, options.ids)
    if options.json:
        _print_json({"log": path, "decision": options.decision, "used": options.ids})
    else:
        print(render.plain(f"{path}: {len(options.ids)} used of {options.decision}"))
    return DONE


def evaluate(options: Options) -> int:
    """Measure labelled datasets, or compare two measurements."""
    from crossgate._cli.evaluate import evaluate

    return evaluate(options)


def calibrate(options: Options) -> int:
    """Fit a profile on labelled data."""
    from crossgate._cli.calibrate import calibrate

    return calibrate(options)


def lint(options: Options) -> int:
    """Find what hurts routing in a library."""
    from crossgate._cli.lint import run

    return run(options)


def models_list(options: Options) -> int:
    """List the models and plug-ins that are known by name."""
    from crossgate._model_files import cache as models
    from crossgate._reranking import plugins

    rows = [
        {
            "name": one.name,
            "kind": one.kind,
            "here": models.is_here(one.name),
            "bytes": one.size if one.pinned else None,
            "licence": one.licence,
            "terms": one.terms,
            "description": one.description,
        }
        for one in models.available()
    ]
    offered = [asdict(one) for one in plugins.available()]
    if options.json:
        _print_json({"models": rows, "plugins": offered})
    else:
        print(render.models(rows, offered))
    return DONE


def models_pull(options: Options) -> int:
    """Download a model."""
    from crossgate._model_files import cache as models
    from crossgate._model_files.pull import pull

    model = models.spec(options.name)
    if not models.is_here(model.name):
        terms = f": {model.terms}" if model.terms else ""
        print(f"crossgate: {model.name} is under {model.licence}{terms}", file=sys.stderr)
    local = pull(
        options.name, progress=_is_terminal(sys.stderr), accept_licence=options.accept_licence
    )
    folder = str(models.folder(local.name))
    if options.json:
        _print_json({"name": local.name, "folder": folder, "identity": local.identity})
    else:
        print(f"{local.name} is verified and ready in {folder}")
    return DONE


def models_verify(options: Options) -> int:
    """Check the files of models against their hashes."""
    from crossgate._model_files import cache as models

    here = [one.name for one in models.available() if models.is_here(one.name)]
    checks = [(name, check) for name in options.name or here for check in models.verify(name)]
    rows = [
        {"model": name, "file": check.file.path, "ok": check.ok, "detail": check.detail}
        for name, check in checks
    ]
    if options.json:
        _print_json({"files": rows})
    else:
        print(render.verified(rows))
    return DONE if all(check.ok for _, check in checks) else FAILURE


def models_path(options: Options) -> int:
    """Print the folder of a model, or of all pulled ones."""
    from crossgate._model_files import cache as models

    path = models.folder(options.name) if options.name else models.cache_folder() / "models"
    if options.json:
        _print_json({"path": str(path)})
    else:
        print(path)
    return DONE


def doctor(options: Options) -> int:
    """Say what is installed, which models are here, and what is off and why."""
    from crossgate._cli.doctor import examine

    report = examine()
    if options.json:
        _print_json({"checks": report})
    else:
        print(render.doctor(report))
    return DONE if all(check["state"] != "broken" for check in report) else FAILURE


def _print_result(result: RouteResult, options: Options) -> int:
    if options.json:
        _print_json(result.to_dict(trace=options.explain))
    else:
        print(render.result(result, explain=options.explain, colour=_colour()))
    for one in result.degraded:
        print(f"crossgate: degraded[{one.code}]: {render.plain(one.detail)}", file=sys.stderr)
    for warning in result.warnings:
        print(
            f"crossgate: warning[{warning.code}]: {render.plain(warning.detail)}", file=sys.stderr
        )
    return DONE if result.selected else NOTHING_RELEVANT


def _log(options: Options) -> TelemetryHook | None:
    path = _log_path(options)
    if path is None:
        return None
    from crossgate._telemetry.log import JsonLinesLog

    return JsonLinesLog(path, text=options.log_text)


def _log_path(options: Options) -> str | None:
    return options.log or os.environ.get(LOG_VARIABLE) or None


def _print_json(values: dict[str, Any]) -> None:
    # ASCII only, so that no terminal or pipe with another encoding can fail on it.
    print(json.dumps({"schema": "crossgate/1", **values}, allow_nan=False, indent=2))


def _check_writable(path: Path) -> None:
    """Refuse a file that cannot be written before the work on what goes into it begins."""
    from crossgate._files import try_writing

    try:
        try_writing(path)
    except OSError as error:
        raise IndexFileError(
            "index_unwritable",
            f"cannot write the index {path}: {error.strerror}: choose a file in a folder that is "
            "there and can be written with -o",
        ) from error


def _earlier_index(path: Path) -> Any:
    """Return the index that is about to be replaced, whose vectors can be used again."""
    from crossgate._index import Index

    try:
        return Index.open(path)
    except IndexFileError as error:
        if error.code == "not_an_index" and path.stat().st_size > 0:
            raise IndexFileError(
                "not_an_index",
                f"{path} is no crossgate index and would be overwritten: choose another file "
                "with -o, or remove it first",
            ) from error
        return None


def _stdin() -> str:
    return _text("-").rstrip("\n")


def _standard_input() -> bytes:
    data = sys.stdin.buffer.read(CANDIDATES_BYTES + 1)
    if len(data) > CANDIDATES_BYTES:
        message = f"stdin is larger than {CANDIDATES_BYTES:,} bytes, the most that is read"
        raise InputError("invalid_text", message)
    return data


def _text(path: str) -> str:
    try:
        data = _standard_input() if path == "-" else read_source(path, CANDIDATES_BYTES)
        return data.decode("utf-8-sig")
    except OSError as error:
        raise InputError("source_missing", f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(
            "invalid_text",
            f"{'stdin' if path == '-' else path} is not UTF-8: byte {error.start} is "
            f"0x{error.object[error.start]:02x}",
        ) from error


@contextmanager
def _progress(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """Show progress on a terminal, and nothing in a pipe."""
    if not _is_terminal(sys.stderr):
        yield None
        return
    from tqdm import tqdm

    with tqdm(desc=what, unit="", delay=0.5, leave=False) as bar:

        def report(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield report


def _colour() -> bool:
    return _is_terminal(sys.stdout) and "NO_COLOR" not in os.environ


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()
