"""Connections, threads and pauses without asyncio. _io_async has the same names with it."""

from __future__ import annotations

import os
import selectors
import socket
import ssl
import threading
import time
from typing import Any, Callable, Optional, TypeVar

from ._address import Address
from ._errors import Broken, Unreachable

T = TypeVar("T")

sleep = time.sleep


class Stream:
    """One connection. One thread reads or writes at a time."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._ended = False

    @classmethod
    def open(cls, address: Address, tls: Optional[ssl.SSLContext], seconds: float) -> Stream:
        """Connect within so many seconds, or raise Unreachable."""
        sock = None
        try:
            if address.socket:
                sock = socket.socket(socket.AF_UNIX)
                sock.settimeout(seconds)
                sock.connect(address.socket)
            else:
                sock = socket.create_connection((address.host, address.port), seconds)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return cls(tls.wrap_socket(sock, server_hostname=address.host) if tls else sock)
        except OSError as e:
            if sock:
                sock.close()
            raise Unreachable(f"no connection to {address}: {e}") from e

    def read(self, most: int, seconds: float) -> bytes:
        """Return at least one byte and at most so many, or nothing at the end or after so many seconds."""
        try:
            self._sock.settimeout(max(seconds, 0.001))
            data = self._sock.recv(most)
        except OSError:
            data = b""
        self._ended = not data
        return data

    def write(self, data: bytes, seconds: float) -> None:
        """Send data. It returns early when an answer begins, and raises Broken where the connection does not take it."""
        view = memoryview(data)
        try:
            self._sock.settimeout(seconds)
            while view and not self.answered():
                view = view[self._sock.send(view[:64 << 10]):]
        except OSError as e:
            if not self.answered():
                raise Broken("the connection broke while a request was sent") from e

    def answered(self) -> bool:
        """Report whether bytes, or the end, came. With TLS that is not known: what came may be the protocol's own."""
        if self._ended:
            return True
        return not isinstance(self._sock, ssl.SSLSocket) and self._readable()

    def usable(self) -> bool:
        """Report whether another request can be sent."""
        return not self._ended and not self._readable()

    def close(self) -> None:
        self._ended = True
        self._sock.close()

    def _readable(self) -> bool:
        with selectors.DefaultSelector() as selector:
            selector.register(self._sock, selectors.EVENT_READ)
            return bool(selector.select(0))


class Background:
    """A function that runs beside its caller, in a thread that does not keep the program from its end."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.error: Optional[BaseException] = None
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as e:
            self.error = e

    def end(self) -> None:
        """Wait for the end, also after Ctrl-C, and raise the error."""
        try:
            self._thread.join()
        finally:
            self._thread.join()
        if self.error:
            raise self.error

    def leave(self) -> None:
        """Wait a moment for the end: the function may read from a source that brings nothing more."""
        self._thread.join(1)


def owner() -> object:
    """Return what connections belong to: this process."""
    return os.getpid()


def blocking(work: Callable[..., T], *args: Any) -> T:
    """Call a function that blocks."""
    return work(*args)


apart = blocking


def settle(result: Any) -> None:
    """Do nothing: the result of a callback is there."""
