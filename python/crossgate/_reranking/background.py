"""A thread with an event loop that runs all remote calls and owns their connections."""

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
    """An event loop on a dedicated thread, with its clients and limits.

    All callers, threads and loops share one warm pool of connections, and synchronous calls work
    inside and outside of a running event loop.
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
        """Run a coroutine on the loop and wait for its result.

        If this raises, for example because of an interrupt, the coroutine is cancelled. Cancelling
        the future of `submit` would not be enough: an interrupt may come before it is returned.

        Args:
            work: The coroutine.
            timeout: Seconds to wait.

        Raises:
            TimeoutError: If it takes longer than `timeout`.
            CancelledError: If the loop is closed before the coroutine ends.
        """
        tasks: list[asyncio.Task[Result] | None] = []

        async def tracked() -> Result:
            if tasks:  # cancelled before it began
                work.close()
                raise asyncio.CancelledError
            tasks.append(asyncio.current_task())
            return await work

        def give_up() -> None:
            tasks.append(None)
            if tasks[0] is not None:
                tasks[0].cancel()

        try:
            return self.submit(tracked()).result(timeout)
        except BaseException:
            with contextlib.suppress(RuntimeError):  # `close` has closed the loop
                self.loop.call_soon_threadsafe(give_up)
            raise

    def client(
        self, key: object, make: Callable[[], tuple[Client, Callable[[], Awaitable[object]]]]
    ) -> Client:
        """Return the client of a key, and create it on first use; call this on the loop only.

        Args:
            key: Identifies the client.
            make: Returns a new client and the function that closes it.
        """
        if key not in self._clients:
            self._clients[key] = make()
        return cast("Client", self._clients[key][0])

    def limit(self, endpoint: str, most: int) -> asyncio.Semaphore:
        """Return the semaphore that all calls to an endpoint share; call this on the loop only.

        The first call for an endpoint sets the number of concurrent requests.
        """
        return self._limits.setdefault(endpoint, asyncio.Semaphore(most))

    def close(self) -> None:
        """Cancel running calls, close all connections and stop the thread."""
        if not self._thread.is_alive():
            return
        # A connection that does not close must not keep the process alive.
        concurrent.futures.wait([self.submit(self._close())], timeout=_CLOSING_SECONDS)
        self.loop.call_soon_threadsafe(self.loop.stop)
        # The same holds for a coroutine that blocks the loop: the thread is a daemon.
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
        # At interpreter exit no new thread can be started to wait for the others.
        with contextlib.suppress(RuntimeError):
            await self.loop.shutdown_default_executor()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
