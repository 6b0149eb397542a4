"""HTTP/1.1 for a server that may be hostile: everything is bounded, and no redirect is followed."""

from __future__ import annotations

import json
import logging
import re
import ssl
import time
from types import TracebackType
from typing import Any, Awaitable, BinaryIO, Callable, Dict, List, Mapping, Optional, Tuple, Type, TypeVar, Union

from . import _io_async as _io
from ._address import Address
from ._errors import (
    ActiondError, Broken, Busy, Cut, Malformed, NotFound, Refused, SandboxEnded, TooLarge, Unreachable, one_line, refused,
)

T = TypeVar("T")
log = logging.getLogger("actiond")

SILENCE = 60.0  # seconds without a byte, after which a connection counts as broken
RATE = 4096  # bytes per second that an answer must have after SILENCE
TRIES = 10
PIECE = 64 << 10  # bytes that are read or written at a time
MAX_HEAD, MAX_LINES, MAX_HINTS = 64 << 10, 256, 1000
MAX_JSON = 16 << 20
IDLE, IDLE_SECONDS = 64, 60.0  # how many connections are kept, and how long
# Refusals that a sandbox that ended gets too, of gateways that have codes and of those that have none.
UNSURE = {(s, code) for s, word in ((401, "unauthorized"), (403, "forbidden"), (404, "not_found"), (503, "")) for code in ("", word)}
CUT_WORDS = ("The body ended too early", "400 Bad Request", "")  # of a server that got a part of a request


