"""Tells the words of a person from what agents and editors put into a prompt.

The forms were read on 2026-11-27 in public transcripts, hooks and parsers of Claude Code 2.0 to
2.1, Codex, Cursor, Copilot, Cline, Roo Code, Gemini CLI and Antigravity. No agent documents them.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

# Tags of messages that no person wrote; what follows such a block explains it.
_MESSAGE = re.compile(
    r"(?:bash|command|local-command)-\w+|channel|hook_prompt|tick|turn_aborted|user_shell_command"
    r"|(?:[\w-]+[-_])?(?:agent|session|subagent|task|teammate)[-_]"
    r"(?:handback|message|notification|report|result|status|task)"
)
# Tags around the words of the person.
_WORDS = re.compile(r"answer|feedback|task|user_?(?:input|message|query|request)")
# Tags around what an agent or editor adds; they count as such even if they are not closed.
_ADDED = re.compile(
    r"environment_\w+|ide_\w+|system[-_]\w+|user_instructions|user-prompt-submit-hook"
)
# The same in one word, which a person may write, too.
_MAYBE_ADDED = re.compile(
    r"attachments|context|editorcontext|env|permissions|reminderinstructions|rules|timestamp"
)
_TAG = r"<([A-Za-z][\w-]{0,63})(?:\s[^<>]*)?>"
_ANY_OPENING = re.compile(_TAG, re.ASCII)
_OPENING = re.compile(rf"[\s\ufeff]*{_TAG}", re.ASCII)
_CLOSING = re.compile(r"</([A-Za-z][\w-]{0,63})>\s*\Z", re.ASCII)
_CLOSING_CHARS = 200
_BLANK = "\ufeff \t\r\n\v\f"

# Beginnings of messages that no person wrote.
_BEGINNING = re.compile(
    r"""[\s\ufeff]*(?:
      \#\ AGENTS\.md\ instructions
    | Another\ Claude\ session\ sent\ a\ message
    | Base\ directory\ for\ this\ skill:
    | Caveat:\ The\ messages\ below
    | This\ is\ the\ Gemini\ CLI\.\ We\ are\ setting\ up
    | This\ session\ is\ being\ continued\ from\ a\ previous\ conversation
    | Your\ claude\.ai\ usage\ limit\ has\ reset
    | (?:\w+\ ?)?hook\ feedback:
    | \[Request\ interrupted
    | \[SYSTEM\ NOTIFICATION\b
    | \[TASK\ RESUMPTION\]
    | \[(?:agent|sub-?agent|teammate)(?:\ [\w-]+){0,2}\]
    )""",
    re.IGNORECASE | re.VERBOSE,
)
# Codex puts sections before the request, Gemini CLI the named files after it.
_SECTIONS = re.compile(
    r"[\s\ufeff]*# (?:Browser comments|Context from my IDE setup|Files (?:mentioned|pasted) by the "
    r"user|In app browser)\b"
)
_REQUEST = re.compile(r"^## My request(?: for Codex)?:", re.MULTILINE)
_FILES = re.compile(r"^--- Content from referenced files ---$", re.MULTILINE)
_FILES_END = "--- End of content ---"

# `/deploy staging`, but neither `/usr/bin/env: no such file` nor `/app.json is broken`. Codex calls
# a skill by `$name`, which is not `$PATH`.
_COMMAND = re.compile(r"[\s\ufeff]*(?:(?:/[\w:-]+|\$[a-z][a-z\d_:-]*)(?:\s|\Z)|!)")
_FOLDER = re.compile(
    r"[\s\ufeff]*/(?:bin|boot|dev|etc|home|lib|media|mnt|opt|proc|root|run|sbin|srv|sys|tmp|usr|var"
    r"|Applications|Library|System|Users|Volumes)\s+\S"
)


class _Block(NamedTuple):
    """A block `<name>...</name>`, with the positions of its parts in the text."""

    name: str
    start: int
    content_start: int
    content_end: int
    end: int


def is_command(text: str) -> bool:
    """Return whether a prompt calls a command by its name."""
    return _COMMAND.match(text) is not None and _FOLDER.match(text) is None


def words_of(text: str) -> str:
    """Return the words of the person in a prompt; empty if no person wrote any.

    Blocks in tags before and after the words are left out. A prompt without such additions is
    returned unchanged.
    """
    request = _without_added(_request_in(text))
    is_certain = request != text
    start, end = 0, len(request)
    before: list[str] = []
    after: list[str] = []
    while opening := _OPENING.match(request, start, end):
        name = opening[1].lower()
        close = request.find(f"</{opening[1]}>", opening.end(), end)
        if _MESSAGE.fullmatch(name) or (close < 0 and _ADDED.fullmatch(name)):
            return ""
        if close >= 0 and _WORDS.fullmatch(name):
            before.append(request[opening.end() : close])
        elif close < 0 or not (_is_added(name) or "-" in name):
            break
        is_certain = is_certain or "_" in name
        start = close + len(name) + 3
    if _BEGINNING.match(request, start, end):
        return ""
    while block := _last_block(request, start, end):
        if _WORDS.fullmatch(block.name):
            after.insert(0, request[block.content_start : block.content_end])
        elif not _is_added(block.name):
            break
        is_certain = is_certain or "_" in block.name
        end = block.start
    if end - start == len(text):
        return text
    words = "\n".join(filter(str.strip, (*before, request[start:end], *after))).strip(_BLANK)
    # A person may have put the whole prompt into tags.
    return words if words or is_certain else text


def _without_added(text: str) -> str:
    """Return a text without the blocks in tags that only agents and editors write."""
    parts: list[str] = []
    start = 0
    for opening in _ANY_OPENING.finditer(text):
        name = opening[1]
        if opening.start() < start or not _ADDED.fullmatch(name.lower()):
            continue
        close = text.find(f"</{name}>", opening.end())
        if close >= 0:
            parts.append(text[start : opening.start()])
            start = close + len(name) + 3
    return "".join((*parts, text[start:]))


def _request_in(text: str) -> str:
    """Return the part of a text between the headings of an agent; the text if it has none."""
    start, end = 0, len(text)
    if _SECTIONS.match(text):
        requests = [found.end() for found in _REQUEST.finditer(text)]
        start = requests[-1] if requests else end
    files = _FILES.search(text, start)
    if files and text.rstrip().endswith(_FILES_END):
        end = files.start()
    return text[start:end]


def _is_added(name: str) -> bool:
    return "_" in name or _MAYBE_ADDED.fullmatch(name) is not None


def _last_block(text: str, start: int, end: int) -> _Block | None:
    """Return the block at the end of a part of a text."""
    tail = max(start, end - _CLOSING_CHARS)
    closing = _CLOSING.search(text[tail:end])
    if closing is None:
        return None
    content_end = tail + closing.start()
    opened = text.rfind(f"<{closing[1]}", start, content_end)
    opening = _OPENING.match(text, opened, content_end) if opened >= 0 else None
    if opening is None or opening[1] != closing[1]:
        return None
    return _Block(closing[1].lower(), opened, opening.end(), content_end, end)


def is_hook_input(text: str) -> bool:
    """Return whether a text is the JSON input of a hook."""
    start = text.lstrip("\ufeff \t\r\n")
    if not start.startswith("{"):
        return False
    try:
        values = json.loads(start)
    except (ValueError, RecursionError):
        return False
    return isinstance(values, dict) and "hook_event_name" in values
