"""Tools of MCP servers, functions of model APIs and operations of OpenAPI, as documents."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from crossgate._retrieval.passages import BODY_CHARS
from crossgate._sources.common import Unusable, is_unicode
from crossgate._support.errors import InputError
from crossgate._values.results import Document

_METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace", "query")
_REFERENCES = 8
"""Maximum length of a chain of references that is followed."""
_PARAMETERS = 500
"""How many parameters of a path, and of an operation, are read."""
_OPERATIONS = 50_000
"""How many operations of a document are read."""

Tool = TypeVar("Tool")


class Operation(NamedTuple):
    """An operation: its label, as `METHOD /path`, and its tool."""

    place: str
    tool: object


def is_openapi(value: object) -> bool:
    """Return whether a JSON value claims to be an OpenAPI document, of any version."""
    return isinstance(value, dict) and ("openapi" in value or "swagger" in value)


def operations_of(document: Mapping[str, Any]) -> Iterator[Operation]:
    """Yield the operations below `paths`, in their order.

    Webhooks and callbacks are left out, since the service makes those calls itself. References are
    followed only inside the document.

    Raises:
        Unusable: If it is neither OpenAPI 3 nor Swagger 2.0, or it has no paths.
    """
    version = document.get("openapi", document.get("swagger"))
    if not str(version).startswith(("2.0", "3.")):  # 3.1 without quotes is a number
        raise Unusable(f"OpenAPI {version!r:.40} is not read: convert the document to OpenAPI 3")
    paths = document.get("paths")
    if not isinstance(paths, dict):
        raise Unusable('an OpenAPI document without operations: expected an object "paths"')
    count = 0
    for path, value in paths.items():
        if not path.startswith("/"):  # an extension, x-...
            continue
        item = _followed(document, value)
        if not item and value != {}:
            yield Operation(_printable(path), None)
        for method in _METHODS:
            if method in item:
                count += 1
                if count > _OPERATIONS:
                    raise Unusable(
                        f"it has more than {_OPERATIONS:,} operations: the rest is left out"
                    )
                place = f"{method.upper()} {path}"
                yield Operation(_printable(place), _tool(document, place, item, item[method]))


def _printable(place: str) -> str:
    return place if place.isprintable() else repr(place)


def _tool(
    document: Mapping[str, Any], place: str, item: Mapping[str, Any], value: object
) -> object:
    """Return an operation as a tool; a malformed one is returned as it is, to be refused later.

    Its name is its `operationId`, or else its label.
    """
    if not isinstance(value, dict):
        return value
    # Parameters of the operation override those of its path.
    properties: dict[str, Any] = {}
    bodies = [_content(_followed(document, value.get("requestBody")))]
    for parameters in (item.get("parameters"), value.get("parameters")):
        for value_or_reference in islice(
            parameters if isinstance(parameters, list) else (), _PARAMETERS
        ):
            parameter = _followed(document, value_or_reference)
            name = parameter.get("name")
            if parameter.get("in") == "body":  # Swagger
                bodies.append(parameter.get("schema"))
            elif isinstance(name, str):
                # Swagger has no schema around these.
                own = {key: parameter[key] for key in ("enum", "items") if key in parameter}
                schemas = [parameter.get("schema"), _content(parameter)]
                description = parameter.get("description")
                properties[name] = {"description": description, "allOf": schemas, **own}
    texts = [value.get("summary"), value.get("description")]
    return {
        "name": value.get("operationId") or place,
        "title": place,
        "description": "\n\n".join(dict.fromkeys(text for text in texts if isinstance(text, str))),
        "parameters": {
            "properties": properties,
            "allOf": bodies,
            "components": document.get("components"),
            "definitions": document.get("definitions"),
        },
    }


def _content(value: Mapping[str, Any]) -> object:
    """Return the schema of a body or parameter: that of JSON, or else of its first media type."""
    content = value.get("content")
    if not isinstance(content, dict) or not content:
        return None
    kind = "application/json" if "application/json" in content else next(iter(content))
    media = content[kind]
    return media.get("schema") if isinstance(media, dict) else None


def _followed(document: Mapping[str, Any], value: object) -> dict[str, Any]:
    """Return an object, or the target of its reference; an empty object if there is none."""
    for _ in range(_REFERENCES):
        if not isinstance(value, dict):
            return {}
        if "$ref" not in value:
            return value
        value = named_by(document, value["$ref"])
    return {}


_SCHEMAS = (
    "inputSchema",
    "input_schema",
    "parameters",
    "parameters_json_schema",
    "parametersJsonSchema",
)
_DEPTH = 8
"""Maximum depth of nested parameters; deeper ones are left out."""
_PARTS = 500
"""Maximum number of parts of a tool's schema that are read, including nested ones."""
_REFERENCE_CHARS = 1_000
_HINTS = {
    "read_only": ("readOnlyHint", "read_only_hint"),
    "destructive": ("destructiveHint", "destructive_hint"),
}
"""Keys of the metadata, each with the spellings of the annotation of MCP that it holds."""
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_READING = re.compile(
    r"browse|check|count|describe|download|explain|export|fetch|find|get|inspect|list|lookup|preview"
    r"|read|retrieve|search|show|view"
)
_ACTING = re.compile(
    r"add|append|approve|archive|assign|cancel|close|create|deactivate|delete|deploy|disable|dismiss"
    r"|edit|enable|grant|insert|invite|merge|modify|move|publish|purge|push|reject|remove|rename"
    r"|replace|rerun|restart|restore|revoke|send|set|start|stop|submit|subscribe|unlock|unsubscribe"
    r"|update|upload|upsert|write"
)
"""Verbs of tools that only read, and that act; words that often are nouns are left out."""
_VALUES = 100
"""Maximum number of values of a parameter that are read."""