class Body:
    """A body that is read from a file: size bytes, from the file's position now on."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self.file, self.size, self.start = file, size, file.tell()


class Wire:
    """A connection and what was read ahead from it."""

    def __init__(self, stream: _io.Stream) -> None:
        self._stream = stream
        self._ahead = b""
        self.idle_since = 0.0

    async def some(self, most: int) -> bytes:
        """Return at least one byte and at most so many."""
        if not self._ahead:
            await self._more(SILENCE)
        data, self._ahead = self._ahead[:most], self._ahead[most:]
        return data

    async def line(self, most: int, due: float = 0.0) -> bytes:
        """Return one line without its end, which must come before a time of the monotonic clock."""
        parts: List[bytes] = []
        size = 0
        while True:
            if not self._ahead:
                await self._more(due - time.monotonic() if due else SILENCE)
            end = self._ahead.find(b"\n") + 1
            part, self._ahead = (self._ahead[:end], self._ahead[end:]) if end else (self._ahead, b"")
            parts.append(part)
            size += len(part)
            if size > most:
                raise Malformed(f"a line of the answer is longer than {most} bytes")
            if end:
                return b"".join(parts).rstrip(b"\r\n")

    async def _more(self, seconds: float) -> None:
        self._ahead = await self._stream.read(PIECE, seconds) if seconds > 0 else b""
        if not self._ahead:
            raise Broken("the connection broke, or nothing came for too long")

    async def send(self, head: bytes, body: Union[bytes, Body]) -> bool:
        """Send a request, and report whether all of it was sent: an answer may begin earlier."""
        if isinstance(body, bytes):
            await self._stream.write(head + body, SILENCE)
            return len(body) <= PIECE or not self._stream.answered()
        await self._stream.write(head, SILENCE)
        await _io.blocking(body.file.seek, body.start)
        left = body.size
        while left > 0 and not self._stream.answered():
            data = await _io.blocking(body.file.read, min(PIECE, left))
            if not data:
                raise ActiondError("the file became shorter while it was sent")
            await self._stream.write(data, SILENCE)
            left -= len(data)
        return left <= 0

    def usable(self) -> bool:
        return not self._ahead and time.monotonic() - self.idle_since < IDLE_SECONDS and self._stream.usable()

    def close(self) -> None:
        self._stream.close()


class Pool:
    """The idle connections to one server."""

    def __init__(self, address: Address, tls: Optional[ssl.SSLContext]) -> None:
        self.address = address
        self._tls = tls or (ssl.create_default_context() if address.tls else None)
        self._idle: List[Wire] = []
        self._owner: object = None

    async def take(self) -> Wire:
        if self._owner != _io.owner():  # connections of another process, or of an event loop that ended
            self._owner, self._idle = _io.owner(), []
        while self._idle:
            wire = self._idle.pop()
            if wire.usable():
                return wire
            wire.close()
        return Wire(await _io.Stream.open(self.address, self._tls if self.address.tls else None, SILENCE / 2))

    def give(self, wire: Wire) -> None:
        wire.idle_since = time.monotonic()
        if len(self._idle) < IDLE and self._owner == _io.owner():
            self._idle.append(wire)
        else:
            wire.close()

    def close(self) -> None:
        idle, self._idle = self._idle, []
        if self._owner == _io.owner():
            for wire in idle:
                wire.close()


class Answer:
    """An answer. Its connection is kept when all of it was read; leave the context when no more is wanted."""

    def __init__(self, wire: Wire, pool: Pool, status: int, headers: Mapping[str, str], keep: bool) -> None:
        self._wire, self._pool, self._keep = wire, pool, keep
        self.status, self.headers = status, headers
        self.secrets: Tuple[str, ...] = ()
        self._chunked = "transfer-encoding" in headers
        self._left = 0
        self._chunks = self._over = False
        self._begun, self._got, self.paced = time.monotonic(), 0, True
        self._ahead = b""

    def frame(self, empty: bool) -> None:
        """Find out how the body ends."""
        length = self.headers.get("content-length")
        if self._chunked and (length is not None or self.headers["transfer-encoding"].lower() != "chunked"):
            raise Malformed("the answer says in two ways, or in an unknown one, how long it is")
        if length is not None and not re.fullmatch("[0-9]{1,15}", length):
            raise Malformed("the length of the answer is no number")
        if empty or length is not None and int(length) == 0:
            self._end()
        elif length is not None:
            self._left = int(length)
        elif not self._chunked:
            raise Malformed("the answer does not say how long it is")

    async def part(self, most: int = PIECE) -> bytes:
        """Return the next bytes, or none at the end."""
        if not self._left and not self._over:
            await self._chunk()
        if self._over:
            return b""
        if self.paced and time.monotonic() > self._begun + SILENCE + self._got / RATE:
            raise Broken("the answer comes too slowly")
        data = await self._wire.some(min(most, self._left))
        self._left -= len(data)
        self._got += len(data)
        if not self._left and not self._chunked:
            self._end()
        return data

    async def _chunk(self) -> None:
        due = self._begun + SILENCE + self._got / RATE if self.paced else 0.0
        if self._chunks and await self._wire.line(2, due):
            raise Malformed("a chunk of the answer does not end where it should")
        self._chunks = True
        size = (await self._wire.line(256, due)).split(b";")[0].strip()
        if not re.fullmatch(rb"[0-9a-fA-F]{1,12}", size):
            raise Malformed("the size of a chunk is no number")
        self._left = int(size, 16)
        for _ in range(0 if self._left else MAX_LINES):
            if not await self._wire.line(MAX_HEAD, due):
                self._end()
                break
        else:
            if not self._left:
                raise Malformed("the answer has too many trailers")

    async def whole(self, most: int) -> bytes:
        """Return all of the body, or raise TooLarge beyond so many bytes."""
        body = bytearray()  # a list of small chunks takes many times their bytes
        while data := await self.part():
            body += data
            if self._got > most:
                raise TooLarge(413, f"the answer is larger than {most} bytes")
        return bytes(body)

    async def line(self, most: int) -> bytes:
        """Return the next line of the body. The end of the body counts as a cut."""
        parts: List[bytes] = []
        size = 0
        while b"\n" not in self._ahead:
            parts.append(self._ahead)
            size += len(self._ahead)
            if size > most:
                raise Malformed(f"a line of the answer is longer than {most} bytes")
            self._ahead = await self.part()
            if not self._ahead:
                raise Broken("the answer ended too early")
        line, _, self._ahead = self._ahead.partition(b"\n")
        return b"".join(parts) + line

    async def refusal(self) -> Refused:
        """Return the exception for a status that is no success."""
        body = await self.whole(MAX_JSON // 16)
        detail, code, reason = "", "", ""
        try:
            told = decode(body)
            detail = str(told.get("detail") or "")
            errors = told.get("errors")
            first = errors[0] if isinstance(errors, list) and errors else None
            code = str((first.get("code") if isinstance(first, dict) else "") or told.get("code") or "")
            reason = str(told.get("reason") or "")
            if isinstance(first, str) and first not in detail:
                detail += f": {first}"
        except Malformed:
            detail = body.decode("utf-8", "replace").strip()
        for secret in self.secrets:
            detail = detail.replace(secret, "[key]")
        return refused(self.status, detail, code, reason)

    def _end(self) -> None:
        self._over = True
        if self._keep:
            self._pool.give(self._wire)
        else:
            self._wire.close()

    async def __aenter__(self) -> Answer:
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        if not self._over:
            self._wire.close()


class Http:
    """Requests to one server with one set of headers, keys among them, which no repr shows.

    Where the server is a sandbox's, gateway has its state as id, and child is the program that it ends with.
    """

    def __init__(self, pool: Pool, prefix: str, headers: Dict[str, str], secrets: Tuple[str, ...], *, gateway: Optional[Http] = None,
                 id: str = "", child: Any = None) -> None:
        self.pool, self.prefix = pool, prefix
        self._headers, self._secrets = headers, secrets
        self._gateway, self._id, self.child = gateway, id, child

    def __repr__(self) -> str:
        return f"<Http {self.pool.address}{self.prefix}>"

    async def open(self, method: str, path: str, *, body: Union[bytes, Body] = b"", kind: str = "",
                   headers: Optional[Mapping[str, str]] = None, silence: float = 0.0) -> Answer:
        """Send a request and return its answer, of whatever status."""
        lines = [f"{method} {self.pool.address.prefix}{self.prefix}{path} HTTP/1.1", f"Host: {self.pool.address.authority}"]
        lines += [f"{name}: {value}" for name, value in {**self._headers, **(headers or {})}.items()]
        size = len(body) if isinstance(body, bytes) else body.size
        if method not in ("GET", "HEAD"):
            lines += [f"Content-Length: {size}"] + ([f"Content-Type: {kind}"] if kind else [])
        try:
            wire = await self.pool.take()
        except Unreachable as e:
            raise await self.explain(e) from e
        try:
            sent = await wire.send("\r\n".join([*lines, "", ""]).encode("ascii"), body)
            answer = await self._head(wire, sent, time.monotonic() + (silence or SILENCE))
            answer.frame(method == "HEAD" or answer.status in (204, 304))
            return answer
        except BaseException:
            wire.close()
            raise

    async def ask(self, method: str, path: str, **more: Any) -> Answer:
        """Send a request and return its answer, or raise the exception for a status that is no success."""
        answer = await self.open(method, path, **more)
        if 200 <= answer.status < 300:
            return answer
        async with answer:
            raise await self.explain(await answer.refusal())

    async def explain(self, error: ActiondError) -> ActiondError:
        """Return SandboxEnded for an error that an end looks like: no connection, a key or a path that is unknown."""
        if isinstance(error, Unreachable) and self.child:
            end = await _io.blocking(self.child.end)
            if end:
                return SandboxEnded(410, f"the {'gateway' if self._gateway else 'server'} that this program started {end}", "ended", "server")
        if self._gateway and isinstance(error, Refused) and (error.status, error.code) in UNSURE:
            try:
                if (await self._gateway.tell("GET", f"/{self._id}", tries=3)).get("state") == "stopped":
                    return SandboxEnded(error.status, error.detail, "stopped", "stopped")
            except SandboxEnded as e:
                return e
            except NotFound:
                return SandboxEnded(410, f"the sandbox {self._id} ended or was removed", "ended")
            except ActiondError:
                pass
        return error

    async def tell(self, method: str, path: str, body: Optional[Dict[str, Any]] = None, *, key: str = "", tries: int = 0,
                   most: int = MAX_JSON, headers: Optional[Mapping[str, str]] = None, silence: float = 0.0) -> Dict[str, Any]:
        """Send a request, again where the connection breaks, and return the object of its answer."""
        async def once() -> Dict[str, Any]:
            async with await self.ask(method, path, body=b"" if body is None else encode(body), headers=headers, silence=silence,
                                      kind="" if body is None else "application/json") as answer:
                return decode(await answer.whole(most) or b"{}")
        return await repeat(once, key, tries)

    async def _head(self, wire: Wire, sent: bool, due: float) -> Answer:
        for _ in range(MAX_HINTS):
            status, version, headers = await self._lines(wire, due)
            if status >= 200:
                keep = sent and version == "1" and headers.get("connection", "").lower() != "close"
                answer = Answer(wire, self.pool, status, headers, keep)
                answer.secrets = self._secrets
                return answer
            if status == 101:
                break
        raise Malformed("the server sends informational answers only")

    async def _lines(self, wire: Wire, due: float) -> Tuple[int, str, Dict[str, str]]:
        first = await wire.line(MAX_HEAD, due)
        match = re.fullmatch(rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: .*)?", first)
        if not match:
            raise Malformed("the answer is not one of HTTP/1.1")
        headers: Dict[str, str] = {}
        size = len(first)
        for _ in range(MAX_LINES):
            line = await wire.line(MAX_HEAD, due)
            if not line:
                return int(match[2]), match[1].decode(), headers
            size += len(line)
            field = re.fullmatch(rb"([!#-'*+.^`|~\w-]+):[ \t]*(.*?)[ \t]*", line)
            if not field or size > MAX_HEAD:
                break
            name, value = field[1].decode("latin-1").lower(), field[2].decode("latin-1")
            if headers.get(name, value) != value and name in ("content-length", "transfer-encoding"):
                raise Malformed("the answer says in two ways how long it is")
            headers[name] = value
        raise Malformed("the header of the answer is too long or not one of HTTP")


class Tries:
    """Decides whether a request is sent again, and waits before it is."""

    def __init__(self, key: str, what: str, most: int = 0) -> None:
        self._key, self._what, self._most = key, what, most or TRIES
        self._count = 0
        self.sent = False  # a server may have the request

    def progress(self) -> None:
        """Count anew: the server is alive."""
        self.sent, self._count = True, 0

    async def again(self, error: ActiondError) -> None:
        """Return when it is time to send the request again, or raise."""
        if isinstance(error, Refused):
            cut = error.status in (408, 499, 502, 504) or error.status == 400 and error.detail in CUT_WORDS
            if not cut and not (self.sent and isinstance(error, Busy)):
                raise error
        elif not isinstance(error, Broken) and not (self.sent and isinstance(error, Unreachable)):
            raise error
        self.sent = True
        self._count += 1
        if self._count >= self._most:
            raise Cut(self._key, one_line(str(error))) from error
        log.info("%s: %s; asking again", self._what, error)
        await _io.sleep(min(0.1 * 2 ** (self._count - 1), 4.0))


async def repeat(once: Callable[[], Awaitable[T]], key: str = "", most: int = 0) -> T:
    """Call a function until the connection does not break meanwhile."""
    tries = Tries(key, "request", most)
    while True:
        try:
            return await once()
        except ActiondError as e:
            await tries.again(e)


def decode(data: bytes) -> Dict[str, Any]:
    """Return an object of JSON, or raise Malformed."""
    try:
        value = json.loads(data, parse_int=_integer, parse_constant=_no_constant)
    except (ValueError, RecursionError) as e:
        raise Malformed("the answer is not valid JSON") from e
    if not isinstance(value, dict):
        raise Malformed("the answer is no object of JSON")
    return value


def encode(value: Any) -> bytes:
    """Return a value as JSON."""
    return json.dumps(value, allow_nan=False).encode("ascii")


def _integer(text: str) -> int:
    if len(text) > 20:  # the time for it grows with the square of its length
        raise ValueError("a number is too long")
    return int(text)


def _no_constant(text: str) -> float:
    raise ValueError(text)
