"""Tells the words of a person from what agents and editors put into a prompt.

The forms are those of Claude Code 2.0 to 2.1, Codex, Cursor, Copilot, Cline, Roo Code, Gemini CLI,
Antigravity, Windsurf, Zed, Amp, Goose, Kiro, opencode, OpenHands, Junie and aider as of November
2026. Hardly any agent documents them: those of Claude Code, Codex, Cursor and Roo Code were found
in transcripts and sources, and not all of the others were.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from typing import NamedTuple

# Tags of messages that no person wrote; what follows such a block explains it.
_MESSAGE = re.compile(
    r"(?:bash|command|local-command)-\w+|channel|hook_prompt|tick|turn_aborted|user_shell_command"
    r"|(?:[\w-]+[-_])?(?:agent|session|subagent|task|teammate)[-_]"
    r"(?:handback|message|notification|report|result|status|task)"
)
# Tags around the words of the person, and those that nobody else writes.
_SAID = re.compile(
    r"issue_(?:description|title)|problem_statement|user[-_]?(?:input|message|prompt|query|request)"
)
_WORDS = re.compile(rf"answer|feedback|prompt|task|{_SAID.pattern}")
# Tags around what an agent or editor adds; they count as such even if they are not closed.
_ADDED = re.compile(
    r"environment_\w+|ide_\w+|system[-_]\w+|user_instructions|user-prompt-submit-hook"
)
# The same in one word, which a person may write, too.
_MAYBE_ADDED = re.compile(
    r"attachments?|context|env|files?|images?|permissions|reminder|rules|system|timestamp"
)
# Parts of the names of such tags: `<user-state>`, `<attachedFiles>`.
_KINDS = re.compile(
    r"attached|attachments?|context|current|date|diagnostics|editor|environment|files|git|ide|info"
    r"|instructions|metadata|msg|references|reminders?|rules?|selected|selections?|settings|state"
    r"|visible|workspace",
    re.IGNORECASE,
)
_COMPOUND = re.compile(r"[a-z]+[-A-Z].*")
_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_NAME = r"[A-Za-z][\w-]{0,63}(?:\[[\w.-]{1,64}\])?"
_TAG = rf"<({_NAME})(?:\s[^<>]*)?>"
_ANY_OPENING = re.compile(_TAG, re.ASCII)
_ANY_CLOSING = re.compile(rf"</({_NAME})>", re.ASCII)
# Kiro puts a heading before its rules, and plug-ins a line of dashes after theirs.
_OPENING = re.compile(rf"(?:[\s\ufeff]|^## Included Rules\b.*$)*{_TAG}", re.ASCII | re.MULTILINE)
_DASHES = re.compile(r"\A-{3,}\s+")
_CLOSING = re.compile(rf"</({_NAME})>\s*\Z", re.ASCII)
_CLOSING_CHARS = 200
_BLANK = "\ufeff \t\r\n\v\f"

# Beginnings of messages that no person wrote.
_BEGINNING = re.compile(
    r"""[\s\ufeff]*(?:
      \#\ (?:AGENTS\.md\ instructions|\d+\ SEARCH/REPLACE\ blocks?\ failed)
    | \#\ Fix\ any\ (?:linting\ )?errors\ below
    | <skill>\s*<name>
    | Another\ (?:Claude\ session\ sent\ a\ message|language\ model\ started\ to\ solve)
    | Base\ directory\ for\ this\ skill:
    | Caveat:\ The\ messages\ below
    | Continue\ if\ you\ have\ next\ steps,\ or\ stop\ and\ ask
    | Here\ (?:are|is)\ (?:a\ summary\ of\ changes\ in\ the|some\ \*?READ[- ]ONLY\b
      |summaries\ of\ some\ files|the\ user's\ editor\ context)
    | I\ have\ \*added\ these\ files\ to\ the\ chat\*
    | I\ ran\ this\ command:\s*\n.*\n\n?And\ got\ this\ output:\s*\n
    | Please\ continue\ on\ whatever\ approach
    | Summarize\ the\ task\ tool\ output\ above
    | System:\ (?:\[|[^\n]{0,80}Please\ continue)
    | The\ following\ (?:is\ an\ <EPHEMERAL_MESSAGE>|tool\ was\ executed\ by\ the\ user)
    | This\ is\ the\ Gemini\ CLI\.\ We\ are\ setting\ up
    | This\ session\ is\ being\ continued\ from\ a\ previous\ conversation
    | Warning:\ (?:apply_patch\ was\ requested|The\ maximum\ number\ of\ unified\ exec)
    | Use\ the\ above\ message\ and\ context\ to\ generate\ a\ prompt
    | Your\ claude\.ai\ usage\ limit\ has\ reset
    | (?:\w+(?::\w+)?\ )?hook\ (?:additional\ context|blocking\ error|feedback|success)
      (?:\ from\ command)?:
    | \[Request\ interrupted
    | \[(?:cron|scheduled\ task)\b
    | \[(?:agent|sub-?agent|teammate)(?:\ [\w-]+){0,2}\]
    | \[(?=[^]\n]*\])(?=[^]\n]*\b(?:automated|background|hook|session|system|(?:sub)?task)\b)[^]\n]*
      \b(?:complete[ds]?|continuation|directive|event|failed|finished|heartbeat|message|notification
      |ready|reminder|result|resumption)\b
    )""",
    re.IGNORECASE | re.VERBOSE,
)
# Beginnings of messages in which the words of the person stand in tags, or not at all.
_REPORT = re.compile(
    r"[\s\ufeff]*(?:\[ERROR\] (?:Missing value for required|You did not use a tool)"
    r"|\[\w+(?: [^]\n]*)?\] Result:|Command is still running in"
    r"|The user (?:denied|rejected) this operation)"
)
# Codex and Kiro put sections before the request, Gemini CLI and opencode the named files after it.
_SECTIONS = re.compile(
    r"[\s\ufeff]*(?:# (?:Browser comments|Context from my IDE setup|Files (?:mentioned|pasted) by "
    r"the user|In app browser)\b|--- CONTEXT ENTRY BEGIN ---)"
)
_REQUEST = re.compile(
    r"^(?:## My request(?: for Codex)?:|--- USER MESSAGE BEGIN ---$)", re.MULTILINE
)
_FILES = re.compile(
    r"^(?:--- Content from referenced files ---$|--- USER MESSAGE END ---$"
    r"|Called the \w+ tool with the following input: )",
    re.MULTILINE,
)
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
    if _REPORT.match(request):
        return _said_in(request, _WORDS)
    request = _said_in(request, _SAID) or request
    is_certain = request != text
    start, end = 0, len(request)
    before: list[str] = []
    after: list[str] = []
    while not _BEGINNING.match(request, start, end) and (
        opening := _OPENING.match(request, start, end)
    ):
        name = opening[1]
        close = request.find(f"</{name}>", opening.end(), end)
        if _MESSAGE.fullmatch(name.lower()) or (close < 0 and _ADDED.fullmatch(name.lower())):
            return ""
        if close >= 0 and _WORDS.fullmatch(name.lower()):
            before.append(request[opening.end() : close])
        elif close < 0 or not (_is_added(name) or _COMPOUND.fullmatch(name)):
            break
        is_certain = is_certain or _is_certain(name)
        start = close + len(name) + 3
    if _BEGINNING.match(request, start, end):
        return ""
    while block := _last_block(request, start, end):
        if _WORDS.fullmatch(block.name.lower()):
            after.insert(0, request[block.content_start : block.content_end])
        elif not _is_added(block.name):
            break
        is_certain = is_certain or _is_certain(block.name)
        end = block.start
    if end - start == len(text):
        return text
    words = "\n".join(filter(str.strip, (*before, request[start:end], *after))).strip(_BLANK)
    # A person may have put the whole prompt into tags.
    return _DASHES.sub("", words) if words or is_certain else text


def _said_in(text: str, tags: re.Pattern[str]) -> str:
    """Return the contents of the blocks with such tags at the beginning of a line."""
    parts: list[str] = []
    end = 0
    unclosed: set[str] = set()
    for opening in _ANY_OPENING.finditer(text):
        start, name = opening.start(), opening[1]
        before = text[max(0, start - _CLOSING_CHARS) : start].rstrip(" \t\ufeff")[-1:]
        if start < end or before not in ("", "\n", ">") or name in unclosed:
            continue
        if _MESSAGE.fullmatch(name.lower()):
            return ""
        if tags.fullmatch(name.lower()):
            close = text.find(f"</{name}>", opening.end())
            if close < 0:
                unclosed.add(name)
                continue
            parts.append(text[opening.end() : close])
            end = close
    return "\n".join(filter(str.strip, parts)).strip(_BLANK)


def _without_added(text: str) -> str:
    """Return a text without the blocks in tags that only agents and editors write."""
    closings: dict[str, list[int]] = {}
    for closing in _ANY_CLOSING.finditer(text):
        closings.setdefault(closing[1], []).append(closing.start())
    parts: list[str] = []
    start = 0
    for opening in _ANY_OPENING.finditer(text):
        name = opening[1]
        if opening.start() < start or not _ADDED.fullmatch(name.lower()):
            continue
        places = closings.get(name, [])
        after = bisect_left(places, opening.end())
        if after < len(places):
            parts.append(text[start : opening.start()])
            start = places[after] + len(name) + 3
    return "".join((*parts, text[start:]))


def _request_in(text: str) -> str:
    """Return the part of a text between the headings of an agent; the text if it has none."""
    start, end = 0, len(text)
    if _SECTIONS.match(text):
        requests = [found.end() for found in _REQUEST.finditer(text)]
        start = requests[-1] if requests else end
    files = _FILES.search(text, start)
    if files and ("Content" not in files[0] or text.rstrip().endswith(_FILES_END)):
        end = files.start()
    return text[start:end]


def _is_added(name: str) -> bool:
    return _is_certain(name) or _MAYBE_ADDED.fullmatch(name.lower()) is not None


def _is_certain(name: str) -> bool:
    """Return whether only agents and editors write such a tag."""
    if "_" in name or "[" in name:
        return True
    parts = _PART.findall(name)
    return len(parts) > 1 and any(map(_KINDS.fullmatch, parts))


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
    return _Block(closing[1], opened, opening.end(), content_end, end)


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
