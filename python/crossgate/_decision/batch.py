"""Many decisions at once, on all cores, with a progress bar."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from crossgate._support.checks import safe_repr
from crossgate._support.errors import InputError

if TYPE_CHECKING:
    from crossgate._values.results import RouteResult

Item = TypeVar("Item")
Progress = bool | Callable[[int, int], None]


def decide_many(
    decide: Callable[[Item], RouteResult], items: Iterable[Item], progress: Progress
) -> list[RouteResult]:
    """Decide each item; results keep the order of the items.

    Args:
        decide: Decides one item. Models release the interpreter's lock while they run, so threads
            use all cores.
        items: The queries.
        progress: Called with the number of decisions made so far and the total; True for a bar on
            stderr if that is a terminal, False for none.

    Raises:
        InputError: For the first bad query, with its position, from 0. Queries that have not
            started are then skipped.
    """
    if isinstance(items, str) or not isinstance(items, Iterable):
        raise InputError("out_of_range", f"queries is {safe_repr(items)}: pass a list")
    given = list(items)
    with _shown(progress, len(given)) as report:
        return _decided(decide, given, report)


def _decided(
    decide: Callable[[Item], RouteResult], items: list[Item], report: Callable[[int], None]
) -> list[RouteResult]:
    # Imported here, since they cost milliseconds that a single decision of a hook does not need.
    from concurrent.futures import ThreadPoolExecutor, as_completed

    from crossgate._runtime.threads import number_of_threads

    pool = ThreadPoolExecutor(number_of_threads(), "crossgate-many")
    try:
        futures = [pool.submit(decide, item) for item in items]
        for done, future in enumerate(as_completed(futures), start=1):
            if future.exception() is not None:
                break
            report(done)
        # Items start in order, so no item before the first failure is cancelled.
        pool.shutdown(cancel_futures=True)
        return [_result(position, future.result) for position, future in enumerate(futures)]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _result(position: int, result: Callable[[], RouteResult]) -> RouteResult:
    try:
        return result()
    except InputError as error:
        raise InputError(error.code, f"query {position}: {error}") from error


@contextmanager
def _shown(progress: Progress, total: int) -> Iterator[Callable[[int], None]]:
    if callable(progress):
        yield lambda done: progress(done, total)
        return
    if not progress or sys.stderr is None or not sys.stderr.isatty():
        yield lambda done: None
        return
    from tqdm import tqdm

    with tqdm(total=total, desc="deciding", unit="", leave=False) as bar:

        def report(done: int) -> None:
            bar.update(done - bar.n)

        yield report
