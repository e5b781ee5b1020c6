"""Edits the hooks in an agent's settings file, and leaves everything else unchanged."""

from __future__ import annotations

import json
import os
import re
import tomllib
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from math import isfinite
from pathlib import Path
from typing import Any

from crossgate._agents.hook.agents import TASK_EVENT, Agent
from crossgate._sources.common import is_unicode
from crossgate._support.errors import InputError, SourceError
from crossgate._support.files import atomic_write, copy_whole, file_lock, read_source
from crossgate._support.limits import SETTINGS_BYTES
from crossgate._support.wording import type_of

BACKUP = ".before-crossgate"

_CROSSGATE = re.compile(r"\bcrossgate\b")
_HOOK = re.compile(r"\shook\s+([a-z]+)\b")
_LOCK_SECONDS = 10.0
_MOST_DOTS = 200
"""Maximum number of dots in a line of TOML: Python's parser takes 40 minutes for 500,000 parts of a
key."""
_SECONDS = 10
"""Time limit of the hook in the settings; longer than the limit of the hook itself."""


def with_hook(
    values: dict[str, Any], agent: Agent, command: str, *, subagents: bool = False
) -> dict[str, Any]:
    """Return settings with a hook that runs this command; it replaces an earlier crossgate hook.

    Args:
        values: The settings.
        agent: The agent.
        command: The command.
        subagents: Whether to run it for the tasks of subagents, too.

    Raises:
        ValueError: If the settings have another shape; the message names the key.
    """
    hook = {"type": "command", "command": command, "timeout": round(_SECONDS / agent.seconds)}
    wanted: dict[str, dict[str, Any]] = {agent.event: {"hooks": [hook]}}
    if subagents:
        wanted[TASK_EVENT] = {"matcher": "|".join(agent.task_tools), "hooks": [hook]}
    rest = without_hook(values, agent)
    hooks = dict(values.get("hooks") or {})
    for event in agent.events:
        before, kept = _groups(values, event), _groups(rest, event)
        # In its old position, so that the order of the hooks stays the same.
        ours = (at for at, group in enumerate(before) if _without(group, agent) != group)
        position = next(ours, len(kept))
        added = [wanted[event]] if event in wanted else []
        if groups := [*kept[:position], *added, *kept[position:]]:
            hooks[event] = groups
        elif before:
            del hooks[event]
    return {**values, "hooks": hooks}


def without_hook(values: dict[str, Any], agent: Agent) -> dict[str, Any]:
    """Return settings without crossgate's hook, and without groups that become empty.

    Raises:
        ValueError: If the settings have another shape; the message names the key.
    """
    for event in agent.events:
        before = _groups(values, event)
        cleared = (_without(group, agent) for group in before)
        kept = [group for group in cleared if group is not None]
        if kept == before:
            continue
        hooks = {**values["hooks"], event: kept}
        if not kept:
            del hooks[event]
        values = {**values, "hooks": hooks}
        if not hooks:
            del values["hooks"]
    return values


def command_in(path: Path, agent: Agent) -> str:
    """Return the command of crossgate's hook in a settings file; empty without such a hook."""
    try:
        groups = _groups(read(path, _bytes(path)), agent.event)
    except (ValueError, SourceError):
        return ""
    hooks = [group.get("hooks") for group in groups if isinstance(group, dict)]
    ours = [
        hook for some in hooks if isinstance(some, list) for hook in some if _is_ours(hook, agent)
    ]
    return str(ours[0]["command"]) if ours else ""


def switch_in(path: Path, agent: Agent, *, managed: bool = False) -> str:
    """Return the setting in a file that disables the hook of an agent; empty if there is none.

    Args:
        path: The file.
        agent: The agent.
        managed: Whether these are the settings of an administrator.
    """
    try:
        data = _bytes(path)
        is_toml = path.suffix == ".toml"
        if is_toml and any(line.count(b".") > _MOST_DOTS for line in data.split(b"\n")):
            return ""
        values = tomllib.loads(data.decode("utf-8-sig")) if is_toml else read(path, data)
    except (SourceError, ValueError, RecursionError):  # InputError is a ValueError
        return ""
    for keys, disabling in (*agent.switches, *(agent.managed_switches if managed else ())):
        if (value := _value_at(values, keys)) is disabling:
            return f"{'.'.join(keys)}: {json.dumps(value)}"
    for keys in agent.disabled_lists:
        listed = _value_at(values, keys)
        for command in listed if isinstance(listed, list) else ():
            if _is_ours({"command": command}, agent):
                return f"{'.'.join(keys)}: {json.dumps([command])}"
    return ""