def tools_of(value: object) -> list[object]:
    """Return the tools of a file: a list, or an object with a list under `tools`.

    That object is under `result` in a response of an MCP server, and under `toolConfig` in a
    request to Bedrock. Gemini's tools are lists of functions, which are returned one by one.

    Raises:
        Unusable: If there is no such list.
    """
    for outer in ("result", "toolConfig"):
        if isinstance(value, dict) and isinstance(value.get(outer), dict):
            value = value[outer]
    if isinstance(value, dict):
        value = value.get("tools", [value] if _declared(value) else None)
    if not isinstance(value, list):
        raise Unusable('no list of tools: expected a JSON array, or an object with "tools"')
    return [tool for entry in value for tool in _declared(entry) or [entry]]


def _declared(value: object) -> list[Any]:
    """Return the functions that a tool of Gemini declares; none for any other tool."""
    if not isinstance(value, dict):
        return []
    functions = value.get("functionDeclarations", value.get("function_declarations"))
    return functions if isinstance(functions, list) else []


def tool_from(value: object) -> Document:
    """Turn one tool into a document: its name and description, and its parameters as the body.

    It may have the format of MCP (`inputSchema`), of Anthropic's tools (`input_schema`), of
    OpenAI's and Gemini's functions (`parameters`, also below `function`), or of Bedrock's tools
    (`inputSchema.json`, below `toolSpec`). The annotations of MCP that say whether a tool only
    reads, and whether it may destroy something, are kept as `read_only` and `destructive` in the
    metadata.

    Raises:
        Unusable: If it has no name, or a field that must be text is not.
    """
    if not isinstance(value, dict):
        raise Unusable("a tool must be a JSON object")
    inner = (value.get(key) for key in ("function", "toolSpec"))
    tool: dict[str, Any] = next((entry for entry in inner if isinstance(entry, dict)), value)
    name, text = _text(tool, "name"), _text(tool, "description")
    if not name.strip():
        raise Unusable('a tool without a name: expected "name", as MCP, OpenAI and Anthropic do')
    schemas = (tool[key] for key in _SCHEMAS if isinstance(tool.get(key), dict))
    schema: dict[str, Any] = next(schemas, {})
    if "toolSpec" in value and isinstance(schema.get("json"), dict):
        schema = schema["json"]
    title = _text(tool, "title")
    body = _body(title if title != name else "", _parameters(schema))
    if not is_unicode(name + text + body):
        raise Unusable("has a lone surrogate, half of an escaped character")
    return Document(id=name, title=name, text=text, body=body, metadata=_hints(tool))


def _hints(tool: Mapping[str, Any]) -> dict[str, bool]:
    """Return the annotations of a tool that are true or false; they may be an object's fields.

    Without an annotation that says whether it only reads, a verb of its name does.
    """
    annotations = tool.get("annotations")
    fields = annotations if isinstance(annotations, dict) else getattr(annotations, "__dict__", {})
    found = {
        key: fields[name]
        for key, names in _HINTS.items()
        for name in names
        if isinstance(fields.get(name), bool)
    }
    only_reads = _only_reads(_text(tool, "name"))
    return found if found or only_reads is None else {"read_only": only_reads}


def _only_reads(name: str) -> bool | None:
    """Return whether the verb of a tool's name reads; None for a name without a known verb.

    A reading verb at the start counts first; elsewhere it may be a noun, as in `list_add`.
    """
    words = [word.lower() for word in _WORD.findall(name)]
    if words and _READING.fullmatch(words[0]):
        return True
    if any(map(_ACTING.fullmatch, words)):
        return False
    return True if any(map(_READING.fullmatch, words)) else None


