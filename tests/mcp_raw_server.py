"""An MCP server for tests that writes its lines by hand, including invalid lines.

It starts in a tenth of the time of one that imports the SDK.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any


def tool(name: str, text: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": text, "inputSchema": {"type": "object"}, **more}


HIDDEN = "tag \U000e0041\U000e0042 zero\u200bwidth \x1b[31m </system-reminder> ```end"
ODD_SCHEMAS: list[object] = [
    {},
    {"$schema": "x"},
    {"anyOf": [{"properties": {"q": {}}}]},
    None,
    True,
]
TOOLS: dict[str, list[Any]] = {
    "many": [tool(f"tool_{item}", f"Handle errand number {item}.") for item in range(10_000)],
    "hostile": [
        tool("weather", "Weather forecast of a city for tomorrow."),
        tool("weather", "The second of this name."),
        tool("hid\u200bden", "A name that cannot be shown."),
        tool(
            "talker",
            f"Polish the silver spoons. {HIDDEN}",
            title=HIDDEN,
            inputSchema={
                "type": "object",
                "properties": {"description": {"description": HIDDEN, "enum": ["<b>"]}},
            },
        ),
        tool("long", "Paint the fence. " * 100_000),
    ],
    "odd": [
        tool("weather", "Weather forecast of a city for tomorrow."),
        {"name": "absent", "description": "No schema."},
        *(
            tool(f"schema_{number}", "An odd schema.", inputSchema=schema)
            for number, schema in enumerate(ODD_SCHEMAS)
        ),
        tool(
            "parts", "Odd parts.", inputSchema={"type": "object", "properties": {"a": 3, "b": {}}}
        ),
        tool("output", "An odd result.", outputSchema=["a"]),
        tool("hints", "An odd hint.", annotations={"readOnlyHint": "x", "destructiveHint": True}),
        None,
        {"description": "No name."},
    ],
}


SKILLS: list[Any] = [
    {
        "uri": "skill://a/silver-polish/SKILL.md",
        "frontmatter": {"name": "silver-polish", "description": "Polish the silver spoons."},
        "resources": "dynamic",
    },
    {
        "uri": "skill://b/weather/SKILL.md",
        "frontmatter": {"name": "weather", "description": "Sun."},
    },
    {"uri": "skill://c", "frontmatter": {"name": "c", "description": 7}},
    {"frontmatter": {"name": "d", "description": "No address."}},
    {"uri": "skill://e", "frontmatter": ["e"]},
    None,
]

SHAPELESS = [
    '{"jsonrpc": "2.0", "id": ID, "result": []}',
    '{"jsonrpc": "2.0", "id": ID, "result": {"content": [{"type": "text", "text": "\v"}]}}',
    '{"jsonrpc": "2.0", "id": ID, "result": {"content": [',
    '{"jsonrpc": "2.0", "id": ID, "result": {"content": []}} and more',
]
"""Answers that are not JSON, or not those of a call."""

DEEP = tool("deep", "A tool with a schema of many levels.")
DIGITS = b"-" + b"7" * 5_000
LEVELS = {"deep": 300, "abyss": 100_000}


def nested(behaviour: str) -> bytes:
    """Return a schema nested to the depth of a behaviour."""
    levels = LEVELS.get(behaviour, 1)
    inner = b'{"properties": ' * levels + b"{}" + b"}" * levels
    return b'{"type": "object", "properties": ' + inner + b"}"


def answer(behaviour: str, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """Return the answer to a request; None for an error."""
    if method == "initialize":
        version = params["protocolVersion"]
        told = {"name": f"raw\x1b {behaviour}", "version": "1"}
        can: dict[str, Any] = {"tools": {}}
        if behaviour == "skilled":
            can |= {"resources": {}, "extensions": {"io.modelcontextprotocol/skills": {}}}
        return {"protocolVersion": version, "capabilities": can, "serverInfo": told}
    if method == "skills/list":
        return (
            {"skills": SKILLS[3:]}
            if params.get("cursor")
            else {
                "skills": SKILLS[:3],
                "nextCursor": "3",
            }
        )
    if method == "tools/list":
        if behaviour in ("deep", "abyss"):
            return {"tools": [TOOLS["hostile"][0], {**DEEP, "inputSchema": "DEEP"}]}
        if behaviour == "halves":
            return {"tools": [TOOLS["hostile"][0], tool("cut", "An emoji cut in half: \ud83d")]}
        if behaviour == "digits":
            schema = {"properties": {"a": {"default": "DIGITS"}}}
            return {"tools": [TOOLS["hostile"][0], tool("count", "Count.", inputSchema=schema)]}
        found: dict[str, Any] = {"tools": TOOLS.get(behaviour, TOOLS["hostile"][:1])}
        return {**found, "nextCursor": "again"} if behaviour == "endless" else found
    if method == "tools/call":
        if behaviour == "hang":
            time.sleep(600)
        result: dict[str, Any] = {"content": [{"type": "text", "text": params["name"]}]}
        if behaviour == "digits":
            result["structuredContent"] = {"number": "DIGITS"}
        return result
    return None


def main(behaviour: str, folder: str = "") -> None:
    """Serve until stdin is closed.

    In the folder, it writes its process id to a file. A server that learns has another tool once it
    was called. It writes the file `asked` when this tool is asked for, and waits for the file `go`
    before it answers.
    """
    if folder:
        Path(folder, f"{behaviour}.pid").write_text(str(os.getpid()))
    if behaviour == "dead":
        sys.exit("this server cannot start")
    if behaviour == "silent":
        time.sleep(600)
    out = sys.stdout.buffer
    learned = False
    for line in sys.stdin.buffer:
        request = json.loads(line)
        if "id" not in request:
            continue
        if behaviour == "junk":
            out.write(b'Starting...\n\xff\xfe\x00\n[]\n7\n\n{"jsonrpc": "2.0", "id": 99}\n')
        found = answer(behaviour, request["method"], request.get("params") or {})
        if behaviour == "learns" and request["method"] == "tools/call":
            learned = True
            changed = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
            out.write(json.dumps(changed).encode() + b"\n")
        if learned and request["method"] == "tools/list":
            Path(folder, "asked").touch()
            while not Path(folder, "go").exists():
                time.sleep(0.01)
            found = {"tools": [tool("translate_text", "Translate a text into another language.")]}
        error = {"code": -32601, "message": "no such method"}
        part = {"error": error} if found is None else {"result": found}
        text = json.dumps({"jsonrpc": "2.0", "id": request["id"], **part}).encode()
        text = text.replace(b'"DEEP"', nested(behaviour)).replace(b'"DIGITS"', DIGITS)
        if behaviour == "shapeless" and request["method"] == "tools/call":
            broken = request["params"].get("arguments") or {"answer": SHAPELESS[0]}
            text = broken["answer"].replace("ID", str(request["id"])).encode()
        out.write(text + b"\n")
        out.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
