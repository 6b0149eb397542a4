"""What the tests share: both clients behind one interface, scripted servers, and the programs of this repository."""

from __future__ import annotations

import asyncio
import atexit
import inspect
import os
import pathlib
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from typing import Any, Callable, List

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))
BIN = pathlib.Path(os.environ.get("ACTIOND_BIN", ROOT.parents[1] / "bin")).resolve()
os.environ["ACTIOND_SERVER"] = str(BIN / "server")
os.environ["ACTIOND_RUNTIMECTL"] = str(BIN / "runtimectl")
os.environ["HOME"] = tempfile.mkdtemp(prefix="actiond-home-")  # without start files of shells, which may take seconds
atexit.register(shutil.rmtree, os.environ["HOME"], True)

import actiond  # noqa: E402


class Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(120)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Blocking:
    """An asynchronous sandbox or client with the methods of the other one."""

    def __init__(self, inner: Any, loop: Loop) -> None:
        self.inner, self._loop = inner, loop

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.inner, name)
        return self._wrap(value) if callable(value) else value

    def _wrap(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            result = method(*args, **more)
            if inspect.isasyncgen(result):
                return self._loop.run(_all(result))
            if inspect.isawaitable(result):
                result = self._loop.run(result)
            return Blocking(result, self._loop) if isinstance(result, (actiond.AsyncSandbox, actiond.AsyncClient)) else result
        return call


async def _all(items: Any) -> List[Any]:
    return [item async for item in items]


class Both(unittest.TestCase):
    """Runs the tests of a class twice: a subclass with `kind = "async"` has them for the asynchronous client."""

    kind = "sync"
    loop: Loop

    def setUp(self) -> None:
        if self.kind == "async":
            self.loop = Loop()
            self.addCleanup(self.loop.stop)

    def sandbox(self, url: str, key: str = "") -> Any:
        return self._new(actiond.Sandbox, actiond.AsyncSandbox, url, key)

    def client(self, url: str, key: str = "") -> Any:
        return self._new(actiond.Client, actiond.AsyncClient, url, key)

    def _new(self, plain: Any, other: Any, url: str, key: str) -> Any:
        made = plain(url, key) if self.kind == "sync" else Blocking(other(url, key), self.loop)
        self.addCleanup(made.close)
        return made

    def local(self, directory: str = "") -> Any:
        if self.kind == "sync":
            made: Any = actiond.local(directory)
        else:
            made = Blocking(self.loop.run(actiond.async_local(directory)), self.loop)
        self.addCleanup(made.close)
        return made


def both(case: Any) -> Any:
    """Add the asynchronous half of a class of tests to its module."""
    name = case.__name__ + "Async"
    setattr(sys.modules[case.__module__], name, type(name, (case,), {"kind": "async", "__module__": case.__module__}))
    return case


class Scripted:
    """A server that answers the requests of each connection with the bytes of a script, and keeps what it got."""

    def __init__(self, case: unittest.TestCase, script: Callable[[socket.socket, bytes], Any]) -> None:
        self.requests: List[bytes] = []
        self._script = script
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: List[socket.socket] = []
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()
        case.addCleanup(self._stop)

    def _stop(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for connection in self._open:
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()[0]
            except OSError:
                return
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            while True:
                head = b""
                while b"\r\n\r\n" not in head:
                    data = connection.recv(1)
                    if not data:
                        return
                    head += data
                self.requests.append(head)
                if self._script(connection, head) is False:
                    connection.shutdown(socket.SHUT_WR)
                    connection.settimeout(10)
                    while connection.recv(1 << 16):  # closed before, it would send a reset, which may overtake the answer
                        pass
                    connection.close()
                    return
        except OSError:
            pass


def answering(*answers: bytes) -> Callable[[socket.socket, bytes], bool]:
    """Return a script that sends one of the answers to each request, the last one again and again, and closes."""
    left = list(answers)

    def script(connection: socket.socket, head: bytes) -> bool:
        connection.sendall(left.pop(0) if len(left) > 1 else left[0])
        return False
    return script


def response(body: bytes = b"{}", status: str = "200 OK", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def program(name: str) -> str:
    """Return the path of a program of this repository, without which a test is skipped, or fails where CI=true."""
    path = BIN / name
    if not os.access(path, os.X_OK):
        if os.environ.get("CI") == "true":
            raise AssertionError(f"{path} is needed: make build, or ACTIOND_BIN")
        raise unittest.SkipTest(f"{path} is not built")
    return str(path)


def eventually(what: Callable[[], Any], seconds: float = 60) -> Any:
    """Call a function until its result is true, and return that."""
    due = time.monotonic() + seconds
    while True:
        result = what()
        if result:
            return result
        if time.monotonic() > due:
            raise AssertionError(f"it did not happen within {seconds} s")
        time.sleep(0.02)


def ended(pid: Any) -> bool:
    """Report whether a process ended. It may wait for an init to reap it, which not every machine has."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


class Server:
    """A server of this repository on a port with a key. Its sandbox directory is `work`."""

    def __init__(self, *flags: str) -> None:
        path = program("server")
        self.home = tempfile.mkdtemp(prefix="actiond-test-")
        self.work = os.path.join(self.home, "work")
        self.key = secrets.token_hex(16)
        key_file = os.path.join(self.home, "key")
        with open(key_file, "w") as file:
            os.chmod(key_file, 0o600)
            file.write(self.key + "\n")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = open(os.path.join(self.home, "log"), "wb")
        self._arguments = [path, "--addr", f"127.0.0.1:{self.port}", "--working-dir", self.work, "--session-key-file", key_file,
                           "--state-dir", os.path.join(self.home, "state"), "--no-enable-browser", *flags]
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._arguments, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log)
        eventually(self._listens)

    def _listens(self) -> bool:
        if self._process.poll() is not None:
            with open(self._log.name, errors="replace") as file:
                raise AssertionError(f"the server ended: {file.read()}")
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    def kill(self) -> None:
        """End the server as a crash would."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()
        self._log.close()
        shutil.rmtree(self.home, ignore_errors=True)
