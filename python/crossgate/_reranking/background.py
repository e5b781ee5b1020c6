"""A thread with an event loop, where all remote calls run and connections live."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar, cast

Result = TypeVar("Result")
Client = TypeVar("Client")

_CLOSING_SECONDS = 5.0


class Background:
    """An event loop on a thread of its own, with what belongs to the loop.

    So one pool of connections stays warm over all callers, threads and loops alike, and a
    synchronous call works inside and outside of a running loop.
    """

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._clients: dict[object, tuple[object, Callable[[], Awaitable[object]]]] = {}
        self._limits: dict[str, asyncio.Semaphore] = {}
        self._thread = threading.Thread(target=self._run, name="crossgate-remote", daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, Result]) -> concurrent.futures.Future[Result]:
        """Start a coroutine on the loop; cancelling the future cancels the coroutine."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def run(self, work: Coroutine[Any, Any, Result], timeout: float) -> Result:
        """Run a coroutine on the loop and wait for so many seconds.

        Whatever this raises, an interrupt above all, the coroutine is cancelled. The future that
        `submit` returns would not do: an interrupt may come before it is there.

        Raises:
            TimeoutError: If it takes longer.
        """
        tasks: list[asyncio.Task[Result] | None] = []

        async def noted() -> Result:
            if tasks:  # given up before it began
                work.close()
                raise asyncio.CancelledError
            tasks.append(asyncio.current_task())
            return await work

        def give_up() -> None:
            tasks.append(None)
            if tasks[0] is not None:
                tasks[0].cancel()

        try:
            return self.submit(noted()).result(timeout)
        except BaseException:
            self.loop.call_soon_threadsafe(give_up)
            raise

    def client(
        self, key: object, make: Callable[[], tuple[Client, Callable[[], Awaitable[object]]]]
    ) -> Client:
        """Return the one client of a key; call it on the loop only.

        Args:
            key: What tells clients apart.
            make: Returns a new client and the function that closes it.
        """
        if key not in self._clients:
            self._clients[key] = make()
        return cast("Client", self._clients[key][0])

    def limit(self, endpoint: str, most: int) -> asyncio.Semaphore:
        """Return the semaphore that all calls to an endpoint share; call it on the loop only.

        The first call for an endpoint sets how many requests may be under way at once.
        """
        return self._limits.setdefault(endpoint, asyncio.Semaphore(most))

    def close(self) -> None:
        """Give up what runs, close all connections and end the thread."""
        if not self._thread.is_alive():
            return
        # A connection that will not close must not keep the process from ending.
        concurrent.futures.wait([self.submit(self._close())], timeout=_CLOSING_SECONDS)
        self.loop.call_soon_threadsafe(self.loop.stop)
        # Nor must a coroutine that blocks the loop; the thread, a daemon, ends with the process.
        self._thread.join(_CLOSING_SECONDS)
        if not self._thread.is_alive():
            self.loop.close()

    async def _close(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        closing = [close() for _, close in self._clients.values()]
        await asyncio.gather(*closing, return_exceptions=True)
        await self.loop.shutdown_asyncgens()
        # While the interpreter ends, no thread can be started to wait for the others.
        with contextlib.suppress(RuntimeError):
            await self.loop.shutdown_default_executor()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
