"""Worker threads that all models of the process share."""

from __future__ import annotations

import contextvars
import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import cache
from itertools import count, takewhile
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, TypeVar, cast

import crossgate._core as _core
from crossgate._support.checks import check_count
from crossgate._support.errors import InputError

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

Item = TypeVar("Item")
Result = TypeVar("Result")

_lock = threading.Lock()
_loading = threading.Lock()
_threads = 0
_workers: ThreadPoolExecutor | None = None


def set_threads(count: int) -> None:
    """Set the number of inputs that run at once, over all models and callers of the process.

    The default is the environment variable `CROSSGATE_THREADS`, or else the number of processors
    that the process may use, by affinity and by the CPU quota of its container.

    Raises:
        InputError: `out_of_range` if `count` is below 1.
    """
    global _threads, _workers
    check_count("threads", count)
    with _lock:
        _threads, _workers = count, None


def loading() -> threading.Lock:
    """Return the lock for loading models, one model at a time.

    All models share one lock, so that a forked child can replace it: another thread of the parent
    may have held it.
    """
    return _loading


def _executor() -> ThreadPoolExecutor:
    global _workers
    with _lock:
        if _workers is None:
            # Imported here: one query of a hook does not need it, and it costs milliseconds.
            from concurrent.futures import ThreadPoolExecutor

            _workers = ThreadPoolExecutor(number_of_threads(), "crossgate")
        return _workers


def _retire(executor: ThreadPoolExecutor) -> None:
    """Let the threads end after their current work; the next caller gets new ones."""
    global _workers
    with _lock:
        if _workers is executor:
            _workers = None
    executor.shutdown(wait=False)


def number_of_threads() -> int:
    """Return the number of inputs that run at once, over all models and callers of the process.

    Raises:
        InputError: `out_of_range` if `CROSSGATE_THREADS` is not a number.
    """
    if _threads:
        return _threads
    setting = os.environ.get("CROSSGATE_THREADS", "")
    if setting:
        if not setting.isdecimal() or int(setting) < 1:
            raise InputError(
                "out_of_range", f"CROSSGATE_THREADS is {setting!r}: it must be a number from 1"
            )
        return int(setting)
    return available_processors()


@cache
def available_processors() -> int:
    """Return the processors of the process, by affinity and by the CPU quota of its container.

    A quota of 1.5 processors counts as 1. The result is kept, since reading it opens files and the
    quota of a container rarely changes.
    """
    return _core.available_processors()


def _after_fork() -> None:
    # Threads do not survive a fork, and another thread may have held the locks.
    global _lock, _loading, _workers
    _lock, _loading, _workers = threading.Lock(), threading.Lock(), None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def run_all(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    progress: Callable[[int], None] | None = None,
) -> list[Result]:
    """Apply a function to every item on the shared threads; results keep the order of the items.

    Args:
        function: The function.
        items: The items.
        progress: Called with the number of items done so far, after each.
    """
    if len(items) == 1 and progress is None:
        return [function(items[0])]
    return _run(function, items, progress, None)


def run_until(
    function: Callable[[Item], Result], items: Sequence[Item], until: float | None
) -> list[Result]:
    """Like `run_all`, with a time limit; return the results of the first items.

    The result ends before the first unfinished item, even if later items are finished. An item in
    progress at the time limit is not waited for.

    Args:
        function: The function.
        items: The items.
        until: When to stop, as a reading of `time.monotonic`; None for never.
    """
    return run_all(function, items) if until is None else _run(function, items, None, until)


def run_prefix(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    until: float | None,
    enough: Callable[[Sequence[Result]], bool],
) -> list[Result]:
    """Like `run_until`, but end early if the results of the first items are enough.

    `enough` is asked after each item in order, so the number of results does not depend on the
    number of threads. As many items run at once as there are threads; results after the end are
    discarded.

    Args:
        function: The function.
        items: The items.
        until: When to stop, as a reading of `time.monotonic`; None for never.
        enough: Whether the results so far are enough.
    """
    results: list[Result] = []
    while len(results) < len(items):
        part = items[len(results) : len(results) + number_of_threads()]
        done = run_until(function, part, until)
        for result in done:
            results.append(result)
            if enough(results):
                return results
        if len(done) < len(part):  # time is up
            break
    return results


def _run(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    progress: Callable[[int], None] | None,
    until: float | None,
) -> list[Result]:
    positions = count()
    stopped = threading.Event()
    outcomes: SimpleQueue[tuple[int, Result | None, BaseException | None]] = SimpleQueue()

    def work() -> None:
        # Each thread takes the next item until none is left or the caller stops waiting.
        while not stopped.is_set() and (position := next(positions)) < len(items):
            try:
                outcomes.put((position, function(items[position]), None))
            except BaseException as error:  # raised in the calling thread
                outcomes.put((position, None, error))

    results: dict[int, Result] = {}
    executor = _executor()
    try:
        # One submission per thread, not per item, leaves few moments for Ctrl-C in between.
        for _ in range(min(number_of_threads(), len(items))):
            _submit(executor, work)
        for done in range(1, len(items) + 1):
            left = None if until is None else max(0.0, until - time.monotonic())
            try:
                position, result, error = outcomes.get(timeout=left)
            except Empty:  # time is up
                break
            if error is not None:
                raise error
            results[position] = cast("Result", result)
            if progress is not None:
                progress(done)
        return [
            results[position] for position in takewhile(results.__contains__, range(len(items)))
        ]
    except KeyboardInterrupt:
        # The interrupt may have come while a thread was being started. Only the queue reaches such
        # a thread, and without the shutdown message the process would wait for it forever.
        _retire(executor)
        raise
    finally:
        stopped.set()


def _submit(executor: ThreadPoolExecutor, work: Callable[[], None]) -> None:
    try:
        executor.submit(work)
    except RuntimeError as error:
        # An interrupt while waiting for a new thread can release the interpreter's lock twice, and
        # the RuntimeError of that hides it. Reported as a failure, it would degrade a result.
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from error
        raise


def run_on_thread(work: Callable[[], Result], name: str) -> Future[Result]:
    """Start work on a new daemon thread, which does not delay the end of the process."""
    # Imported here: stage 1 does not need it, and it costs milliseconds.
    from concurrent.futures import Future

    future: Future[Result] = Future()
    future.set_running_or_notify_cancel()  # makes the future uncancellable
    context = contextvars.copy_context()

    def run() -> None:
        try:
            result = context.run(work)
        except BaseException as error:  # raised by `future.result` in the waiting thread
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name=f"crossgate-{name}", daemon=True).start()
    return future