def _value_at(values: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        values = values.get(key) if isinstance(values, dict) else None
    return values


def edit(
    path: Path, change: Callable[[dict[str, Any]], dict[str, Any]], *, ours: bool = False
) -> bool:
    """Change a settings file; before the first change, the file is copied to a backup.

    Args:
        path: The file. A missing file counts as empty; links are followed.
        change: Returns the new settings. A file that becomes empty is deleted if crossgate created
            it.
        ours: Whether the file already calls crossgate.

    Returns:
        Whether the file was changed.

    Raises:
        InputError: `malformed_setting` for a file that is not plain JSON of the right shape; the
            file is not changed.
        SourceError: `unwritable` if the file cannot be read or written.
    """
    values, _, after = _changed(path, change)
    if after == values:
        return False
    target = Path(os.path.realpath(path))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with file_lock(target.with_name(f".{target.name}.lock"), seconds=_LOCK_SECONDS) as free:
            if not free:
                raise OSError(None, "another process is changing it: try again")
            return _edit(path, target, change, ours=ours)
    except OSError as error:
        raise _unwritable("write", path, error) from error


def _changed(
    path: Path, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> tuple[dict[str, Any], bytes, dict[str, Any]]:
    """Return the settings in a file, its bytes, and the changed settings."""
    before = _bytes(path)
    values = read(path, before)
    try:
        return values, before, change(values)
    except ValueError as error:
        raise _malformed(path, str(error)) from error


def _edit(
    path: Path,
    target: Path,
    change: Callable[[dict[str, Any]], dict[str, Any]],
    *,
    ours: bool,
) -> bool:
    values, before, after = _changed(path, change)  # another process may have changed it
    if after == values:
        return False
    backup = target.with_name(target.name + BACKUP)
    indent = _indent(before)
    text = json.dumps(after, indent=indent, ensure_ascii=False) + "\n"
    if not is_unicode(text):  # an escaped half of a character stays escaped
        text = json.dumps(after, indent=indent) + "\n"
    if ours and not after and not os.path.exists(backup) and not os.path.islink(path):
        path.unlink()
        return True
    if before and not ours:
        copy_whole(target, backup)
    with atomic_write(path) as stream:
        stream.write("\ufeff" * before.startswith(BOM_UTF8) + text)
        # The agent itself takes no lock.
        if os.path.exists(path) and read_source(path, SETTINGS_BYTES) != before:
            raise OSError(None, "it was changed in the meantime, so nothing was written: try again")
    return True


def check(path: Path, agent: Agent) -> None:
    """Raise for settings that cannot be edited.

    Raises:
        InputError: `malformed_setting`, as `edit` does.
        SourceError: `unwritable` if the file cannot be read.
    """
    _changed(path, lambda values: with_hook(values, agent, ""))


def read(path: Path, data: bytes) -> dict[str, Any]:
    """Return the settings in a file.

    Raises:
        InputError: `malformed_setting` if the file is not plain JSON with an object.
    """
    if not data.strip():
        return {}
    try:
        values = json.loads(
            data.decode("utf-8-sig"),
            object_pairs_hook=_pairs,
            parse_constant=_constant,
            parse_float=_number,
        )
    except UnicodeDecodeError as error:
        raise _malformed(path, f"it is not UTF-8 at byte {error.start}") from error
    except json.JSONDecodeError as error:
        line = error.doc.split("\n")[error.lineno - 1]
        why = f"line {error.lineno}: {error.msg}"
        if re.search(r"//|/\*|#", line) or data.lstrip().startswith((b"//", b"/*")):
            why += ", perhaps a comment"
        elif re.match(r"\s*[\]}]", line):
            why += ", perhaps a comma after the last entry"
        raise _malformed(path, why) from error
    except (ValueError, RecursionError) as error:
        raise _malformed(path, str(error)) from error
    if not isinstance(values, dict):
        raise _malformed(path, f"it must hold an object, not {type_of(values)}")
    return values


def _bytes(path: Path) -> bytes:
    try:
        return read_source(path, SETTINGS_BYTES)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise _unwritable("read", path, error) from error


def _groups(values: dict[str, Any], event: str) -> list[Any]:
    hooks = values.get("hooks")
    if hooks is None:
        return []
    if not isinstance(hooks, dict):
        raise ValueError(f'"hooks" must be an object, not {type_of(hooks)}')
    groups = hooks.get(event)
    if groups is None:
        return []
    if not isinstance(groups, list):
        raise ValueError(f'"hooks.{event}" must be a list, not {type_of(groups)}')
    return groups


def _without(group: Any, agent: Agent) -> Any:
    """Return a group of hooks without crossgate's hook, or None if the group becomes empty."""
    hooks = group.get("hooks") if isinstance(group, dict) else None
    if not isinstance(hooks, list):
        return group
    kept = [hook for hook in hooks if not _is_ours(hook, agent)]
    if len(kept) == len(hooks):
        return group
    return {**group, "hooks": kept} if kept else None


def _is_ours(hook: Any, agent: Agent) -> bool:
    command = hook.get("command") if isinstance(hook, dict) else None
    program = _CROSSGATE.search(command) if isinstance(command, str) else None
    match = _HOOK.search(program.string, program.end()) if program else None
    return match is not None and match[1] == agent.name


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        counts = Counter(key for key, _ in pairs)
        twice = next(key for key, count in counts.items() if count > 1)
        raise ValueError(f"the key {twice[:40]!r} occurs twice in one object")
    return values


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _number(text: str) -> float:
    number = float(text)
    if not isfinite(number) or Decimal(repr(number)) != Decimal(text):
        raise ValueError(f"the number {text[:40]} would be changed")
    return number


def _indent(data: bytes) -> int | str:
    match = re.search(rb"\n([ \t]+)\S", data)
    return match[1].decode() if match else 2


def _malformed(path: Path, why: str) -> InputError:
    return InputError(
        "malformed_setting",
        f"{path} was not changed, since only plain JSON can be edited safely: {why}. Correct it, "
        "or add the hook by hand: docs/agents.md shows the lines",
    )


def _unwritable(verb: str, path: Path, error: OSError) -> SourceError:
    return SourceError("unwritable", f"cannot {verb} {path}: {error.strerror or error}")
