"""Measures `crossgate serve` under load with wrk: throughput, latency at 1, 8 and 64 connections.

    python eval/load.py [SECONDS]    # wrk is a package of Debian and of Homebrew

`/v2/rerank` gets the questions of eval/chunks with 20 candidates each, `/route` the prompts of
eval/skills, one after the other; the server and wrk share the machine.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from crossgate import Index, Router

HERE = Path(__file__).parent
CANDIDATES = 20
CONNECTIONS = (1, 8, 64)

# The script of wrk: each request is the next line of a file; at the end it prints JSON.
SCRIPT = """
wrk.method, wrk.headers["Content-Type"] = "POST", "application/json"
local bodies, next = {}, 0
function init(args)
  for line in io.lines(args[1]) do bodies[#bodies + 1] = line end
end
function request()
  next = next % #bodies + 1
  return wrk.format(nil, nil, nil, bodies[next])
end
function done(summary, latency)
  local lost = summary.errors.connect + summary.errors.read + summary.errors.write
  io.write(string.format(
    '{"requests": %d, "seconds": %f, "median": %f, "p99": %f, "refused": %d, "lost": %d}',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3,
    latency:percentile(99) / 1e3, summary.errors.status, lost + summary.errors.timeout))
end
"""


def rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def requests(folder: Path) -> dict[str, Path]:
    """Write the requests of each endpoint, and the index for `/route`."""
    skills = Index.build(rows(HERE / "skills" / "corpus.jsonl"))
    skills.save(folder / "skills.cgx")
    chunks = Router(Index.build(rows(HERE / "chunks" / "corpus.jsonl")), reranker=None)
    found: dict[str, list[dict[str, Any]]] = {"/v2/rerank": [], "/route": []}
    for row in rows(HERE / "chunks" / "queries.jsonl"):
        hits = chunks.route(row["text"], limit=None).hits[:CANDIDATES]
        texts = [hit.document.text for hit in hits]
        found["/v2/rerank"].append({"query": row["text"], "documents": texts})
    for row in rows(HERE / "skills" / "queries.jsonl"):
        found["/route"].append({"query": row["text"]})
    files = {}
    for path, bodies in found.items():
        files[path] = folder / f"{path.replace('/', '')}.jsonl"
        files[path].write_text("".join(json.dumps(body) + "\n" for body in bodies), "utf-8")
    return files


def load(url: str, bodies: Path, connections: int, seconds: int) -> dict[str, float]:
    """Return the measurements of wrk."""
    script = bodies.with_name("ask.lua")
    script.write_text(SCRIPT, encoding="utf-8")
    command = ["wrk", f"-t{min(connections, 2)}", f"-c{connections}", f"-d{seconds}s"]
    command += ["--timeout", "60s", "-s", str(script), url, "--", str(bodies)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    printed = re.search(r"\{.*\}", done.stdout)
    assert printed, done.stdout
    measured: dict[str, float] = json.loads(printed[0])
    return measured


def main() -> None:
    """Start a server, send the requests, and print a table."""
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    with tempfile.TemporaryDirectory() as name:
        files = requests(Path(name))
        command = [f"{Path(sys.executable).parent}/crossgate", "serve", "--json", "--port", "0"]
        command += ["--index", f"{name}/skills.cgx"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603
            assert server.stdout
            said = "".join(iter(server.stdout.readline, "}\n")) + "}"
            url = json.loads(said)["serving"]
            print("| endpoint | connections | requests/s | median | p99 | refused | lost |")
            print("| --- | --- | --- | --- | --- | --- | --- |")
            for path, bodies in files.items():
                for connections in CONNECTIONS:
                    measured = load(url + path, bodies, connections, seconds)
                    rate = measured["requests"] / measured["seconds"]
                    print(
                        f"| `{path}` | {connections} | {rate:.1f} | {measured['median']:,.0f} ms "
                        f"| {measured['p99']:,.0f} ms | {measured['refused']} "
                        f"| {measured['lost']} |",
                        flush=True,
                    )
            server.terminate()


if __name__ == "__main__":
    main()