def _body(title: str, lines: Iterator[str]) -> str:
    """Return the lines of a body, up to the length that an index keeps.

    A schema that many tools share must not be expanded in full for each of them: a file of two
    megabytes could exhaust memory.
    """
    parts = [title[:BODY_CHARS]] if title else []
    length = sum(map(len, parts))
    for line in lines:
        if length > BODY_CHARS:
            break
        parts.append(line)
        length += len(line) + 1
    return "\n".join(parts)[:BODY_CHARS]


def own_tools(tools: Iterable[Tool]) -> list[tuple[Document, Tool]]:
    """Return the tools of a program, each with its document; they may be objects of a library.

    Raises:
        InputError: `malformed_tool`, `duplicate_id` or `no_documents`.
    """
    by_id: dict[str, tuple[Document, Tool]] = {}
    listed = (
        (position, tool)
        for position, tool_or_list in enumerate(tools)
        for tool in _declared(tool_or_list) or [tool_or_list]
    )
    for position, tool in listed:
        try:
            document = tool_from(dict(tool) if isinstance(tool, Mapping) else _attributes(tool))
        except Unusable as error:
            message = f"tools[{position}]: {error}; use the format of OpenAI, Anthropic or MCP"
            raise InputError("malformed_tool", message) from None
        if document.id in by_id:
            message = f"tools[{position}]: the name {document.id!r} occurs twice: rename one"
            raise InputError("duplicate_id", message)
        by_id[document.id] = document, tool
    if not by_id:
        raise InputError("no_documents", "there are no tools: pass at least one")
    return list(by_id.values())


def _attributes(tool: object) -> dict[str, object]:
    names = ("name", "title", "description", "annotations", *_SCHEMAS)
    found = {name: getattr(tool, name, None) for name in names}
    parameters = getattr(tool, "args", None)  # of a tool of LangChain
    if isinstance(parameters, dict) and not isinstance(found["parameters"], dict):
        found["parameters"] = {"properties": parameters}
    return found


def _parameters(root: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each parameter: its name, its description, and the values that it may have.

    A schema may refer to itself and so be infinite; only `_PARTS` parts of it are read.
    """
    # The unread parts of each level. They are generated one by one, so that parts beyond the
    # limit cost nothing.
    levels: list[Iterator[tuple[str, bool, Mapping[str, Any]]]] = [iter([("", False, root)])]
    count = 0
    while levels and count < _PARTS:
        following = next(levels[-1], None)
        if following is None:
            levels.pop()
            continue
        path, is_parameter, schema = following
        count += 1
        parts = _parts(root, schema)
        if is_parameter:
            yield _line(path, [schema, *parts])
        if path.count(".") >= _DEPTH:
            continue
        properties = schema.get("properties")
        named = properties.items() if isinstance(properties, dict) else ()
        levels.append(_inner(path, islice(named, _PARTS), parts))


def _inner(
    path: str, named: Iterable[tuple[str, object]], parts: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[str, bool, Mapping[str, Any]]]:
    for name, value in named:
        inner = f"{path}.{name}" if path else name
        yield inner[:BODY_CHARS], True, value if isinstance(value, dict) else {}
    for part in parts:
        yield path, False, part


def _parts(root: Mapping[str, Any], schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the schemas that stand for a schema, or for the items of a list."""
    parts = [schema.get("items")]
    for choice in ("anyOf", "oneOf", "allOf"):
        options = schema.get(choice)
        parts += options[:_PARTS] if isinstance(options, list) else []
    parts.append(named_by(root, schema.get("$ref")))
    return [part for part in parts if isinstance(part, dict)]


def named_by(root: Mapping[str, Any], reference: object) -> object:
    """Return what a reference into a document names, like `#/$defs/Pet`; None if it leads out."""
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    if len(reference) > _REFERENCE_CHARS:  # it would be taken apart each time that it is met
        return None
    target: object = root
    for step in reference[2:].split("/"):
        if not isinstance(target, dict):
            return None
        target = target.get(step.replace("~1", "/").replace("~0", "~"))
    return target


def _line(name: str, schemas: Sequence[Mapping[str, Any]]) -> str:
    descriptions = [
        schema["description"][:BODY_CHARS]
        for schema in schemas
        if isinstance(schema.get("description"), str)
    ]
    values = [
        _value_text(value)
        for schema in schemas
        for value in (
            schema["enum"][:_VALUES]
            if isinstance(schema.get("enum"), list)
            else [schema.get("const")]
        )
        if isinstance(value, str | int | float)
    ]
    line = f"{name}: {' '.join(descriptions)}" if descriptions else name
    return f"{line} ({', '.join(values)})" if values else line


def _value_text(value: str | float) -> str:
    return value[:BODY_CHARS] if isinstance(value, str) else str(value)


def _text(tool: Mapping[str, Any], key: str) -> str:
    value = tool.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Unusable(f"the {key} of a tool must be a string")
    return value
