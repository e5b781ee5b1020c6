"""Skills: the front matter of a SKILL.md, read as leniently as agents read it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import takewhile
from typing import NamedTuple

from crossgate._sources.common import Unusable, is_unicode
from crossgate._sources.yaml_documents import Scalar, parse_scalars, parse_yaml
from crossgate._values.results import Document

_FRONT_MATTER_CHARS = 64 * 1024
_WHEN_TO_USE = ("when_to_use", "when-to-use")
_SEPARATORS = re.compile(r"[,;|\n]")
_DENIAL = re.compile(r"(?i)(not|no|never|do not|don't|avoid|skip|except)\b")
_LONGEST_TRIGGER = 4
"""Words of a trigger; a longer item is a sentence."""
_MOST_TRIGGERS = 64
# Marks a skill that only people may call, by its name.
_MANUAL = ("disable-model-invocation", "disable_model_invocation")
_YES = ("true", "yes", "on")
_USED = {"name", "description", *_WHEN_TO_USE, *_MANUAL}

_FRONT_MATTER = re.compile(r"---[ \t]*\n(.*?\n)??---[ \t]*(?:\n|\Z)", re.DOTALL)
# A key is in quotes or one word, such as `x.y`, `1st` or `größe`. A line that begins with a mark of
# Markdown, or has several words before its colon, is text without indentation.
_KEY = re.compile(
    r"""(?:(["'])(?P<quoted>[^"'\n]*)\1|(?P<plain>[^\s"'#*`>(:-]\S*?))[ \t]*:(?=\s|\Z)"""
)
_BLOCK_HEADER = re.compile(r"([|>])[-+\d]*[ \t]*(?:#.*)?")
# YAML 1.1, the version of the parser, takes these for line breaks; YAML 1.2 and agents do not.
_BREAKS_OF_YAML_1_1 = re.compile("[\x85\u2028\u2029]")
_QUOTES = ('"', "'")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]|\\u[dD][89a-fA-F]")


class Value(NamedTuple):
    """A top-level value of the front matter: its YAML type, text or texts, and 1-based line."""

    type: str
    text: str
    texts: list[str]
    line: int


class _Entry(NamedTuple):
    """A key of the front matter with its lines: the text from the key to the next key."""

    key: str
    line: int
    text: str
    value: str


def front_matter(text: str) -> tuple[dict[str, Value], str]:
    """Read the front matter of a SKILL.md, the block between the first two `---` lines.

    Agents accept much that is not valid YAML, such as `Use when: always` without quotes or
    `[file] [n]`. So if the block is not valid, or a value contains a key that crossgate uses, each
    key is read for itself: as YAML, or else as the text of its lines. The value of one key thus
    never hides another key.

    Returns:
        The values of the front matter, and the body that follows it.

    Raises:
        Unusable: If there is no front matter, or it is not valid YAML and has no description.
    """
    match = _FRONT_MATTER.match(text)
    if not match:
        if text.partition("\n")[0].rstrip() == "---":
            raise Unusable("the front matter is not closed by a second --- line", 1)
        raise Unusable("no front matter, the first line is not ---", 1)
    block = match[1] or ""
    if len(block) > _FRONT_MATTER_CHARS:
        raise Unusable(f"the front matter is longer than {_FRONT_MATTER_CHARS:,} characters", 1)
    block = _BREAKS_OF_YAML_1_1.sub(" ", block)
    if block[:1] in (" ", "\t"):
        block = textwrap.dedent(block)
    entries = list(_entries(block))
    values: dict[str, Value] = {}
    invalid: Unusable | None = None
    try:
        values = _yaml_values(block, {entry.key: entry.line for entry in entries})
    except Unusable as error:
        invalid = error
    if invalid or any(entry.key in _USED and entry.key not in values for entry in entries):
        values = {**_values_by_key(entries), **values}
    if invalid and "description" not in values:
        raise invalid
    return values, text[match.end() :].strip()


def json_of_front_matter(text: str) -> dict[str, object]:
    """Return all of the front matter as a JSON object.

    Raises:
        Unusable: If there is none, or it is not a mapping in valid YAML.
    """
    match = _FRONT_MATTER.match(text)
    values = parse_yaml(match[1] or "") if match else None
    if not isinstance(values, dict):
        raise Unusable("the front matter is not a mapping of keys to values", 1)
    return values


def document_of_entry(entry: object, server: str) -> Document:
    """Return the document of a skill that an MCP server lists, from its front matter.

    Raises:
        Unusable: If URI, name or description is missing.
    """
    given = entry if isinstance(entry, dict) else {}
    front = given.get("frontmatter")
    front = front if isinstance(front, dict) else {}
    found = (given.get("uri"), front.get("name"), front.get("description"))
    uri, name, text = (value.strip() if isinstance(value, str) else "" for value in found)
    if not all((uri, name, text)) or not is_unicode(uri + name + text):
        raise Unusable("an entry of skills/list needs a uri, and a name and description as text")
    metadata: dict[str, object] = {"server": server, "uri": uri}
    if any(front.get(key) is True for key in _MANUAL):
        metadata["implicit"] = False
    return Document(id=name, title=name, text=text, metadata=metadata)


def is_manual(values: dict[str, Value]) -> bool:
    """Return whether `disable-model-invocation` reserves a skill for people who name it."""
    return any(key in values and values[key].text.lower() in _YES for key in _MANUAL)


def may_be_suggested(settings: str) -> bool:
    """Return whether Codex's settings of a skill, in YAML, let a model choose it unasked.

    Raises:
        Unusable: If the settings are not YAML.
    """
    values = parse_yaml(settings)
    policy = values.get("policy") if isinstance(values, dict) else None
    return not (isinstance(policy, dict) and policy.get("allow_implicit_invocation") is False)


def _entries(block: str) -> Iterator[_Entry]:
    """Yield the keys at the start of a line, each with all lines up to the next key."""
    keys: list[tuple[str, int, int, int]] = []
    start = 0
    for number, line in enumerate(block.split("\n"), 2):
        if key := _KEY.match(line):
            name = key["plain"] or key["quoted"]
            keys.append((name, number, start, start + key.end()))
        start += len(line) + 1
    ends = [*(first for _, _, first, _ in keys[1:]), len(block)]
    for (name, number, first, value), end in zip(keys, ends, strict=False):
        yield _Entry(name, number, block[first:end], block[value:end])


def _values_by_key(entries: list[_Entry]) -> dict[str, Value]:
    """Read each key for itself; values with control characters or surrogates are left out."""
    values: dict[str, Value] = {}
    for entry in entries:
        with suppress(Unusable, KeyError):
            values[entry.key] = _yaml_values(entry.text, {entry.key: entry.line})[entry.key]
            continue
        own = _indented(entry.text)
        if own != entry.text and (own[-1:] in _QUOTES or _CONTROL.search(entry.value)):
            # What follows without indentation is not a part of the value.
            with suppress(Unusable, KeyError):
                values[entry.key] = _yaml_values(own, {entry.key: entry.line})[entry.key]
                continue
        if not _CONTROL.search(entry.value):
            values[entry.key] = Value("str", _plain_text(entry.value), [], entry.line)
    return values


def _indented(entry: str) -> str:
    """Return the line of a key with the indented lines below it."""
    first, *rest = entry.split("\n")
    own = takewhile(lambda line: not line or line[0] in " \t#", rest)
    return "\n".join([first, *own]).rstrip()


def _plain_text(value: str) -> str:
    """Return the text of a value that is not valid YAML, without comments and outer quotes."""
    first, *rest = value.split("\n")
    header = _BLOCK_HEADER.fullmatch(first.strip())
    lines = [line.strip() for line in (rest if header else [first, *rest]) if line[:1] != "#"]
    if header and header[1] == "|":
        return "\n".join(lines).strip()
    paragraphs = re.split(r"\n{2,}", "\n".join(lines).strip())
    text = "\n".join(paragraph.replace("\n", " ") for paragraph in paragraphs)
    quote = text[:1]
    if quote in ('"', "'") and len(text) > 1:
        inner = text[1:-1] if text[-1] == quote else text[1:]
        if quote not in inner.replace(f"\\{quote}", ""):
            # An apostrophe without a partner is a letter of the first word.
            is_open = text[-1] != quote
            return text if is_open and quote == "'" else inner.replace(f"\\{quote}", quote)
    return text


def _yaml_values(block: str, lines: Mapping[str, int]) -> dict[str, Value]:
    """Return the values of a YAML mapping; `lines` has the lines of its keys in the file."""
    try:
        root = parse_scalars(block)
    except Unusable as error:
        line = None if error.line is None else error.line + 1
        raise Unusable(f"the front matter is {error}", line) from None
    if not isinstance(root, dict | None):
        raise Unusable("the front matter is not a mapping of keys to values", 2)
    return {key: _value(value, lines.get(key, 1)) for key, value in (root or {}).items()}


def _value(value: object, line: int) -> Value:
    if isinstance(value, Scalar):
        return Value(value.type, value.text, [], line)
    if not isinstance(value, list):
        return Value("mapping", "", [], line)
    texts = [item.text for item in value if isinstance(item, Scalar) and item.type == "str"]
    return Value("sequence", "", texts, line)


def text_of(values: dict[str, Value], key: str) -> str:
    """Return a string of the front matter without white space around it; anything else is empty."""
    value = values.get(key)
    if value is None or value.type != "str":
        return ""
    if not is_unicode(value.text):
        raise Unusable(f"the {key} has a lone surrogate, half of an escaped character", value.line)
    return value.text.strip()


def texts_of(values: dict[str, Value], key: str) -> tuple[str, ...]:
    """Return the strings of a list in the front matter."""
    return tuple(filter(is_unicode, values[key].texts)) if key in values else ()


def triggers_of(values: dict[str, Value]) -> tuple[str, ...]:
    """Return the triggers of a `when_to_use` that is a list of words and short phrases."""
    triggers: list[str] = []
    for key in _WHEN_TO_USE:
        items = texts_of(values, key) or _SEPARATORS.split(text_of(values, key))
        items = [item.strip(" \t-*\"'`") for item in items]
        is_list = all(len(item.split()) <= _LONGEST_TRIGGER for item in items)
        if is_list and not any(_DENIAL.match(item) for item in items):
            triggers += filter(None, items)
    return tuple(triggers[:_MOST_TRIGGERS])


def description_of(values: dict[str, Value]) -> str:
    """Return the description of a skill with its `when_to_use`."""
    value = values.get("description")
    if value is None:
        raise Unusable("the front matter has no description", 1)
    if value.type not in ("str", "null"):
        reason = f"the description is a YAML {value.type}, not text: put it in quotes"
        raise Unusable(reason, value.line)
    text = text_of(values, "description")
    if not text:
        raise Unusable("the description is empty", value.line)
    return "\n".join(filter(None, (text, *(text_of(values, key) for key in _WHEN_TO_USE))))
