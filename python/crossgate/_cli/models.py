"""`crossgate models`: list, pull and verify models."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from crossgate._cli import DONE, FAILURE
from crossgate._cli.output import plain, say, show_result, size, subcommand
from crossgate._runtime import model_files
from crossgate._runtime.model_files import ModelSpec
from crossgate._support.errors import ModelError
from crossgate._support.progress import is_terminal


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the commands of the family."""
    kinds = parser.add_subparsers(metavar="COMMAND", required=True)
    subcommand(kinds, "list", "list models and plug-ins by name", _list)
    text = "download a model; no other command downloads anything"
    pull = subcommand(kinds, "pull", text, _pull)
    pull.add_argument("name", metavar="NAME", help="a name from `crossgate models list`")
    pull.add_argument(
        "--accept-licence", action="store_true", help="accept the restrictions of the licence"
    )
    text = "check the files of models against their hashes"
    verify = subcommand(kinds, "verify", text, _verify)
    verify.add_argument("name", metavar="NAME", nargs="*", help="default: all that are present")


def _known() -> Iterator[tuple[ModelSpec, bool | None]]:
    """Yield each model and whether it is present; None, and an error, for a malformed lock file."""
    for model in model_files.known():
        try:
            yield model_files.spec(model.name), model_files.is_here(model.name)
        except ModelError as error:
            say(f"error[{error.code}]: {error}")
            yield model, None


def _list(options: argparse.Namespace) -> int:
    from crossgate._reranking import plugins

    rows: list[dict[str, Any]] = [
        {
            "name": model.name,
            "kind": model.kind,
            "here": bool(here),
            "bytes": model.size if model.pinned else None,
            "licence": model.licence,
            "terms": model.terms,
            "description": model.description,
        }
        for model, here in _known()
    ]
    offered = [asdict(plugin) for plugin in plugins.available()]
    lines = []
    for row in rows:
        facts = [row["kind"], size(row["bytes"]) if row["bytes"] else "", row["licence"]]
        lines.append(f"{row['name']}  ({', '.join(fact for fact in facts if fact)})")
        lines.append(f"    {row['description']}")
        lines.append(f"    {'here' if row['here'] else 'crossgate models pull ' + row['name']}")
    lines += [
        f"{plain(plugin['name'])}  (plug-in of {plain(plugin['package'])})" for plugin in offered
    ]
    show_result(options.json, {"models": rows, "plugins": offered}, lines)
    return DONE


def _pull(options: argparse.Namespace) -> int:
    from crossgate._runtime.pull import pull

    model = model_files.spec(options.name)
    if not model_files.is_here(model.name):
        terms = f": {model.terms}" if model.terms else ""
        say(f"{model.name} has the licence {model.licence}{terms}")
    local = pull(
        options.name, progress=is_terminal(sys.stderr), accept_licence=options.accept_licence
    )
    folder = str(model_files.folder(local.name))
    values = {"name": local.name, "folder": folder, "identity": local.identity}
    show_result(options.json, values, [f"{local.name} is verified and ready in {folder}"])
    return DONE


def _verify(options: argparse.Namespace) -> int:
    known = [] if options.name else list(_known())
    names = options.name or [model.name for model, here in known if here]
    checks = [(name, check) for name in names for check in model_files.verify(name)]
    rows = [
        {"model": name, "file": check.file.path, "ok": check.ok, "detail": check.detail}
        for name, check in checks
    ]
    lines = [
        f"ok       {name}/{check.file.path}"
        if check.ok
        else f"ALTERED  {name}/{check.file.path}  {check.detail}"
        for name, check in checks
    ]
    show_result(options.json, {"files": rows}, lines)
    right = all(check.ok for _, check in checks) and all(here is not None for _, here in known)
    return DONE if right else FAILURE
