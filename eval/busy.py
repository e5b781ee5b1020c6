"""Measures reranked routes alone and beside two busy loops, with and without a budget.

    python eval/busy.py [ROUTES]    # a minute for 60

The prompts are those of eval/skills that the default profile reranks; the process is warm, and the
busy loops are processes of the same priority. A call keeps its budget if it returns within it and
50 ms.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from crossgate import Index, Router

HERE = Path(__file__).parent
BUDGET_MS, LATE_MS = 150, 50


@contextmanager
def loops(count: int) -> Iterator[None]:
    """Run busy loops in other processes."""
    command = [sys.executable, "-S", "-c", "while True: pass"]
    started = [subprocess.Popen(command) for _ in range(count)]  # noqa: S603
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def prompts(router: Router, count: int) -> list[str]:
    """Return prompts that the gate leaves to stage 2."""
    lines = (HERE / "skills" / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    texts = (json.loads(line)["text"] for line in lines)
    found: list[str] = []
    for text in texts:
        if len(found) == count:
            break
        if router.route(text).stage == 2:
            found.append(text)
    return found


def main() -> None:
    """Print a table."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    lines = (HERE / "skills" / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    router = Router(Index.build([json.loads(line) for line in lines]))
    router.warm_up()
    texts = prompts(router, count)
    print("| busy loops | budget | p50, ms | p95, ms | budget kept | read in part |")
    print("| --- | --- | --- | --- | --- | --- |")
    for busy in (0, 2):
        for budget in (None, BUDGET_MS):
            with loops(busy):
                times, partly = [], 0
                for text in texts:
                    start = time.perf_counter()
                    result = router.route(text, budget_ms=budget)
                    times.append(1e3 * (time.perf_counter() - start))
                    partly += any(note.code == "budget" for note in result.degraded)
            half, most = np.percentile(times, [50, 95])
            kept = "-" if budget is None else sum(each <= budget + LATE_MS for each in times)
            print(f"| {busy} | {budget or 'none'} | {half:.0f} | {most:.0f} | {kept} | {partly} |")


if __name__ == "__main__":
    main()
