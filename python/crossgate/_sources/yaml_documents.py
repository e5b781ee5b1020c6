"""YAML documents, read into the values that JSON has, without trusting them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from crossgate._sources.common import Unusable

_DEPTH = 100
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_DIGITS = 300
"""Maximum length of a number; a longer one stays text."""
_CONSTANTS = {"": None, "~": None, "null": None, "true": True, "false": False}


class Scalar(NamedTuple):
    """A scalar as written, with its type in YAML 1.1."""

    type: str
    text: str


def parse_yaml(text: str) -> object:
    """Return the value of a YAML document, of the types that JSON has.

    Types are those of YAML 1.2 and JSON: `yes` and dates are text, as all keys are.

    Raises:
        Unusable: As `_parse` does.
    """
    return _parse(text, lambda event: _plain(event.value) if event.implicit[0] else event.value)


def parse_scalars(text: str) -> object:
    """Return the value of a YAML document, with each value that is not a container as a `Scalar`.

    Raises:
        Unusable: As `_parse` does.
    """
    import yaml

    resolve = yaml.resolver.Resolver().resolve

    def scalar(event: Any) -> Scalar:
        tag = event.tag or resolve(yaml.ScalarNode, event.value, event.implicit)  # type: ignore[no-untyped-call]
        return Scalar(str(tag).removeprefix("tag:yaml.org,2002:"), event.value)

    return _parse(text, scalar)


def _parse(text: str, scalar: Callable[[Any], object]) -> object:
    """Return the value of a YAML document; `scalar` makes the value of a scalar's event.

    Only the parser's events are read, so no tag runs code and nothing recurses: libyaml's composer
    overflows the stack on deeply nested input. An alias is the named value itself, not a copy, so a
    small file cannot become large.

    Raises:
        Unusable: If the text is not one YAML document, is nested deeper than 100, or has a key that
            is not text or an alias for what contains it.
    """
    import yaml  # here, since few sources need it

    root: list[object] = []
    # The open containers, outermost first: lists, or objects with their latest key.
    within: list[tuple[Any, str | None]] = [(root, None)]
    named: dict[str, object] = {}
    documents = 0
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            documents += isinstance(event, yaml.DocumentStartEvent)
            if documents > 1:
                raise Unusable("more than one YAML document in a file", _line(event))
            if isinstance(event, yaml.CollectionEndEvent):
                within.pop()
            if not isinstance(event, yaml.NodeEvent):
                continue
            container, key = within[-1]
            is_key = isinstance(container, dict) and key is None
            value: object
            if isinstance(event, yaml.ScalarEvent):
                value = event.value if is_key else scalar(event)
            elif isinstance(event, yaml.AliasEvent):
                if event.anchor not in named:
                    raise Unusable(f"no earlier value is named &{event.anchor:.40}", _line(event))
                value = named[event.anchor]
                if any(value is each for each, _ in within):
                    raise Unusable(f"*{event.anchor:.40} is a part of itself", _line(event))
            else:
                value = {} if isinstance(event, yaml.MappingStartEvent) else []
            if event.anchor and not isinstance(event, yaml.AliasEvent):
                named[event.anchor] = value
            if is_key and not isinstance(value, str):
                raise Unusable("a key that is not text", _line(event))
            if is_key:
                within[-1] = container, str(value)
            elif isinstance(container, dict):
                container[key] = value
                within[-1] = container, None
            else:
                container.append(value)
            if isinstance(event, yaml.CollectionStartEvent):
                within.append((value, None))
            if len(within) > _DEPTH:
                raise Unusable(f"nested deeper than {_DEPTH}", _line(event))
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        mark = getattr(error, "problem_mark", None)
        reason = getattr(error, "problem", None) or str(error).partition("\n")[0]
        if "mapping values are not allowed" in reason:
            reason = "a value with a colon and a space must be in quotes"
        elif "unexpected end of stream" in reason:
            reason, mark = "a quotation mark is not closed", getattr(error, "context_mark", mark)
        raise Unusable(f"not valid YAML: {reason}", mark.line + 1 if mark else None) from None
    return root[0] if root else None


def _plain(text: str) -> object:
    """Return the value of a scalar without quotes."""
    if text.lower() in _CONSTANTS:
        return _CONSTANTS[text.lower()]
    if len(text) <= _DIGITS and _NUMBER.fullmatch(text):
        number = json.loads(text)
        return text if number in (float("inf"), float("-inf")) else number
    return text


def _line(event: Any) -> int | None:
    return event.start_mark.line + 1 if event.start_mark else None
