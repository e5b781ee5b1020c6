"""Routes from many threads and tasks while the remote rerankers fail, and counts faults.

`python tests/soak.py` makes 20,000 calls in two to three minutes, and prints the report.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import random
import subprocess
import sys
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from conftest import LIBRARY, WordEmbedder, build
from crossgate import Profile, Router, RouteResult
from crossgate._decision import cascade
from crossgate.rerankers import (
    CircuitBreaker,
    CohereReranker,
    Deadline,
    GuardedReranker,
    LatencyEstimate,
    SemanticBM25,
    VoyageReranker,
    passages_of,
    shut_down,
)
from providers_server import KEY

BUDGETS = (None, -1.0, 40.0, 120.0, 250.0, 500.0)
CODES = {"api_error", "budget", "circuit_breaker", "partial_scores"}
COOLDOWN = 0.25
ALLOWED_MS = 50.0


@dataclass(kw_only=True)
class Report:
    """The results of a soak.

    Attributes:
        calls: Calls that returned.
        cancelled: Calls that were cancelled on purpose.
        wrong: Calls that raised or returned a malformed result, each with the reason.
        providers: How many calls each reranker answered.
        codes: How many calls were degraded by each code.
        late: Calls that exceeded it by more than 50 ms plus the delay of the scheduler meanwhile.
        breakers: The breakers, with their changes of state.
        left: Number of objects left at the end that did not exist at the start, by kind.
        seconds: Duration in seconds.
    """

    calls: int = 0
    cancelled: int = 0
    wrong: list[str] = field(default_factory=list)
    providers: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    late: int = 0
    breakers: list[CircuitBreaker] = field(default_factory=list, repr=False)
    left: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0


class Noise:
    """Samples how late a sleeper wakes up, on a thread and on two event loops."""

    def __init__(self) -> None:
        self.samples: list[list[tuple[float, float]]] = []
        self._stopped = False

    def on_a_thread(self) -> None:
        """Sample until stopped."""
        samples = self._series()
        while not self._stopped:
            start = time.monotonic()
            time.sleep(0.005)
            samples.append((time.monotonic(), (time.monotonic() - start - 0.005) * 1000))

    async def on_a_loop(self) -> None:
        """Sample until stopped."""
        samples = self._series()
        while not self._stopped:
            start = time.monotonic()
            await asyncio.sleep(0.005)
            samples.append((time.monotonic(), (time.monotonic() - start - 0.005) * 1000))

    def stop(self) -> None:
        """End all sampling."""
        self._stopped = True

    def between(self, start: float, end: float) -> float:
        """Return the milliseconds by which the sleepers were late in a span, added up at worst."""
        most = 0.0
        for samples in self.samples:
            first = bisect_left(samples, (start, 0.0))
            last = bisect_left(samples, (end + 0.01, 0.0)) + 1
            most = max(most, sum(late for _, late in samples[first:last] if late > 1))
        return most

    def _series(self) -> list[tuple[float, float]]:
        series: list[tuple[float, float]] = []
        self.samples.append(series)
        return series


def soak(
    *,
    calls: int = 20_000,
    threads: int = 32,
    tasks: int = 200,
    faults: float = 0.3,
    pause: float = 1.5,
) -> Report:
    """Run a number of calls on threads and tasks, and report.

    Args:
        calls: How many calls in all.
        threads: How many threads call `route`.
        tasks: How many tasks call `aroute`, on one event loop.
        faults: The share of requests that the server spoils.
        pause: Mean seconds between two calls of one caller, so that there is a processor for each.
    """
    process = psutil.Process()
    report = Report()
    with _server(faults) as url, _complaints_of_asyncio(report.wrong):
        rerankers = _rerankers(url)
        report.breakers = [reranker.breaker for reranker in rerankers]
        routers = [_router(reranker) for reranker in rerankers]
        for reranker in rerankers:  # imports and first connections are not measured
            with contextlib.suppress(Exception):
                reranker.score("warm up", passages_of(["a", "b"]))
        asyncio.run(routers[0].aroute("warm up"))
        shut_down()
        gc.collect()
        before = {"descriptors": process.num_fds(), "threads": threading.active_count()}
        numbers = iter(range(calls))
        lock = threading.Lock()
        spans: list[tuple[float, float, float]] = []
        middle: list[int] = []

        def next_call() -> random.Random | None:
            with lock:
                number = next(numbers, None)
            if number == calls // 2:
                gc.collect()
                middle.append(process.memory_info().rss)
            return None if number is None else random.Random(number)

        def note(router: Router, budget: float | None, start: float, result: RouteResult) -> None:
            end = time.monotonic()
            wrong = _malformed(result)
            with lock:
                report.calls += 1
                report.wrong += wrong
                report.codes.update({note.code for note in result.degraded})
                report.providers[result.hits[0].provider] += 1
                if budget is not None and budget > 0:
                    spans.append((start, end, budget))

        def thread() -> None:
            while (draw := next_call()) is not None:
                time.sleep(draw.uniform(0, 2 * pause))
                router, budget = draw.choice(routers), draw.choice(BUDGETS)
                start = time.monotonic()
                try:
                    note(router, budget, start, router.route(_query(draw), budget_ms=budget))
                except Exception as error:
                    report.wrong.append(repr(error))

        async def task() -> None:
            while (draw := next_call()) is not None:
                await asyncio.sleep(draw.uniform(0, 2 * pause))
                router, budget = draw.choice(routers), draw.choice(BUDGETS)
                patience = draw.uniform(0.001, 0.05) if draw.random() < 0.05 else None
                start = time.monotonic()
                try:
                    async with asyncio.timeout(patience):
                        result = await router.aroute(_query(draw), budget_ms=budget)
                except TimeoutError:
                    report.cancelled += 1
                except Exception as error:
                    report.wrong.append(repr(error))
                else:
                    note(router, budget, start, result)

        async def all_tasks() -> None:
            sampling = asyncio.create_task(noise.on_a_loop())
            await asyncio.gather(*(task() for _ in range(tasks)))
            noise.stop()
            await sampling

        noise = Noise()
        sampler = threading.Thread(target=noise.on_a_thread)
        workers = [threading.Thread(target=thread) for _ in range(threads)]
        start = time.monotonic()
        sampler.start()
        for worker in workers:
            worker.start()
        asyncio.run(all_tasks())
        for worker in workers:
            worker.join()
        sampler.join()
        report.seconds = time.monotonic() - start
        report.late = sum(
            (end - begun) * 1000 - budget > ALLOWED_MS + noise.between(begun, end)
            for begun, end, budget in spans
        )
        time.sleep(0.1)  # for the samplers and the last cancelled tasks
        report.left["trials"] = sum(breaker._trials_out for breaker in report.breakers)
        _until_closed(rerankers)
        shut_down()
        spans.clear()
        noise.samples.clear()
        gc.collect()
        report.left["descriptors"] = process.num_fds() - before["descriptors"]
        report.left["threads"] = threading.active_count() - before["threads"]
        report.left["megabytes"] = (process.memory_info().rss - middle[0]) / 2**20
    return report


@contextlib.contextmanager
def _complaints_of_asyncio(found: list[str]) -> Iterator[None]:
    """Record what asyncio logs: tasks that were not awaited, errors that were not retrieved."""
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: found.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("asyncio")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


@contextlib.contextmanager
def _server(faults: float) -> Iterator[str]:
    script = Path(__file__).with_name("providers_server.py")
    command = [sys.executable, str(script), "--faults", str(faults)]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.communicate()  # it ends with its input


def _rerankers(url: str) -> list[GuardedReranker]:
    options: dict[str, Any] = {"api_key": KEY, "timeout": 1.0}
    return [
        GuardedReranker(
            kind(base_url=base, **options),
            breaker=CircuitBreaker(cooldown=COOLDOWN),
            latency=LatencyEstimate(ms_per_pair=5.0, absolute_floor_ms=20.0),
        )
        for kind, base in ((VoyageReranker, f"{url}/voyage/v1"), (CohereReranker, url))
    ]


def _router(reranker: GuardedReranker) -> Router:
    index = build(embedder=WordEmbedder())
    return Router(index, reranker=[reranker, SemanticBM25()], profile=Profile())


def _query(draw: random.Random) -> str:
    return " ".join(draw.sample(" ".join(LIBRARY.values()).split(), 4))


def _malformed(result: RouteResult) -> list[str]:
    """Return the faults of a result."""
    wrong = []
    if sorted(hit.id for hit in result.hits) != sorted(LIBRARY):
        wrong.append(f"hits {[hit.id for hit in result.hits]}")
    if len(result.selected) != 2:
        wrong.append(f"selected {result.ids}")
    if cascade.replay(result.trace)["decision"] != result.trace["decision"]:
        wrong.append("does not replay")
    providers = {hit.provider for hit in result.hits if hit.rerank_score is not None}
    if len(providers) > 1 or (result.stage == 2) != bool(providers):
        wrong.append(f"stage {result.stage} by {providers}")
    codes = [note.code for note in result.degraded]
    if not set(codes) <= CODES:
        wrong.append(f"degraded by {codes}")
    if bool(codes) == (providers <= {"voyage", "cohere"} and bool(providers)):
        wrong.append(f"{providers} after {codes}")
    return wrong


def _until_closed(rerankers: Sequence[GuardedReranker]) -> None:
    """Call until each breaker closes; a lost slot of a trial call would keep it half open."""
    for reranker in rerankers:
        for _ in range(500):
            if reranker.breaker.state == "closed":
                break
            time.sleep(COOLDOWN / 10)
            with contextlib.suppress(Exception):
                reranker.score("query", passages_of(["a", "b"]), deadline=Deadline(500))


if __name__ == "__main__":
    report = soak()
    print(report)  # noqa: T201
    sys.exit(1 if report.wrong or report.late else 0)
