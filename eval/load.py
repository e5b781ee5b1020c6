"""Measures `crossgate serve` under load with wrk: throughput, latency at 1, 8 and 64 connections.

    python eval/load.py [SECONDS]    # wrk and nginx are packages of Debian and of Homebrew
    python eval/load.py [SECONDS] --replicas 1 2 4    # servers of one thread each behind nginx

`/v2/rerank` gets the questions of eval/chunks with 20 candidates each, `/route` the prompts of
eval/skills, one after the other; the servers and wrk share the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
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


# The load balancer. A server on a loopback address without a key refuses foreign names of its host.
NGINX = """
daemon off; pid {folder}/nginx.pid; error_log stderr error; worker_processes 1;
events {{ worker_connections 1024; }}
http {{
  access_log off; client_max_body_size 8m; client_body_buffer_size 1m;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  upstream crossgate {{ least_conn; {servers} keepalive 64; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://crossgate; proxy_http_version 1.1;
      proxy_set_header Connection ""; proxy_set_header Host 127.0.0.1;
    }}
  }}
}}
"""


@contextmanager
def serving(index: Path, threads: int | None) -> Iterator[str]:
    """Start a server with this many threads, or as many as there are cores, and yield its URL."""
    command = [f"{Path(sys.executable).parent}/crossgate", "serve", "--json", "--port", "0"]
    command += ["--index", str(index)]
    own = {} if threads is None else {"CROSSGATE_THREADS": str(threads)}
    with subprocess.Popen(  # noqa: S603
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, **own}
    ) as server:
        assert server.stdout
        said = "".join(iter(server.stdout.readline, "}\n")) + "}"
        try:
            yield json.loads(said)["serving"]
        finally:
            server.terminate()


@contextmanager
def balanced(folder: Path, urls: Sequence[str]) -> Iterator[str]:
    """Start nginx in front of servers, and yield its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    servers = "".join(f"server {url.removeprefix('http://').rstrip('/')}; " for url in urls)
    settings = folder / "nginx.conf"
    settings.write_text(NGINX.format(folder=folder, servers=servers, port=port), encoding="utf-8")
    with subprocess.Popen(["nginx", "-c", str(settings)]) as nginx:  # noqa: S603, S607
        try:
            until = time.monotonic() + 10
            while time.monotonic() < until:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except ConnectionRefusedError:
                    time.sleep(0.05)
            yield f"http://127.0.0.1:{port}"
        finally:
            nginx.terminate()


def show(label: str, url: str, files: dict[str, Path], seconds: int) -> None:
    """Measure every endpoint and print a row for each number of connections."""
    for path, bodies in files.items():
        for connections in CONNECTIONS:
            measured = load(url + path, bodies, connections, seconds)
            rate = measured["requests"] / measured["seconds"]
            print(
                f"| {label} | `{path}` | {connections} | {rate:.1f} | {measured['median']:,.0f} ms "
                f"| {measured['p99']:,.0f} ms | {measured['refused']} | {measured['lost']} |",
                flush=True,
            )


def main() -> None:
    """Start one server, or several behind a load balancer, send the requests, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seconds", nargs="?", type=int, default=20)
    parser.add_argument("--replicas", nargs="+", type=int, default=[], metavar="N")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = requests(folder)
        index = folder / "skills.cgx"
        print("| servers | endpoint | connections | requests/s | median | p99 | refused | lost |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- |")
        if not options.replicas:
            with serving(index, None) as url:
                show("1, all threads", url, files, options.seconds)
        for count in options.replicas:
            with ExitStack() as stack:
                urls = [stack.enter_context(serving(index, 1)) for _ in range(count)]
                url = stack.enter_context(balanced(folder, urls))
                show(f"{count} behind nginx", url, files, options.seconds)


if __name__ == "__main__":
    main()
