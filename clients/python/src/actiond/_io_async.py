"""Connections, threads and pauses by asyncio. _io_sync has the same names without it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import os
import ssl
import threading
from typing import Any, Awaitable, Callable, Optional, TypeVar

from ._address import Address
from ._errors import Broken, Unreachable

T = TypeVar("T")
_HIGH = 256 << 10  # bytes that wait to be read before the sender is held up

sleep = asyncio.sleep


class Stream(asyncio.Protocol):
    """One connection. One task reads or writes at a time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        self._buffer = bytearray()
        self._waiter: Optional[asyncio.Future[None]] = None
        self._ended = self._lost = self._full = self._held = False

    @classmethod
    async def open(cls, address: Address, tls: Optional[ssl.SSLContext], seconds: float) -> Stream:
        """Connect within so many seconds, or raise Unreachable."""
        loop = asyncio.get_running_loop()
        connecting: Any = (loop.create_unix_connection(cls, address.socket) if address.socket
                           else loop.create_connection(cls, address.host, address.port, ssl=tls))
        try:
            return (await asyncio.wait_for(connecting, seconds))[1]  # type: ignore[no-any-return]
        except (OSError, asyncio.TimeoutError) as e:
            raise Unreachable(f"no connection to {address}: {e or 'it takes too long'}") from e

    async def read(self, most: int, seconds: float) -> bytes:
        """Return at least one byte and at most so many, or nothing at the end or after so many seconds."""
        if not self._buffer and not self._ended:
            await self._wait(seconds)
        data = bytes(self._buffer[:most])
        del self._buffer[:most]
        if self._held and len(self._buffer) < _HIGH and not self._lost:
            self._held = False
            self._transport.resume_reading()
        return data

    async def write(self, data: bytes, seconds: float) -> None:
        """Send data. It returns early when an answer begins, and raises Broken where the connection does not take it."""
        if not self._lost:
            self._transport.write(data)
        while self._full and not self._buffer and not self._ended:
            await self._wait(seconds)
        if self._lost and not self._buffer:
            raise Broken("the connection broke while a request was sent")

    def answered(self) -> bool:
        """Report whether bytes, or the end, came."""
        return bool(self._buffer) or self._ended

    def usable(self) -> bool:
        """Report whether another request can be sent."""
        return not self.answered() and not self._transport.is_closing()

    def close(self) -> None:
        self._transport.abort()

    async def _wait(self, seconds: float) -> None:
        self._waiter = self._loop.create_future()
        timer = self._loop.call_later(seconds, self.close)
        try:
            await self._waiter
        finally:
            self._waiter = None
            timer.cancel()

    def _wake(self) -> None:
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) >= _HIGH and not self._held:
            self._held = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        self._ended = True
        self._wake()
        return False

    def connection_lost(self, exc: Optional[Exception]) -> None:
        self._ended = self._lost = True
        self._wake()

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self._wake()


class Background:
    """A coroutine that runs beside its caller, until it ends or leave is called."""

    def __init__(self, work: Callable[[], Awaitable[None]]) -> None:
        self._task = asyncio.ensure_future(work())
        self.error: Optional[BaseException] = None
        self._task.add_done_callback(self._end)

    def _end(self, task: asyncio.Future[None]) -> None:
        self.error = None if task.cancelled() else task.exception()

    async def end(self) -> None:
        """Wait for the end, also where the caller is cancelled, and raise the error."""
        try:
            await asyncio.wait([self._task])
        finally:
            await asyncio.wait([self._task])
        self._task.result()

    async def leave(self) -> None:
        """End the coroutine and wait for its end."""
        self._task.cancel()
        await asyncio.wait([self._task])


def owner() -> object:
    """Return what connections belong to: the event loop of this process."""
    return os.getpid(), asyncio.get_running_loop()


async def blocking(work: Callable[..., T], *args: Any) -> T:
    """Call a function that blocks, in a thread."""
    return await asyncio.get_running_loop().run_in_executor(None, work, *args)


async def apart(work: Callable[..., T], *args: Any) -> T:
    """Call a function that may block forever, in a thread that keeps neither the loop nor the program from its end."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        done: Any
        try:
            done = functools.partial(result.set_result, work(*args))
        except Exception as e:
            done = functools.partial(result.set_exception, e)
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(lambda: result.done() or done())

    threading.Thread(target=run, daemon=True).start()
    return await result


async def settle(result: Any) -> None:
    """Wait for the result of a callback where it is a coroutine."""
    if inspect.isawaitable(result):
        await result
