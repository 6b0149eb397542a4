"""Servers and gateways as children of this program."""

from __future__ import annotations

import atexit
import os
import secrets
import select
import shutil
import socket
import subprocess
import tempfile
import time
import weakref
from typing import IO, List, Sequence

from ._errors import ActiondError, one_line

START_SECONDS = 60.0
STOP_SECONDS = 60.0


class Child:
    """A program that this one started, its address and its key. The directory with its socket goes with it."""

    def __init__(self, directory: str, arguments: Sequence[str], log: IO[bytes]) -> None:
        self.url = self.key = ""
        self._directory, self._log = directory, log
        self._pid = os.getpid()
        self._process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, close_fds=True)
        atexit.register(_stop, weakref.ref(self))

    def stop(self) -> None:
        """End the program, and wait for its end. It can be called again. In a fork it does nothing: the program is the parent's."""
        process = self._process
        if self._pid != os.getpid():
            return
        if process.stdin and not process.stdin.closed:
            process.stdin.close()
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout:
            process.stdout.close()
        self._log.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def end(self) -> str:
        """Return how the program ended, or "" where it runs or is another process's child. It may be about to end."""
        try:
            code = self._process.wait(0.5) if self._pid == os.getpid() else None
        except subprocess.TimeoutExpired:
            code = None
        return "" if code is None else f"ended with exit code {code}" if code >= 0 else f"was ended by signal {-code}"

    def __del__(self) -> None:
        if getattr(self, "_process", None) and self._pid == os.getpid() and self._process.poll() is None:
            self.stop()

    def _running(self, due: float) -> bool:
        if self._process.poll() is None and time.monotonic() < due:
            return True
        self._log.seek(0)
        said = self._log.read(1 << 16).decode("utf-8", "replace").strip()
        raise ActiondError(f"the program did not start: {one_line(said[-2000:])}")


def _stop(child: weakref.ReferenceType[Child]) -> None:
    alive = child()
    if alive:
        alive.stop()


def find(argument: str, variable: str, *names: str) -> str:
    """Return the path of a program: an argument, a variable of the environment, or the first name that is there."""
    for candidate in (argument, os.environ.get(variable, "")):
        if candidate:
            if not os.access(candidate, os.X_OK):
                raise FileNotFoundError(f"{candidate} is no program that can be started")
            return candidate
    for name in names:
        found = shutil.which(name)
        if found:
            return found
    name = os.path.basename(names[-1])
    raise FileNotFoundError(f"there is no {name}: put the directory of runtimectl and server into PATH, or name it in {variable}")


def _inside(name: str) -> str:
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", name)


def _beside_runtimectl(name: str) -> str:
    """Return the path of a program in the directory of `runtimectl`, or "" where that is not on PATH.

    Releases and checkouts have both in one directory. `server` itself is not looked for on PATH: it may be another program's name.
    """
    runtimectl = shutil.which("runtimectl")
    return os.path.join(os.path.dirname(os.path.realpath(runtimectl)), name) if runtimectl else ""


def _listens(path: str) -> bool:
    """Tell whether a Unix socket takes connections. It has its name a moment before it does."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            return False
    return True


def start_server(directory: str, server: str) -> Child:
    """Start a server on a Unix socket that only this user reaches, and wait until it listens.

    It ends, with all that it started, when its standard input does: with this program, however that ends.
    """
    program = find(server, "ACTIOND_SERVER", _inside("server"), _beside_runtimectl("server"), "/usr/lib/actiond/server")
    home = tempfile.mkdtemp(prefix="actiond-")
    where = os.path.abspath(directory) if directory else os.path.join(home, "work")
    path = os.path.join(home, "socket")
    log = tempfile.TemporaryFile()
    child = Child(home, [program, "init", "--until-eof", "--addr", f"unix:{path}", "--working-dir", where, "--state-dir", os.path.join(home, "state"),
                         "--idle-limit", "8h"], log)
    child.url = f"unix://{path}"
    due = time.monotonic() + START_SECONDS
    try:
        while child._running(due) and not _listens(path):
            time.sleep(0.005)
    except BaseException:
        child.stop()
        raise
    return child


def start_gateway(flags: Sequence[str], runtimectl: str) -> Child:
    """Start a gateway that ends, and removes what it created, with its standard input. Wait until it says its address."""
    program = find(runtimectl, "ACTIOND_RUNTIMECTL", _inside("runtimectl"), "runtimectl")
    home = tempfile.mkdtemp(prefix="actiond-")
    key = secrets.token_hex(32)
    key_file = os.path.join(home, "key")
    with open(os.open(key_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(key + "\n")
    arguments: List[str] = [program, "serve", "--addr", f"unix:{os.path.join(home, 'socket')}", "--key-file", key_file,
                            "--until-eof", "--remove", *flags]
    child = Child(home, arguments, tempfile.TemporaryFile())
    child.key = key
    due = time.monotonic() + START_SECONDS
    line = b""
    out = child._process.stdout
    try:
        while out and not line.endswith(b"\n") and child._running(due):
            if select.select([out], [], [], 0.1)[0]:
                line += os.read(out.fileno(), 4096)
    except BaseException:
        child.stop()
        raise
    child.url = line.decode("utf-8", "replace").split("\n")[0].strip()
    return child
