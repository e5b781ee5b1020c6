"""The MCP server, the proxy and live servers as sources: real processes, the official client."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

import crossgate
from conftest import LIBRARY, build, refused
from crossgate import Document, Index, SourceError
from crossgate._sources.reading import read_sources

mcp = pytest.importorskip("mcp", reason="the extra mcp is not installed")

SCRIPT = "import sys; from crossgate._cli import main; sys.exit(main())"
SERVER = Path(__file__).parent / "mcp_servers.py"
RAW = Path(__file__).parent / "mcp_raw_server.py"
QUERY = "squash the last commits of my git branch"


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", SCRIPT, *arguments]


def handshake(version: str = "2025-11-25") -> list[str]:
    """Return the lines with which a client opens a session."""
    about = {"name": "test", "version": "1"}
    parameters = {"protocolVersion": version, "capabilities": {}, "clientInfo": about}
    opening = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": parameters}
    return [json.dumps(opening), '{"jsonrpc": "2.0", "method": "notifications/initialized"}']


def answers_to(
    lines: Sequence[str], awaited: set[object], *arguments: str, dropped: int = 0
) -> dict[Any, Any]:
    """Send lines to a server until it has answered some ids, and return the answers by id.

    It must report `dropped` messages that it drops.
    """
    with subprocess.Popen(
        command("mcp", *arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        process.stdin.write("\n".join(lines) + "\n")
        process.stdin.flush()
        answers: dict[Any, Any] = {}
        while not awaited <= set(answers):
            answer = json.loads(process.stdout.readline())
            answers[answer.get("id")] = answer
        process.stdin.close()
        assert process.wait(timeout=30) == 0
        assert process.stdout.read() == ""
        assert process.stderr.read().count("dropped a message") == dropped
    return answers


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run crossgate to its end."""
    return subprocess.run(
        command(*arguments),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@asynccontextmanager
async def client(*arguments: str, mode: str = "auto") -> AsyncIterator[Any]:
    line = command("mcp", *arguments)
    server = mcp.StdioServerParameters(command=line[0], args=line[1:], env=dict(os.environ))
    async with mcp.Client(server, mode=mode) as made:
        yield made


def with_client(act: Callable[[Any], Awaitable[None]], *arguments: str, mode: str = "auto") -> None:
    async def session() -> None:
        with anyio.fail_after(60):
            async with client(*arguments, mode=mode) as made:
                await act(made)

    anyio.run(session)


async def found_by(asked: Any, prompt: str, *, limit: int = 8, silent: str = "") -> Any:
    """Return what the proxy finds once every server but a silent one has answered."""
    while True:
        found = await asked.call_tool("find", {"prompt": prompt, "limit": limit})
        waiting = {
            item["server"]
            for item in found.structured_content["unavailable"]
            if "starting" in item["reason"]
        }
        if not waiting - {silent}:
            return found


@pytest.fixture
def skills(tmp_path: Path) -> Path:
    path = tmp_path / "skills.cgx"
    texts = {**LIBRARY, "odd/../id ü": "play a game of chess against the computer"}
    build(texts, embedder="default").save(path)
    return path


def config(folder: Path, **servers: list[str]) -> str:
    values = {
        name: {"command": sys.executable, "args": [str(SERVER), name, *more]}
        for name, more in servers.items()
    }
    path = folder / "servers.json"
    path.write_text(json.dumps({"mcpServers": values}))
    return str(path)


def raw(folder: Path, *behaviours: str) -> str:
    """Write a file of servers that misbehave; each is named after its fault."""
    values = {
        item: {"command": sys.executable, "args": [str(RAW), item, str(folder)]}
        for item in behaviours
    }
    path = folder / "raw.json"
    path.write_text(json.dumps({"mcpServers": values}))
    return str(path)


def is_running(pid_file: Path) -> bool:
    try:
        os.kill(int(pid_file.read_text()), 0)
    except ProcessLookupError:
        return False
    return True


def test_a_client_finds_and_reads_a_skill(skills: Path) -> None:
    async def act(asked: Any) -> None:
        tools = {item.name: item for item in (await asked.list_tools()).tools}
        assert set(tools) == {"find_skill", "find_tool", "rerank"}
        assert all(
            item.annotations.read_only_hint and item.output_schema for item in tools.values()
        )
        found = await asked.call_tool("find_skill", {"prompt": QUERY})
        values = found.structured_content
        assert not found.is_error
        assert [item["id"] for item in values["selected"]] == ["git-history"]
        assert values["reason"]
        assert {"confidence", "degraded", "warnings", "verdict"} < set(values)
        read = await asked.read_resource(values["selected"][0]["uri"])
        assert LIBRARY["git-history"] in read.contents[0].text
        odd = await asked.call_tool("find_skill", {"prompt": "play chess against the computer"})
        (pick,) = odd.structured_content["selected"]
        read = await asked.read_resource(pick["uri"])
        assert "chess" in read.contents[0].text
        nothing = await asked.call_tool("find_skill", {"prompt": "bake a cake"})
        assert nothing.structured_content["selected"] == []
        near = await asked.call_tool("find_tool", {"prompt": QUERY, "limit": 3})
        assert next(item["id"] for item in near.structured_content["nearest"]) == "git-history"
        assert len(near.structured_content["nearest"]) == 3
        unsure = {"prompt": "bake a cake", "min_any_fits": 0.9}
        nothing = await asked.call_tool("find_tool", unsure)
        assert nothing.structured_content["nearest"] == []
        assert nothing.structured_content["shortlist"] == []
        vague = {"prompt": "compress the document pages", "limit": 1}
        few = (await asked.call_tool("find_tool", vague)).structured_content
        assert len(few["shortlist"]) > len(few["nearest"]) == 1
        assert all(item["title"] and 0 < item["relevance"] < 1 for item in few["shortlist"])
        ranked = await asked.call_tool(
            "rerank", {"query": QUERY, "documents": ["bake bread", LIBRARY["git-history"]]}
        )
        assert [item["index"] for item in ranked.structured_content["documents"]] == [1, 0]

    with_client(act, "-i", str(skills), "--tools", str(skills), "--reranker", "none")


# The handshake of the protocol's earlier versions, and the one that came in its place.
@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("proxy", [False, True])
def test_listings_follow_the_protocol(skills: Path, tmp_path: Path, mode: str, proxy: bool) -> None:
    """By the SDK's client, what the MCP Inspector shows: it comes by npm alone."""
    prompt = {"prompt": QUERY}
    calls: dict[str, dict[str, Any]] = {
        "find_skill": prompt,
        "find_tool": prompt,
        "rerank": {"query": QUERY, "documents": ["bake bread", LIBRARY["git-history"]]},
    }
    if proxy:
        calls = {"find": prompt, "call": {"server": "junk", "tool": "weather", "arguments": {}}}

    async def act(asked: Any) -> None:
        assert asked.server_info.name == ("crossgate-proxy" if proxy else "crossgate")
        assert asked.server_info.version == crossgate.__version__
        assert asked.instructions
        assert asked.server_capabilities.tools is not None
        assert (asked.server_capabilities.resources is None) == proxy
        if mode == "legacy":  # later versions have no ping, as the client warns
            with pytest.warns(UserWarning, match="ping"):
                assert await asked.send_ping() is not None
        tools = {item.name: item for item in (await asked.list_tools()).tools}
        assert set(tools) == set(calls)
        for name, arguments in calls.items():
            tool = tools[name]
            Draft202012Validator.check_schema(tool.input_schema)
            assert tool.input_schema["type"] == "object"
            assert tool.description
            assert all(item.get("description") for item in tool.input_schema["properties"].values())
            Draft202012Validator(tool.input_schema).validate(arguments)
            answer = await asked.call_tool(name, arguments)
            assert not answer.is_error, answer.content
            if tool.output_schema is not None:
                Draft202012Validator.check_schema(tool.output_schema)
                Draft202012Validator(tool.output_schema).validate(answer.structured_content)
            if name != "call":  # for clients that read text alone; a result of call is another's
                assert json.loads(answer.content[0].text) == answer.structured_content
            # What a tool is not called with is an error of the tool, which a model reads.
            for wrong in ({}, dict.fromkeys(arguments, 7)):
                assert (await asked.call_tool(name, wrong)).is_error
        if not proxy:
            assert all(item.output_schema for item in tools.values())
            assert (await asked.list_resources()).resources == []
            template, _ = (await asked.list_resource_templates()).resource_templates
            assert template.mime_type == "text/markdown"
            uri = template.uri_template.replace("{id}", "git-history")
            (read,) = (await asked.read_resource(uri)).contents
            assert (read.mime_type, str(read.uri)) == ("text/markdown", uri)
            assert LIBRARY["git-history"] in read.text
        if proxy:
            with pytest.raises(mcp.MCPError, match="unknown tool") as caught:
                await asked.call_tool("no_such_tool", {})
            assert caught.value.code == -32602  # invalid parameters
        else:
            assert (await asked.call_tool("no_such_tool", {})).is_error
        # A cancelled search does not delay another search.
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(asked.call_tool, *next(iter(calls.items())))
            await anyio.sleep(0)
            tasks.cancel_scope.cancel()
        name, arguments = next(iter(calls.items()))
        assert not (await asked.call_tool(name, arguments)).is_error

    arguments = ["-i", str(skills), "--tools", str(skills)]
    if proxy:
        arguments = ["--proxy", raw(tmp_path, "junk")]
    with_client(act, *arguments, mode=mode)


def test_bad_calls_get_an_error_and_the_server_continues(skills: Path, tmp_path: Path) -> None:
    async def act(asked: Any) -> None:
        for name, arguments, expected in (
            ("find_skill", {"prompt": "x" * 70_000}, "query_too_long"),
            ("find_skill", {}, "prompt"),
            ("find_skill", {"prompt": QUERY, "limit": 0}, "limit"),
            ("find_skill", {"prompt": QUERY, "min_confidence": 7}, "min_confidence"),
            ("rerank", {"query": QUERY, "documents": "one"}, "documents"),
            ("find_tool", {"prompt": QUERY}, "index_missing"),
        ):
            found = await asked.call_tool(name, arguments)
            assert found.is_error
            assert expected in found.content[0].text
            assert "Traceback" not in found.content[0].text
        with pytest.raises(mcp.MCPError, match="unknown_document"):
            await asked.read_resource("skill://crossgate/nothing")
        build({"late": "a tool that was indexed later"}, embedder=None).save(tmp_path / "late.cgx")
        found = await asked.call_tool("find_tool", {"prompt": "a tool that was indexed later"})
        assert [item["id"] for item in found.structured_content["nearest"]] == ["late"]
        build({"new": "a tool that was indexed later"}, embedder=None).save(tmp_path / "late.cgx")
        found = await asked.call_tool("find_tool", {"prompt": "a tool that was indexed later"})
        assert [item["id"] for item in found.structured_content["nearest"]] == ["new"]

    late = str(tmp_path / "late.cgx")
    with_client(act, "-i", str(skills), "--tools", late, "--reranker", "none")


def test_skills_are_served_and_read_over_mcp(tmp_path: Path) -> None:
    """FastMCP's client compares each file with its digest, and the front matter with the entry."""
    pytest.importorskip("fastmcp", reason="fastmcp is not installed")
    from fastmcp import Client
    from fastmcp.client.transports import StdioTransport
    from fastmcp.skills import SkillsClientExtension

    library, index = tmp_path / "skills", tmp_path / "skills.cgx"
    skills = {"csv-cleaner": "a/csv-cleaner", "chart": "odd", "Not One": "b", "big": "big"}
    for name, folder in skills.items():
        (library / folder).mkdir(parents=True)
        text = (
            f"---\nname: {name}\ndescription: Work with tables.\nmeta: {{a: [1, x]}}\n---\nBody\n"
        )
        (library / folder / "SKILL.md").write_bytes(text.encode())
    files = {"scripts/run.py": b"print()\r\n", "b.png": b"\x89PNG\xff", ".env": b"secret"}
    (library / "odd/scripts").mkdir()
    for path, data in files.items():
        (library / "odd" / path).write_bytes(data)
    (library / "odd/link").symlink_to("/etc/hostname")
    if sys.platform == "linux":
        Path(os.fsdecode(bytes(library / "odd") + b"/caf\xe9.txt")).touch()  # no URI names it
    for number in range(512):  # one more file than the extension allows
        (library / "big" / f"{number}.txt").touch()
    assert run("index", str(library), "-o", str(index)).returncode == 0

    async def session() -> None:
        line = command("mcp", "-i", str(index))
        transport = StdioTransport(line[0], line[1:], env=dict(os.environ))
        async with Client(transport, extensions=[SkillsClientExtension()]) as asked:
            listed = {item.uri: item for item in await asked.list_skills()}
            uris = {f"skill://crossgate/{name}/SKILL.md" for name in ("csv-cleaner", "chart")}
            assert set(listed) == uris  # a name with a space is not allowed
            for uri, entry in listed.items():
                assert await asked.get_skill(uri) == entry
                await asked.read_skill(uri)
            chart = await asked.read_skill("skill://crossgate/chart/SKILL.md")
            read = dict(chart.files)
            assert read.keys() == {"SKILL.md", "scripts/run.py", "b.png"}
            assert all(data == files[path] for path, data in read.items() if path in files)
            hidden = [".env", "link", "../a/csv-cleaner/SKILL.md", "%2e%2e/b/SKILL.md"]
            for path in (*(f"chart/{path}" for path in hidden), "big/SKILL.md"):
                with pytest.raises(mcp.MCPError):
                    await asked.read_resource(f"skill://crossgate/{path}")
            with pytest.raises(mcp.MCPError, match="unknown_document") as caught:
                await asked.get_skill("skill://crossgate/none/SKILL.md")
            assert caught.value.code == -32602
            for uri in ("skill://crossgate/chart", "skill://crossgate/chart/a/SKILL.md", "chart"):
                with pytest.raises(mcp.MCPError, match="unknown_document"):
                    await asked.get_skill(uri)

    anyio.run(session)
    again = tmp_path / "again.cgx"
    done = run("index", "--mcp", shlex.join(command("mcp", "-i", str(index))), "-o", str(again))
    assert done.returncode == 0, done.stderr
    assert {"csv-cleaner", "chart", "find_skill"} < set(Index.open(again).ids)


def test_a_page_of_skills_ends_in_time_and_the_next_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mcp.types import PaginatedRequestParams

    from crossgate._agents.mcp import served_skills

    for number in range(3):
        folder = tmp_path / f"skill-{number}"
        folder.mkdir()
        text = f"---\nname: skill-{number}\ndescription: Work with tables.\n---\nBody\n"
        (folder / "SKILL.md").write_text(text)
    assert run("index", str(tmp_path), "-o", str(tmp_path / "skills.cgx")).returncode == 0
    index = Index.open(tmp_path / "skills.cgx")
    served = served_skills.ServedSkills(lambda: index)

    def pages() -> list[int]:
        sizes: list[int] = []
        cursor = None
        while not sizes or cursor:
            params = PaginatedRequestParams(cursor=cursor)
            page = anyio.run(served._list, None, params)
            sizes.append(len(page.skills))
            cursor = page.next_cursor
        return sizes

    assert pages() == [3]
    monkeypatch.setattr(served_skills, "_PAGE_SECONDS", -1.0)
    assert pages() == [1, 1, 1]


def test_one_skill_is_found_without_reading_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from crossgate._agents.mcp.served_skills import ServedSkills, _GetParams

    for name in ("chart", "csv"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "SKILL.md").write_text(
            f"---\nname: {name}\ndescription: Work with tables.\n---\n"
        )
    index = Index.build(read_sources([tmp_path], kind="skills").documents, embedder=None)
    read: list[str] = []

    def get(id: str) -> Document | None:
        read.append(id)
        return Index.get(index, id)

    monkeypatch.setattr(index, "get", get)
    skills = ServedSkills(lambda: index)
    found = anyio.run(skills._get, None, _GetParams(uri="skill://crossgate/csv/SKILL.md"))
    assert found.skill["frontmatter"]["name"] == "csv"
    assert read == ["csv"]


def test_skills_of_a_server_are_indexed_by_their_entries(tmp_path: Path) -> None:
    index = tmp_path / "served.cgx"
    done = run(
        "index", "--mcp", shlex.join([sys.executable, str(RAW), "skilled"]), "-o", str(index)
    )
    assert done.returncode == 0, done.stderr
    assert [f"skill {number}" in done.stderr for number in range(1, 7)] == [False] + [True] * 5
    assert "renamed" in done.stderr  # a tool has the name of the second
    opened = Index.open(index)
    assert len(opened) == 3
    place = {"server": "raw\ufffd skilled", "uri": "skill://a/silver-polish/SKILL.md"}
    assert opened["silver-polish"].metadata.keys() == place.keys()

    async def act(asked: Any) -> None:
        found = await asked.call_tool("find_skill", {"prompt": "polish the silver spoons"})
        (pick,) = found.structured_content["selected"]
        assert pick["uri"] == place["uri"]
        assert pick["server"].startswith("raw")

    with_client(act, "-i", str(index), "--reranker", "none")


MISSING = "import sys; sys.modules['mcp'] = None"
EARLIER = "import importlib.metadata as m; m.version = lambda name: '1.30.0'"


@pytest.mark.parametrize("arguments", [["mcp"], ["index", "--mcp", "server", "-o", "tools.cgx"]])
@pytest.mark.parametrize(
    ("state", "said"), [(MISSING, "is not installed"), (EARLIER, "mcp 1.30.0")]
)
def test_a_missing_extra_is_named(
    arguments: list[str], state: str, said: str, tmp_path: Path
) -> None:
    without = f"{state}; {SCRIPT}"
    done = subprocess.run(
        [sys.executable, "-c", without, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=60,
    )
    assert done.returncode == 2
    assert "dependency_missing" in done.stderr
    assert said in done.stderr
    assert "pip install 'crossgate[mcp]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_index_is_reported_at_the_start(tmp_path: Path) -> None:
    done = run("mcp", "-i", str(tmp_path / "none.cgx"))
    assert (done.returncode, done.stdout) == (0, "")
    assert "none.cgx" in done.stderr


@pytest.mark.parametrize("version", ["2024-11-05", "2025-11-25"])
def test_malformed_lines_do_not_end_the_server(skills: Path, version: str) -> None:
    lines = [
        *handshake(version),
        "no json",
        "[1, 2]",
        "\x00\x01",
        '{"jsonrpc": "2.0", "id": 2, "method": "nonsense"}',
        '{"jsonrpc": "2.0", "id": 3, "method": "tools/list"}',
    ]
    answers = answers_to(lines, {3}, "-i", str(skills), dropped=3)
    assert answers[1]["result"]["protocolVersion"] == version
    assert answers[2]["error"]["code"] == -32601  # method not found
    assert answers[3]["result"]["tools"]


@pytest.mark.skipif(os.name == "nt", reason="signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("proxy", [False, True])
def test_a_signal_ends_the_proxy_and_its_servers(
    skills: Path, tmp_path: Path, number: signal.Signals, proxy: bool
) -> None:
    pid_file = tmp_path / "junk.pid"
    arguments = ["--proxy", raw(tmp_path, "junk")] if proxy else ["-i", str(skills)]
    with subprocess.Popen(
        command("mcp", *arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(handshake()[0] + "\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == 1
        process.send_signal(number)
        assert process.wait(timeout=30) == 0
    assert not (pid_file.exists() and is_running(pid_file))


def test_a_search_lists_tools_and_failures_consistently(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from mcp_types import Tool

    from crossgate._agents.mcp.proxy import Proxy

    started, searched = threading.Event(), threading.Event()

    async def act() -> Any:
        servers = dict.fromkeys(("early", "late"), mcp.StdioServerParameters(command="-"))
        proxy = Proxy(servers, embedder="slow", seconds=60)
        early, late = proxy._upstreams.values()
        tool = Tool(name="weather", description="the weather of a city", input_schema={})

        def starts(upstream: Any) -> None:
            upstream.tools, upstream.changes = {tool.name: tool}, upstream.changes + 1
            upstream.settled.set()

        index = proxy._index

        def slow(found: Any, embedder: str | None) -> Any:
            if embedder is not None:
                started.set()
                searched.wait(30)
            return index(found, None)

        monkeypatch.setattr(proxy, "_index", slow)
        starts(early)
        proxy._started -= 1_000  # it does not wait for the late one
        async with proxy._tasks:
            found: list[Any] = []

            async def find() -> None:
                found.append(await proxy._find({"prompt": "the weather in Berlin"}))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(find)
                await anyio.to_thread.run_sync(started.wait, 30)
                starts(late)  # while vectors of the other's tools are made
                searched.set()
        return found[0].structured_content

    answer = anyio.run(act)
    assert [item["server"] for item in answer["tools"]] == ["early"]
    assert [item["server"] for item in answer["unavailable"]] == ["late"]


def test_the_proxy_has_two_tools_and_forwards_calls(tmp_path: Path) -> None:
    value = {"x": [1, 2.5, None, "é\u2028", 2**60], "": {"y": True}}
    pids = [tmp_path / f"{name}.pid" for name in ("a", "silent")]

    async def act(asked: Any) -> None:
        async def find(prompt: str) -> Any:
            return (await asked.call_tool("find", {"prompt": prompt})).structured_content

        assert [item.name for item in (await asked.list_tools()).tools] == ["find", "call"]
        found = (await found_by(asked, "the weather in Berlin", silent="silent")).structured_content
        while found["confidence"] is None:  # by words alone until there are vectors
            found = await find("the weather in Berlin")
        assert 0 < found["confidence"] <= 1
        # Two servers have it: both are named.
        first, second = found["tools"][:2]
        assert {first["server"], second["server"]} == {"a", "b"}
        assert first["name"] == second["name"] == "weather"
        assert len(found["tools"]) == 8
        assert found["tools"][0]["inputSchema"]["required"] == ["city"]
        assert {item["server"] for item in found["unavailable"]} == {"dead", "silent", "absent"}

        async def call(server: str, tool: str, arguments: Any = None) -> Any:
            given = {"server": server, "tool": tool}
            if arguments is not None:
                given["arguments"] = arguments
            return await asked.call_tool("call", given)

        result = await call("b", "echo", {"value": value})
        assert result.structured_content == {"value": value}
        assert result.is_error
        assert result.meta["origin"] == "b"
        assert [item.type for item in result.content] == ["text", "image"]
        assert result.content[0].text == "ü\u2028"

        assert "unknown_server" in (await call("c", "echo")).content[0].text
        assert "server_failed" in (await call("dead", "echo")).content[0].text
        for bad in ({}, {"prompt": 7}, {"prompt": QUERY, "limit": 0}, {"prompt": "x" * 70_000}):
            assert (await asked.call_tool("find", bad)).is_error

        prompt = "translate this text into German"
        before = (await find(prompt))["tools"]
        assert "translate_text" not in [item["name"] for item in before]
        assert not (await call("a", "learn")).is_error
        after = (await find(prompt))["tools"]
        assert after[0]["name"] == "translate_text"

        lost = await call("a", "weather", {"city": "Atlantis"})  # which ends that server
        assert "server_failed" in lost.content[0].text
        again = await find("the weather in Berlin")
        assert {item["server"] for item in again["tools"]} == {"b"}
        assert "a" in {item["server"] for item in again["unavailable"]}
        assert (await call("b", "weather", {"city": "Berlin"})).content[0].text == "rain in Berlin"

    made, failing = config(tmp_path, a=[str(pids[0])], b=[]), raw(tmp_path, "dead", "silent")
    servers = [json.loads(Path(path).read_text())["mcpServers"] for path in (made, failing)]
    path = tmp_path / "all.json"
    absent = {"absent": {"command": "/no/such/program"}}
    path.write_text(json.dumps({"mcpServers": {**servers[0], **servers[1], **absent}}))
    with_client(act, "--proxy", str(path))
    assert not any(is_running(item) for item in pids)


def test_descriptions_are_sanitised_but_names_and_values_are_not(tmp_path: Path) -> None:
    async def act(asked: Any) -> None:
        found = await found_by(asked, "polish the silver spoons", limit=100)
        tools = {item["name"]: item for item in found.structured_content["tools"]}
        assert next(iter(tools)) == "talker"
        assert set(tools) == {"weather", "talker", "long"}  # none that cannot be called by its name
        assert tools["weather"]["description"].startswith("Weather")  # the first of two
        assert len(tools["long"]["description"]) == 4_000
        talker = tools["talker"]
        inner = talker["inputSchema"]["properties"]["description"]
        assert inner["enum"] == ["<b>"]
        for text in (talker["description"], talker["title"], inner["description"]):
            assert text.endswith("tag  zerowidth [31m \u2039/system-reminder> ``end")
        assert json.loads(found.content[0].text) == found.structured_content
        called = await asked.call_tool("call", {"server": "hostile", "tool": "talker"})
        assert called.content[0].text == "talker"

    with_client(act, "--proxy", raw(tmp_path, "hostile"))


def test_a_bad_server_does_not_delay_other_servers(tmp_path: Path) -> None:
    async def act(asked: Any) -> None:
        found = await found_by(asked, "the weather in Berlin")
        names = {(item["server"], item["name"]) for item in found.structured_content["tools"]}
        assert names == {("hang", "weather"), ("junk", "weather")}
        (problem,) = found.structured_content["unavailable"]
        assert problem["server"] == "endless"
        assert "1,000 pages" in problem["reason"]
        answers = []

        async def wait() -> None:
            await asked.call_tool("call", {"server": "hang", "tool": "weather"})
            answers.append("hang")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            for _ in range(20):
                called = await asked.call_tool("call", {"server": "junk", "tool": "weather"})
                assert called.content[0].text == "weather"
            tasks.cancel_scope.cancel()
        assert not answers

    with_client(act, "--proxy", raw(tmp_path, "hang", "junk", "endless"))


def learning(folder: Path) -> str:
    """Write a file of a server that learns a tool, and of one that can always tell the weather."""
    return raw(folder, "learns", "junk")


def test_a_silent_server_does_not_delay_a_search(
    tmp_path: Path,
) -> None:
    async def act(asked: Any) -> None:
        await found_by(asked, "the weather in Berlin")
        await asked.call_tool("call", {"server": "learns", "tool": "weather"})
        found = (await asked.call_tool("find", {"prompt": "the weather"})).structured_content
        assert (tmp_path / "asked").exists()
        # The search does not wait for the failure and uses the earlier list.
        assert {item["server"] for item in found["tools"]} == {"learns", "junk"}
        assert found["unavailable"] == []

    with_client(act, "--proxy", learning(tmp_path))


def test_a_cancelled_search_keeps_changed_tools(tmp_path: Path) -> None:
    from crossgate._agents.mcp.proxy import Proxy
    from crossgate._agents.mcp.upstream import read_servers

    async def act() -> list[str]:
        proxy = Proxy(read_servers(learning(tmp_path)), embedder=None, seconds=60)
        async with proxy._tasks as tasks:
            for upstream in proxy._upstreams.values():
                tasks.start_soon(upstream.run)
            assert not (await proxy._call({"server": "learns", "tool": "weather"})).is_error
            async with anyio.create_task_group() as searches:
                searches.start_soon(proxy._find, {"prompt": "the weather"})
                while not (tmp_path / "asked").exists():
                    await anyio.sleep(0.01)
                searches.cancel_scope.cancel()
            (tmp_path / "go").touch()
            found = await proxy._find({"prompt": "translate this text into German"})
            await proxy._stop()
        return [item["name"] for item in found.structured_content["tools"]]

    assert anyio.run(act)[0] == "translate_text"


def test_ten_thousand_tools_are_searchable_before_their_vectors(tmp_path: Path) -> None:
    async def act(asked: Any) -> None:
        found = await found_by(asked, "errand number 777", limit=3)
        assert found.structured_content["tools"][0]["name"] == "tool_777"
        assert found.structured_content["unavailable"] == []
        called = await asked.call_tool("call", {"server": "many", "tool": "tool_9999"})
        assert called.content[0].text == "tool_9999"

    with_client(act, "--proxy", raw(tmp_path, "many"))


def test_deep_and_broken_text_of_one_tool_does_not_hide_the_others(tmp_path: Path) -> None:
    async def act(asked: Any) -> None:
        found = await found_by(asked, "the weather in Berlin")
        assert found.structured_content["unavailable"] == []
        tools = {item["server"]: item for item in found.structured_content["tools"]}
        assert set(tools) == {"deep", "halves"}
        called = await asked.call_tool("call", {"server": "deep", "tool": "weather"})
        assert called.content[0].text == "weather"

    with_client(act, "--proxy", raw(tmp_path, "deep", "halves"))


def test_a_long_number_in_a_list_or_result_becomes_a_text(tmp_path: Path) -> None:
    import mcp_raw_server

    async def act(asked: Any) -> None:
        digits = mcp_raw_server.DIGITS.decode()
        found = await found_by(asked, "count")
        assert found.structured_content["unavailable"] == []
        tools = {item["name"]: item for item in found.structured_content["tools"]}
        assert tools["count"]["inputSchema"]["properties"]["a"]["default"] == digits
        called = await asked.call_tool("call", {"server": "digits", "tool": "weather"})
        assert called.structured_content == {"number": digits}

    with_client(act, "--proxy", raw(tmp_path, "digits"))


def test_a_call_with_an_invalid_result_fails_at_once(tmp_path: Path) -> None:
    import mcp_raw_server

    async def act(asked: Any) -> None:
        called = {"server": "shapeless", "tool": "weather"}
        for answer in mcp_raw_server.SHAPELESS:
            with pytest.raises(mcp.MCPError, match="not valid"):
                await asked.call_tool("call", {**called, "arguments": {"answer": answer}})
        for start in ('{"id": ID', '{"jsonrpc": "1.0", "id": ID', '{"jsonrpc": "2.0", "id": ID.0'):
            answer = start + ', "result": {"content": []}}'
            result = await asked.call_tool("call", {**called, "arguments": {"answer": answer}})
            assert not result.is_error
        assert (await asked.list_tools()).tools

    with_client(act, "--proxy", raw(tmp_path, "shapeless"))


def test_an_odd_tool_does_not_hide_the_others(tmp_path: Path) -> None:
    names = {"weather", "absent", *(f"schema_{at}" for at in range(5)), "parts", "output", "hints"}

    async def act(asked: Any) -> None:
        found = await found_by(asked, "the weather in Berlin", limit=100)
        assert found.structured_content["unavailable"] == []
        tools = {item["name"]: item for item in found.structured_content["tools"]}
        assert set(tools) == names
        assert all(item["inputSchema"]["type"] == "object" for item in tools.values())
        assert tools["schema_2"]["inputSchema"]["anyOf"] == [{"properties": {"q": {}}}]
        assert tools["parts"]["inputSchema"]["properties"] == {"b": {}}
        assert tools["hints"]["annotations"] == {"destructiveHint": True}

    with_client(act, "--proxy", raw(tmp_path, "odd"))
    output = tmp_path / "tools.cgx"
    line = shlex.join([sys.executable, str(RAW), "odd"])
    done = run("index", "--mcp", line, "--embedder", "none", "-o", str(output))
    assert done.returncode == 0, done.stderr
    assert set(Index.open(output).ids) == names
    assert Index.open(output)["hints"].metadata == {"destructive": True}
    assert "tool 11 is left out" in done.stderr
    assert "the tool 'absent' has an invalid inputSchema, which is not used" in done.stderr


def test_an_answer_too_deep_to_repair_fails_at_once(tmp_path: Path) -> None:
    async def act(asked: Any) -> None:
        found = await found_by(asked, "the weather in Berlin")
        (problem,) = found.structured_content["unavailable"]
        assert problem["server"] == "abyss"
        assert "nested too deeply" in problem["reason"]

    with_client(act, "--proxy", raw(tmp_path, "abyss", "junk"))


@pytest.mark.parametrize("proxy", [False, True])
def test_a_request_that_cannot_be_parsed_gets_an_error_with_its_id(
    skills: Path, tmp_path: Path, proxy: bool
) -> None:
    tool = "find" if proxy else "find_skill"
    call = '{"jsonrpc": "2.0", "id": %d, "method": "tools/call", "params": {"name": "%s", %s}}'
    prompts = {
        6: '"half \\ud83d of a pair"',
        7: "[" * 300 + "]" * 300,
        9: "1" * 5_000,
        10: "-" + "1" * 5_000,
        11: "[" * 100_000 + "]" * 100_000,
    }
    deep = '{"a": ' * 100_000 + "1" + "}" * 100_000
    # Some clients write the id last; an id of the arguments is not the id of the request.
    last = '{"method": "tools/call", "params": {"id": 99, "a": %s}, "jsonrpc": "2.0", "id": %s}'
    lines = [
        *handshake(),
        '{"jsonrpc": "2.0", "id": "a\\ud800", "method": "tools/list"}',
        *(
            call % (id, tool, f'"arguments": {{"prompt": {prompt}}}')
            for id, prompt in prompts.items()
        ),
        last % (deep, -12),
        '{"jsonrpc": "2.0", "id": 13, "method": ["tools/list"]}',
        *(last % (inner, id) for inner in ("1", deep) for id in (r'"\x"', "1" * 5_000)),
        last % (deep, "[1]"),
        deep,
        "no JSON",
        '["a list"]',
        '[{"jsonrpc": "2.0", "id": 20, "method": "ping"}, {"id": 21, "method": "ping"}]',
        '\ufeff{"jsonrpc": "2.0", "id": 22, "method": "ping"}',
        '{"jsonrpc": "2.0", "id": 23, "method": "ping"} and more',
        '{"jsonrpc": "2.0", "id": 8, "method": "tools/list"}',
    ]
    start = ["--proxy", raw(tmp_path, "junk")] if proxy else ["-i", str(skills)]
    broken = (20, 21, 22, 23)
    answers = answers_to(lines, {8, -12, 13, *broken, *prompts}, *start, dropped=8)
    for id in (*prompts, *broken, -12, 13, "a?"):
        assert answers[id]["error"]["message"].startswith("invalid_text")
    assert 99 not in answers
    assert "tools" in answers[8]["result"]


def test_announced_tools_are_embedded_one_list_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    from mcp_types import Tool

    from crossgate._agents.mcp.proxy import Proxy

    running: list[int] = []
    most: list[int] = []
    embedded: list[list[str]] = []

    async def act() -> Any:
        servers = {"busy": mcp.StdioServerParameters(command="-")}
        proxy = Proxy(servers, embedder="slow", seconds=60)
        (upstream,) = proxy._upstreams.values()
        upstream.settled.set()
        index = proxy._index

        def slow(found: Any, embedder: str | None) -> Any:
            if embedder is not None:
                running.append(1)
                most.append(len(running))
                time.sleep(0.3)
                embedded.append([tool.name for _, tool in found.values()])
                running.pop()
            return index(found, None)

        monkeypatch.setattr(proxy, "_index", slow)
        monkeypatch.setattr("crossgate._agents.mcp.proxy._PATIENCE_SECONDS", 0.01)
        async with proxy._tasks as tasks:
            for number in range(8):
                tool = Tool(name=f"tool_{number}", description="the weather", input_schema={})
                upstream.tools = {**upstream.tools, tool.name: tool}
                upstream.changes += 1
                await proxy._find({"prompt": "the weather in Berlin"})
            while proxy._embedding:
                await anyio.sleep(0.01)
            assert proxy._vectors is not None
            assert len(proxy._vectors) == 8
            tasks.cancel_scope.cancel()

    anyio.run(act)
    assert max(most) == 1
    assert len(embedded) < 8
    assert embedded[-1] == [f"tool_{number}" for number in range(8)]


def test_an_equal_list_of_tools_is_not_a_change(tmp_path: Path) -> None:
    from crossgate._agents.mcp.upstream import Upstream, read_servers

    async def act() -> None:
        ((name, target),) = read_servers(raw(tmp_path, "junk")).items()
        upstream = Upstream(name, target, 30)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(upstream.run)
            await upstream.settled.wait()
            assert upstream.changes == 1
            for _ in range(3):
                upstream._stale = True
                await upstream.refresh()
            assert upstream.changes == 1
            upstream.stop()

    anyio.run(act)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{", "malformed_servers"),
        ("[]", "malformed_servers"),
        ('{"mcpServers": {}}', "malformed_servers"),
        ('{"mcpServers": {"a": {"url": "http://localhost"}}}', "malformed_servers"),
        ('{"mcpServers": {"a": {"command": "x", "args": "y"}}}', "malformed_servers"),
        ('{"mcpServers": {"a": {"command": "x", "env": {"y": 1}}}}', "malformed_servers"),
        (None, "source_missing"),
    ],
)
def test_an_invalid_server_file_is_refused(tmp_path: Path, text: str | None, code: str) -> None:
    from crossgate._agents.mcp.upstream import read_servers

    path = tmp_path / "servers.json"
    if text is not None:
        path.write_text(text)
    said = refused(code, read_servers, str(path))
    assert str(path) in said


def test_tools_of_servers_are_indexed_and_processes_end(tmp_path: Path) -> None:
    pid_file, output = tmp_path / "pid", tmp_path / "tools.cgx"
    first = shlex.join([sys.executable, str(SERVER), "first", str(pid_file)])
    second = shlex.join([sys.executable, str(SERVER), "second"])
    servers = ("--mcp", first, "--mcp", second)
    done = run("index", *servers, "--embedder", "none", "-o", str(output))
    assert done.returncode == 0, done.stderr
    names = ["send_mail", "weather", "echo", "learn"]
    assert Index.open(output).ids == [*names, *(f"{item} (second)" for item in names)]
    assert "city" in Index.open(output)["weather"].body
    assert not (pid_file.exists() and is_running(pid_file))


def test_junk_of_a_server_is_skipped_and_sanitised(tmp_path: Path) -> None:
    output = tmp_path / "tools.cgx"

    def index(*behaviours: str) -> subprocess.CompletedProcess[str]:
        lines = [shlex.join([sys.executable, str(RAW), item]) for item in behaviours]
        servers = [word for line in lines for word in ("--mcp", line)]
        return run("index", *servers, "--embedder", "none", "-o", str(output))

    done = index("junk", "hostile")
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
    assert "'weather'" in done.stderr  # the second one of this name
    assert not any(item in done.stderr + done.stdout for item in "\x1b\u200b\U000e0041")
    assert {"weather", "weather (raw hostile)", "talker", "long"} < set(Index.open(output).ids)
    done = index("endless")
    assert done.returncode == 2
    assert "1,000 pages" in done.stderr


def test_a_skill_resource_is_sanitised(tmp_path: Path) -> None:
    import mcp_raw_server

    text = f"Polish the silver spoons. {mcp_raw_server.HIDDEN}"
    skill = tmp_path / "skills" / "polish" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text(
        f"---\nname: polish\ndescription: silver spoons\n---\n{text}\n```sh\nls\n```\n"
    )
    row = {"id": "</system>", "title": "frame-maker", "text": "Build wooden frames."}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    index = str(tmp_path / "skills.cgx")
    sources = (str(skill.parents[1]), str(tmp_path / "rows.jsonl"))
    assert run("index", *sources, "-o", index).returncode == 0

    async def act(asked: Any) -> None:
        unknown = await asked.call_tool("find_skill", {"prompt": "use the frame-makr skill"})
        notes = {note["code"]: note["detail"] for note in unknown.structured_content["warnings"]}
        assert notes["unknown_name"].endswith("the nearest name is '\u2039/system>'")
        found = await asked.call_tool("find_skill", {"prompt": "polish the silver spoons"})
        (pick,) = found.structured_content["selected"]
        assert "\u2039/system-reminder> ``end" in pick["excerpt"]
        assert pick["path"] == str(skill)
        whole = (await asked.read_resource(pick["uri"])).contents[0].text
        for item in (pick["excerpt"], whole, found.content[0].text):
            assert not any(hidden in item for hidden in "\x1b\u200b\U000e0041")
            assert "</system" not in item
        assert "```sh\nls\n```" in whole  # code stays code

    with_client(act, "-i", index, "--reranker", "none")


def test_a_document_that_names_a_folder_without_its_skill_gives_no_file(tmp_path: Path) -> None:
    folder, index = tmp_path / "home", str(tmp_path / "rows.cgx")
    folder.mkdir()
    (folder / "key").write_text("secret")
    row: dict[str, Any] = {"id": "pdf", "title": "pdf", "text": "Merge PDF files"}
    row["metadata"] = {"root": str(folder), "path": "SKILL.md"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    assert run("index", str(tmp_path / "rows.jsonl"), "-o", index).returncode == 0

    async def act(asked: Any) -> None:
        with pytest.raises(mcp.MCPError):
            await asked.read_resource("skill://crossgate/pdf/key")

    with_client(act, "-i", index, "--reranker", "none")


def test_a_failing_server_is_named(tmp_path: Path) -> None:
    from crossgate._agents.mcp.listing import list_served

    def started(behaviour: str) -> str:
        return shlex.join([sys.executable, str(RAW), behaviour, str(tmp_path)])

    for line, seconds, reason in (
        (started("silent"), 2, "did not answer within 2 s"),
        (started("dead"), 60, "failed"),
        ("/no/such/program --really", 60, "failed"),
    ):
        with pytest.raises(SourceError, match=reason) as caught:
            list_served(line, seconds=seconds)
        assert caught.value.code == "server_failed"
        assert line.split()[0] in str(caught.value)
    pid_file = tmp_path / "silent.pid"
    assert not (pid_file.exists() and is_running(pid_file))
