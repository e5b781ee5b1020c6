"""Skills: the front matter of a SKILL.md, read without trusting it."""

from __future__ import annotations

import re
from typing import NamedTuple

from crossgate._sources.common import Unusable, is_unicode

_FRONT_MATTER_CHARS = 64 * 1024
_YAML_DEPTH = 50
_WHEN_TO_USE = ("when_to_use", "when-to-use")

_FRONT_MATTER = re.compile(r"---[ \t]*\n(.*?\n)??---[ \t]*(?:\n|\Z)", re.DOTALL)
# `key: value` on one line, unless the value is quoted, a comment, a block or a closed list.
_PLAIN_LINE = re.compile(
    r"^([\w-]+):[ \t]++(?![\"'|>#]|\[.*\][ \t]*$|\{.*\}[ \t]*$)(.*\S)", re.MULTILINE
)


class Value(NamedTuple):
    """A top-level value of the front matter: its YAML type, text or texts, and 1-based line."""

    type: str
    text: str
    texts: list[str]
    line: int


def front_matter(text: str) -> tuple[dict[str, Value], str]:
    """Read the front matter of a SKILL.md, the block between the first two `---` lines.

    A description such as `Use when: always` is invalid YAML without quotes, but common, and agents
    accept it. So a block that does not parse is read again with its one-line values quoted. If that
    fails too, the first error is raised.

    Returns:
        The values of the front matter, and the body that follows it.
    """
    match = _FRONT_MATTER.match(text)
    if not match:
        if text.partition("\n")[0].rstrip() == "---":
            raise Unusable("the front matter is not closed by a second --- line", 1)
        raise Unusable("no front matter, the first line is not ---", 1)
    block = match[1] or ""
    if len(block) > _FRONT_MATTER_CHARS:
        raise Unusable(f"the front matter is longer than {_FRONT_MATTER_CHARS:,} characters", 1)
    body = text[match.end() :].strip()
    try:
        return _yaml_values(block), body
    except Unusable as error:
        try:
            return _yaml_values(_PLAIN_LINE.sub(_quoted, block)), body
        except Unusable:
            raise error from None


def _quoted(line: re.Match[str]) -> str:
    value = line[2].replace("'", "''")
    return f"{line[1]}: '{value}'"


def _yaml_values(block: str) -> dict[str, Value]:
    """Return the top-level values of a YAML mapping that starts on line 2 of a file.

    Only the parser's events are read, so no tag runs code, no alias is expanded, and nothing
    recurses: libyaml's composer overflows the stack on deeply nested input.
    """
    import yaml  # here, since only skills need it

    resolve = yaml.resolver.Resolver().resolve
    values: dict[str, Value] = {}
    latest: Value | None = None
    key: str | None = None
    depth = 0
    try:
        for event in yaml.parse(block, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            if isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            if not isinstance(event, yaml.NodeEvent):
                continue
            line = event.start_mark.line + 2 if event.start_mark else 1
            kind, text = (
                type(event).__name__.removesuffix("Event").removesuffix("Start").lower(),
                "",
            )
            if isinstance(event, yaml.ScalarEvent):
                text = event.value
                tag = event.tag or resolve(yaml.ScalarNode, text, event.implicit)  # type: ignore[no-untyped-call]
                kind = str(tag).removeprefix("tag:yaml.org,2002:")
            if depth == 0 and kind != "mapping":
                raise Unusable("the front matter is not a mapping of keys to values", line)
            if depth > _YAML_DEPTH:
                raise Unusable(f"the front matter is nested deeper than {_YAML_DEPTH}", line)
            if depth == 1 and key is None:
                key, latest = text, None
            elif depth == 1:
                values[key or ""] = latest = Value(kind, text, [], line)
                key = None
            elif depth == 2 and kind == "str" and latest and latest.type == "sequence":
                latest.texts.append(text)
            depth += isinstance(event, yaml.CollectionStartEvent)
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        mark = getattr(error, "problem_mark", None)
        reason = getattr(error, "problem", None) or str(error).partition("\n")[0]
        if "mapping values are not allowed" in reason:
            reason = "a value with a colon and a space must be in quotes"
        elif "unexpected end of stream" in reason:
            reason, mark = "a quotation mark is not closed", getattr(error, "context_mark", mark)
        reason = f"the front matter is not valid YAML: {reason}"
        raise Unusable(reason, mark.line + 2 if mark else None) from None
    return values


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
