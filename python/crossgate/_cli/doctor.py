"""`crossgate doctor`: checks packages, models, rerankers, hooks and folders."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
from importlib import metadata
from pathlib import Path
from typing import Any

from crossgate._agents.hook.agents import AGENTS, Agent
from crossgate._cli import DONE, FAILURE
from crossgate._cli.output import show_result
from crossgate._core import __version__
from crossgate._reranking import plugins
from crossgate._reranking.providers import TIERS, Tier
from crossgate._runtime import model_files
from crossgate._runtime.model_files import locate
from crossgate._support.errors import CrossgateError
from crossgate._support.wording import counted, share_of

Check = dict[str, str]


_MARKS = {"ok": "ok    ", "off": "off   ", "broken": "BROKEN"}


def run(options: argparse.Namespace) -> int:
    """Run all checks and print them."""
    report = examine()
    lines = []
    for check in report:
        lines.append(f"{_MARKS[check['state']]}  {check['what']}: {check['detail']}")
        lines += [f"        {check['advice']}"] if check["advice"] else []
    show_result(options.json, {"checks": report}, lines)
    return DONE if all(check["state"] != "broken" for check in report) else FAILURE


def examine() -> list[Check]:
    """Return the checks: `what`, `state` (ok, off or broken), `detail` and `advice` of each."""
    checks = [
        _check(
            "crossgate", "ok", f"{__version__}, Python {platform.python_version()}, {_machine()}"
        )
    ]
    checks += [
        _package("onnxruntime", "runs the models"),
        _package("tokenizers", "splits text into tokens"),
        _package("huggingface-hub", "pulls models"),
    ]
    checks += _models()
    checks += [_reranker(tier) for tier in TIERS]
    checks += [_plugin(plugin) for plugin in plugins.available()]
    checks.append(_cache())
    checks += _hooks()
    return checks


def _reranker(tier: Tier) -> Check:
    from crossgate._reranking import http

    what = tier.name
    about = f"{tier.method}, {tier.cost}".replace("`", "")
    if not tier.variables:
        return _check(what, "ok", about)
    if http.switched_off():
        switch = f"{http.SWITCH}={os.environ[http.SWITCH].strip()}"
        return _check(
            what,
            "off",
            f"{switch} switches remote rerankers off",
            f"unset {http.SWITCH} to switch them on",
        )
    variable = next((name for name in tier.variables if os.environ.get(name, "").strip()), None)
    if variable is None:
        return _check(
            what,
            "off",
            f"{about}; no API key",
            f"export {tier.variables[0]}=... to enable it",
        )
    try:
        version = metadata.version(tier.package)
    except metadata.PackageNotFoundError:
        # Other programs use OPENAI_API_KEY too, so the key alone does not mean that it is wanted.
        state = "off" if variable == "OPENAI_API_KEY" else "broken"
        return _check(
            what,
            state,
            f"key in {variable}, but {tier.package} is not installed",
            f"pip install 'crossgate[{tier.extra}]'",
        )
    return _check(what, "ok", f"{about}; key in {variable}, {tier.package} {version}")


def _check(what: str, state: str, detail: str, advice: str = "") -> Check:
    return {"what": what, "state": state, "detail": detail, "advice": advice}


def _machine() -> str:
    from crossgate._runtime.threads import available_processors

    usable, present = available_processors(), os.cpu_count()
    processors = (
        counted(present or 1, "processor")
        if usable == present
        else share_of(usable, present or 1, "processor")
    )
    return f"{platform.system()} {platform.machine()}, {processors}"


def _package(name: str, purpose: str) -> Check:
    try:
        return _check(name, "ok", f"{metadata.version(name)}, {purpose}")
    except metadata.PackageNotFoundError:
        return _check(name, "broken", f"not installed, {purpose}", f"pip install {name}")


def _models() -> list[Check]:
    """Return one entry per model on this machine, and one for all other models."""
    here: list[Check] = []
    absent: list[Check] = []
    for model in model_files.known():
        check = _model(model)
        (absent if check["state"] == "off" else here).append(check)
    if absent:
        detail = f"{counted(len(absent), 'model')} not pulled"
        here.append(_check("other models", "off", detail, "`crossgate models list` shows them"))
    return here


def _model(model: model_files.ModelSpec) -> Check:
    what = f"{model.kind} {model.name}"
    try:
        locate(model.name, model.kind)
    except CrossgateError as error:
        if error.code == "model_missing":
            return _check(what, "off", "not here", model_files.remedy_of(model))
        return _check(what, "broken", str(error))
    return _check(what, "ok", f"{model.source}, files match their hashes")


def _plugin(plugin: plugins.Plugin) -> Check:
    what = f"plug-in {plugin.name}"
    try:
        plugins.load(plugin.name)
    except CrossgateError as error:
        return _check(what, "broken", str(error), f"fix or uninstall {plugin.package}")
    return _check(what, "ok", f"of {plugin.package}")


def _hooks() -> list[Check]:
    """Return one entry per agent whose settings call the prompt hook, or whose hook has run."""
    from crossgate._agents.hook.install import calls_of
    from crossgate._agents.hook.session_state import BACKGROUND_OUTCOMES, read_hook_log
    from crossgate._agents.hook.skill_library import hook_folder

    try:
        notes = list(read_hook_log(hook_folder()))
    except CrossgateError:
        notes = []
    checks = []
    for agent in AGENTS.values():
        recorded = [
            note
            for note in notes
            if note.get("agent") == agent.name and note["outcome"] not in BACKGROUND_OUTCOMES
        ]
        calls = calls_of(agent)
        if recorded or calls:
            checks.append(_hook(agent, calls, recorded))
    return checks


_NOT_REPAIRED = {"bad_input", "gave_up", "no_resources", "bug"}
"""Reasons of failures that a new installation does not change."""


def _hook(agent: Agent, calls: dict[Path, list[str]], notes: list[dict[str, Any]]) -> Check:
    from crossgate._agents.hook.install import switched_off, temporary_environment
    from crossgate._agents.hook.shell import program_of

    which = "" if agent.name == "claude" else f" --agent {agent.name}"
    what, again = f"hook {agent.name}", f"`crossgate hook install{which}` repairs it"
    unknown = ""
    for path, words in calls.items():
        program = program_of(words)
        if program is None:
            unknown = f"; the program that {path} calls depends on the agent's environment"
        elif (found := shutil.which(program)) is None:
            detail = f"{path} calls {program}, which does not exist"
            return _check(what, "broken", detail, again)
        elif why := temporary_environment(os.path.dirname(found)):
            detail = f"{path} calls {program}, {why}, which does not last"
            return _check(what, "off", detail, f"`uv tool install` crossgate, then {again}")
    if calls and (switches := switched_off(agent)):
        detail = f"{' and '.join(switches)}, so {agent.name} does not run the hook"
        return _check(what, "off", detail, "remove this setting")
    told = sum(note["outcome"] in ("injected", "shadow") for note in notes)
    shadow = bool(notes) and notes[-1]["outcome"] == "shadow"
    failed = [note for note in notes if note["outcome"] == "failed"]
    where = " and ".join(map(str, calls)) or "not in your settings or in this folder's"
    got = "would have got a skill (shadow mode)" if shadow else "got a skill"
    count = (
        f"{told} of the last {counted(len(notes), 'prompt')} {got}" if notes else "no prompt yet"
    )
    detail = f"{where}; {count}{unknown}"
    if foreign := sum("crossgate[multilingual]" in note.get("detail", "") for note in notes):
        prompts = counted(foreign, "prompt")
        detail += f"; {prompts} in other languages: pip install 'crossgate[multilingual]'"
    if not failed:
        return _check(what, "ok" if calls else "off", detail)
    last = failed[-1]
    why = " ".join(f"{last.get('reason')}: {last.get('detail', '')}".split())
    if calls and last is notes[-1]:
        detail = f"{detail}; the last failed: {why}"
        if last.get("reason") in _NOT_REPAIRED:
            again = f"`crossgate hook try{which} PROMPT` shows whether the hook itself works"
        return _check(what, "broken", detail, f"the prompt went on without a skill; {again}")
    detail = f"{detail}; {len(failed)} failed, the last at {last.get('time')}: {why}"
    return _check(what, "ok" if calls else "off", detail)


def _cache() -> Check:
    try:
        folder = model_files.cache_folder()
    except CrossgateError as error:
        return _check("cache", "off", str(error), "the bundled models work without it")
    present = next(parent for parent in (folder, *folder.parents) if os.path.exists(parent))
    if os.access(present, os.W_OK):
        return _check("cache", "ok", f"{folder}, writable")
    return _check(
        "cache",
        "off",
        f"{folder} is not writable, so no model can be pulled",
        "set CROSSGATE_CACHE to a writable folder; the bundled models work without it",
    )
