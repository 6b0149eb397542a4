"""The client: one sandbox, and a gateway with many."""

from __future__ import annotations

import base64
import contextlib
import io
import os
import re
import shlex
import ssl
import tempfile
import time
import uuid
import warnings
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import (
    Any, AsyncIterator, BinaryIO, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple, Type, Union,
)
from urllib.parse import quote, urlencode

from . import _archive, _io_async as _io, _launch
from ._address import header_value, parse
from ._errors import (
    ActiondError, Broken, ExecFailed, Failed, Foreign, Gone, IsDirectory, Left, Malformed, NotFound, NotRun, Refused, SandboxEnded, TooLarge,
    Unknown, one_line, refused,
)
from ._http_async import SILENCE, Body, Http, Pool, Tries, decode, encode, repeat
from ._types import (
    Attempt, Entry, ExecResult, FileInfo, Output, Page, Port, Preview, Record, RunResult, SandboxInfo, ToolResult, maybe, pick,
    unbase64,
)

MiB = 1 << 20
WAIT = 20  # seconds after which the server answers a request in any case
INLINE = 256 << 10  # bytes of input that are sent with the action
CREATION = 900.0  # seconds: a gateway answers when the image is pulled
LONG = 600.0  # seconds: a restore of many files
LINES = "application/x-ndjson"
Observation = Dict[str, Any]
StrPath = Union[str, "os.PathLike[str]"]
Bytes = Union[bytes, bytearray, memoryview]


_ATTEMPT, _BISECT = "attempt/", "before-bisect-"  # names of checkpoints begin so
_DAY = 24 * 3600  # how long the checkpoint of an attempt or a bisect goes last, and keeps the next one from beginning


class AsyncSandbox:
    """One sandbox. Use it from several threads or tasks at once, and as a context manager.

    Leaving the context removes the sandbox that `create`, `local` or `docker` made; `close` only disconnects.
    Each action has an id, `action_id` or a random one, and runs at most once: after a broken connection it is
    asked for again. Any method may raise Refused or one of its kinds, such as SandboxEnded, Unreachable, Cut and Malformed.
    """

    def __init__(self, url: str, key: str = "", *, tls: Optional[ssl.SSLContext] = None) -> None:
        """Take the sandbox at a URL: unix:///path, http://host:port or https://host; connect with the first request.

        ValueError: the URL or the key is none.
        """
        address = parse(url)
        headers = {"User-Agent": "actiond-python"}
        if key:
            headers["X-Session-API-Key"] = header_value("the key", key)
        self._http = Http(Pool(address, tls), "", headers, (key,) if key else ())
        self._gateway: Optional[AsyncClient] = None
        self._child: Optional[_launch.Child] = None
        self._mine = 0  # the process that created it
        self.id = ""
        self.info: Optional[SandboxInfo] = None

    @classmethod
    def from_env(cls) -> AsyncSandbox:
        """Take the sandbox that SANDBOX_URL and SESSION_API_KEY name. KeyError: the first is not set."""
        return cls(os.environ["SANDBOX_URL"], os.environ.get("SESSION_API_KEY", ""))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._http.pool.address}{self._http.prefix}>"

    async def __aenter__(self) -> AsyncSandbox:
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        if self._mine == os.getpid() and self._gateway:  # a fork leaves its parent's sandbox alone
            await self._gateway.delete(self.id)
        await self.close()

    async def close(self) -> None:
        """Close the connections. A server that `local` started ends, for it is this program's child."""
        if not self._gateway:
            self._http.pool.close()
        if self._child:
            await _io.blocking(self._child.stop)

    # Commands and programs.

    async def run(self, command: str, *, session: str = "", wait: Optional[float] = None, keys: bool = False, reset: bool = False,
                  action_id: Optional[str] = None, on_output: Optional[Callable[[Output], Any]] = None) -> RunResult:
        """Run a command in a persistent shell, and return at its end.

        It returns earlier when the command waits for input alone (`result.waiting`), or after `wait` seconds; the
        command goes on then (`result.running`), and `run("")` asks for its further output. With `keys`, `command` is
        input for what runs, such as "y" or "C-c". `reset` ends the session's shell first. `on_output` gets the raw
        output as it comes. A cancelled task, Ctrl-C, or an exception of `on_output` cancels the command.

        NotRun: another command of the session runs. Unknown: the server died meanwhile.
        """
        args = {"command": command, "blocking": True, "return_on_input": True, "is_input": keys, "reset": reset}
        key, o = await self._carry_out("run", args, session, wait, action_id, on_output, None)
        if o.get("outcome") == "not_started":
            meta = pick(pick(o, "extras", dict), "metadata", dict)
            runs = pick(pick(meta, "waiting", dict), "command", str)
            raise NotRun(pick(o, "code", str), pick(o, "content", str) or f"the shell of the session still runs {runs or 'a command'!r}: "
                         'run("") waits for it, run("C-c", keys=True) ends it, and session="other" is another shell')
        return RunResult.of(o, key)

    async def exec(self, command: Union[str, Sequence[StrPath]], *, cwd: Optional[StrPath] = None, env: Optional[Mapping[str, str]] = None,
                   user: Union[str, int, None] = None, input: Union[str, Bytes, BinaryIO, io.StringIO, None] = None,
                   timeout: Optional[float] = None, wait: Optional[float] = None, tty: Optional[Tuple[int, int]] = None,
                   max_output: int = 10 * MiB, on_output: Optional[Callable[[Output], Any]] = None, check: bool = False,
                   action_id: Optional[str] = None) -> ExecResult:
        """Start a program without the shell of a session, and return at its end.

        `command` is a line for /bin/sh, or a program and its arguments; one that is not there ends with 127, as in a
        shell. `user` is a name or a number of the sandbox;
        another than its own needs --allow-root. `input` is standard input: text, bytes, or a binary file, which is sent
        as it can be read. After `timeout` seconds the program and all that it started are ended (`result.timed_out`);
        after `wait` seconds it goes on (`result.running`), and what it prints from then on is not kept. `tty` is (rows, columns) of a terminal in place of pipes. Of each stream at most
        `max_output` bytes are kept. `on_output` gets the output as it comes. A cancelled task, Ctrl-C, or an
        exception of `on_output` or of `input` ends the program.

        ExecFailed: with `check`, the exit code was not 0. Unknown: the server died meanwhile. ValueError: `wait` with a file
        or more than 256 KiB of input, of which the program would get a part.
        """
        args: Dict[str, Any] = {"command": command} if isinstance(command, str) else {"argv": [os.fspath(word) for word in command]}
        args.update(cwd=None if cwd is None else os.fspath(cwd), env=dict(env) if env is not None else None, user=None if user is None else str(user))
        args["kill_after"] = timeout or None
        if tty:
            args["tty"] = {"rows": tty[0], "cols": tty[1]}
        source: Optional[BinaryIO] = None
        data: Any = input.read() if isinstance(input, io.StringIO) else input
        if isinstance(data, io.TextIOBase):
            raise TypeError("input must be text, bytes or a binary file: open the file with mode \"rb\"")
        if data is None:
            args["stdin"] = None if tty else "none"
        elif hasattr(data, "read"):
            source = data
        elif len(data := _bytes(data)) > INLINE:
            source = io.BytesIO(data)
        else:
            try:
                args["input"] = data.decode("utf-8")
            except UnicodeDecodeError:
                args["input_base64"] = base64.b64encode(data).decode()
        if source:
            args["stdin"] = "stream"
            if wait is not None:
                raise ValueError("the program would not get the input that is left after wait seconds: use timeout, or start and feed")
        args = {name: value for name, value in args.items() if value is not None}
        key, o = await self._carry_out("exec", args, "", wait, action_id, on_output, source)
        stdout, less = await self._stream(o, key, "stdout", max_output)
        stderr, fewer = await self._stream(o, key, "stderr", max_output)
        result = ExecResult.of(o, key, stdout, stderr, less or fewer)
        if check and not result.running and result.returncode != 0:
            raise ExecFailed(result)
        return result

    async def _stream(self, o: Observation, key: str, name: str, most: int) -> Tuple[bytes, bool]:
        """Return what a program wrote to a stream, and whether bytes are missing."""
        extras = pick(o, "extras", dict)
        coded, total = maybe(extras, f"{name}_base64", str), pick(extras, f"{name}_total", int)
        data = unbase64(coded) if coded is not None else pick(extras, name, str).encode("utf-8", "replace")
        if total and len(data) != total and most > 0:
            try:
                data, gap = await self._printed(key, name, 0, min(most, total))
            except Refused:
                return data[:most], True  # the journal has it no more
            return data, gap or len(data) < total
        return data[:most], len(data) > most

    async def act(self, action: str, args: Mapping[str, Any], *, session: str = "", wait: Optional[float] = None,
                  action_id: Optional[str] = None) -> Observation:
        """Carry out any action of the API, such as "glob" or "browse", and return its observation as it is.

        Failed: the action went wrong and has no other result. NotRun, Unknown: as for `run`.
        """
        return (await self._carry_out(action, args, session, wait, action_id, None, None))[1]

    async def start(self, action: str, args: Mapping[str, Any], *, session: str = "", wait: Optional[float] = None,
                    action_id: Optional[str] = None) -> str:
        """Start an action and return its id at once, for `action`, `follow`, `feed` and `cancel`."""
        key = _identity(action_id)
        await self._begin(_body(action, args, session, wait), key)
        return key

    async def _begin(self, body: bytes, key: str) -> None:
        tries = Tries(key, "start of an action")
        headers = {"Idempotency-Key": key, "Prefer": "respond-async, wait=0"}
        while True:
            try:
                async with await self._http.ask("POST", "/v1/actions", body=body, kind="application/json", headers=headers) as answer:
                    await answer.whole(64 * MiB)
                return
            except ActiondError as e:
                await tries.again(e)

    async def _carry_out(self, action: str, args: Mapping[str, Any], session: str, wait: Optional[float], action_id: Optional[str],
                         on_output: Optional[Callable[[Output], Any]], source: Optional[BinaryIO]) -> Tuple[str, Observation]:
        """Carry out an action and return its id and observation. It is cancelled where the caller leaves."""
        key = _identity(action_id)
        body = _body(action, args, session, wait)
        feeder: Optional[_io.Background] = None
        gone: List[bool] = []
        broken: List[Exception] = []
        try:
            if source:
                file = source
                await self._begin(body, key)
                feeder = _io.Background(lambda: self._feed(key, file, gone, broken))
            if on_output:
                events = self._events(key, body, 0)
                async for event in events:
                    if isinstance(event, Output):
                        await _io.settle(on_output(event))
                    else:
                        return key, _checked(event, key)
            return key, _checked(await self._result("POST", "/v1/actions", body, key), key)
        except (ActiondError, GeneratorExit):
            raise
        except BaseException:
            await self._abandon(key)
            raise
        finally:
            gone.append(True)
            if feeder:
                await feeder.leave()
                if broken:  # the program's end may have been told before the feeder's
                    raise broken[0]
                if feeder.error and not isinstance(feeder.error, ActiondError):
                    raise feeder.error

    async def _abandon(self, key: str) -> None:
        """Cancel an action that nothing waits for any more. Its request may be on the way still."""
        for _ in range(3):
            try:
                await self._record("DELETE", key, 0)
                return
            except NotFound:
                await _io.sleep(0.1)
            except ActiondError:
                return

    async def _result(self, method: str, path: str, body: Union[bytes, Body], key: str, *, most: int = 64 * MiB,
                      kind: str = "application/json", headers: Optional[Mapping[str, str]] = None) -> Observation:
        """Send an action once, and ask for its observation until it is there."""
        tries = Tries(key, "action")
        accepted = False
        sent = {"Idempotency-Key": key, "Prefer": f"respond-async, wait={WAIT}", **(headers or {})}
        while True:
            try:
                if accepted:
                    record = await self._record("GET", key, WAIT, most)
                    if record.ended:
                        return record.observation or {"outcome": record.outcome, "code": record.code}
                    tries.progress()
                    continue
                async with await self._http.ask(method, path, body=body, kind=kind, headers=sent) as answer:
                    told = decode(await answer.whole(most))
                if answer.status != 202:
                    return told
                accepted = True
                tries.progress()
            except NotFound as e:
                if accepted:
                    raise Unknown(key) from e
                raise
            except ActiondError as e:
                await tries.again(e)

    async def _events(self, key: str, body: Optional[bytes], after: int) -> AsyncIterator[Union[Output, Observation]]:
        """Yield the outputs of an action, each once, and then its observation. With a body, the action is sent first."""
        tries = Tries(key, "output of an action")
        last = after
        resume = body is None
        while True:
            try:
                if resume:
                    asked = await self._http.ask("GET", f"/v1/actions/{quote(key, safe='')}/events?after={last}", headers={"Accept": LINES})
                else:
                    asked = await self._http.ask("POST", "/v1/actions", body=body or b"", kind="application/json",
                                                 headers={"Idempotency-Key": key, "Accept": LINES})
                async with asked as answer:
                    answer.paced = False
                    while answer.status != 204:
                        event = decode(await answer.line(16 * MiB))
                        name = event.get("event")
                        if name == "output":
                            output = Output.of(event)
                            tries.progress()
                            new = output.seq > last or not output.seq
                            last = max(last, output.seq)
                            if new and (output.data or output.missed):  # a program's first has neither
                                yield output
                        elif name == "observation":
                            yield pick(event, "observation", dict)
                            return
                        elif name == "error":
                            raise _failure(event, key)
                        else:
                            tries.progress()
                yield (await self.action(key)).observation
                return
            except ActiondError as e:
                if resume and body is not None and isinstance(e, Refused) and e.status in (400, 404):
                    last = after  # the server does not know it
                await tries.again(_again_by_post(e, resume and body is not None))
                resume = body is None or last > after

    async def action(self, id: str, wait: float = 0) -> Record:
        """Return what is known of an action, after its end or `wait` seconds (600 at most). NotFound, Gone: it is not kept."""
        return await repeat(lambda: self._record("GET", id, wait), id)

    async def _record(self, method: str, id: str, wait: float, most: int = 64 * MiB) -> Record:
        silence = 60 + wait
        async with await self._http.ask(method, f"/v1/actions/{quote(id, safe='')}?wait={-int(-wait // 1)}", silence=silence) as answer:
            return Record.of(decode(await answer.whole(most)))

    async def actions(self, *, session: str = "", state: str = "", limit: int = 100) -> List[Record]:
        """Return the recorded actions of a session and in a state, newest first; "" matches all."""
        records: List[Record] = []
        before = 0
        while len(records) < limit:
            query = _query(session=session, state=state, before=before or None, limit=min(1000, limit - len(records)))
            page = await self._http.tell("GET", f"/v1/actions{query}", most=16 * MiB)
            found = [Record.of(a) for a in pick(page, "actions", list)]
            records += found
            before, old = pick(page, "next", int), before
            if not before or not found or old and before >= old:
                break
        return records[:limit]

    async def follow(self, id: str, after: int = 0) -> AsyncIterator[Output]:
        """Yield the outputs of an action behind the one of the number `after`, until its end, across broken connections.

        `action(id)` has the result then. NotFound, Gone: it is not kept. Unknown: the server died while it ran.
        """
        async for event in self._events(id, None, after):
            if isinstance(event, Output):
                yield event

    async def output(self, id: str, *, stream: str = "", offset: int = 0, most: int = 10 * MiB) -> bytes:
        """Return what an action printed from an offset on, at most so many bytes: of one stream of a program, or of all.

        Bytes that are not kept are left out: compare with `Output.offset` where that matters.
        """
        return (await self._printed(id, stream, offset, most))[0]

    async def _printed(self, id: str, stream: str, offset: int, most: int) -> Tuple[bytes, bool]:
        data = bytearray()
        gap = False
        while len(data) < most:
            limit = min(4 * MiB, most - len(data))
            query = _query(stream=stream, offset=offset, limit=limit)
            begin, part = await repeat(lambda: self._piece(f"/v1/actions/{quote(id, safe='')}/output{query}", limit), id)
            if not part:
                break
            gap = gap or begin != offset
            data += part
            offset = begin + len(part)
        return bytes(data), gap

    async def _piece(self, path: str, most: int) -> Tuple[int, bytes]:
        answer = await self._http.open("GET", path)
        async with answer:
            if answer.status == 416:  # behind the end
                await answer.whole(MiB)
                return 0, b""
            if answer.status != 200:
                raise await self._http.explain(await answer.refusal())
            begin = answer.headers.get("x-output-offset", "")
            if not begin.isdecimal() or len(begin) > 15:
                raise Malformed("the answer does not say where the output begins")
            return int(begin), await answer.whole(most)

    async def cancel(self, id: str, wait: float = 10) -> Record:
        """Cancel an action and return its record, after its end or `wait` seconds.

        Refused with status 409: it ends by itself, or has left its command running; `detail` says what ends that.
        """
        return await repeat(lambda: self._record("DELETE", id, wait), id)

    async def signal(self, id: str, name: str) -> None:
        """Send a signal, such as "SIGHUP", to the processes of a program. Cut: it may have come."""
        await self._http.tell("POST", f"/v1/actions/{quote(id, safe='')}/signal", {"signal": name}, tries=1)

    async def resize(self, id: str, rows: int, columns: int) -> None:
        """Give the terminal of a program a size."""
        await self._http.tell("POST", f"/v1/actions/{quote(id, safe='')}/resize", {"rows": rows, "cols": columns})

    async def feed(self, id: str, source: BinaryIO) -> None:
        """Copy a binary file to the input of a program that was started with "stdin": "stream", and end the input.

        It goes as fast as the program reads, and returns early where the program stops reading.
        """
        await self._feed(id, source, [], [])

    async def _feed(self, id: str, source: BinaryIO, gone: List[bool], broken: List[Exception]) -> None:
        """Feed a program until its end or that of its caller. The error of the source is kept in `broken`."""
        offset = 0
        end = False
        try:
            while not end and not gone:
                try:
                    data = await _io.apart(getattr(source, "read1", source.read), INLINE)  # read would wait for all of it
                except Exception as e:
                    broken.append(e)
                    raise
                end = not data
                offset = await self._give(id, offset, data, end, gone)
        except ActiondError as e:
            if not isinstance(e, Refused) or e.status != 409:
                raise
        except BaseException:
            await self._abandon(id)
            raise

    async def _give(self, id: str, offset: int, data: bytes, end: bool, gone: List[bool]) -> int:
        """Send input until the program has it, and return the offset of the next byte."""
        tries = Tries(id, "input of a program")
        while not gone:
            query = _query(offset=offset, end=str(end).lower(), wait=WAIT)
            try:
                async with await self._http.ask("POST", f"/v1/actions/{quote(id, safe='')}/input{query}", body=data,
                                                kind="application/octet-stream") as answer:
                    told = decode(await answer.whole(MiB))
            except ActiondError as e:
                await tries.again(e)
                continue
            taken = pick(told, "offset", int) - offset
            if not 0 <= taken <= len(data):
                raise Malformed("the sandbox took more input than was sent")
            offset, data = offset + taken, data[taken:]
            tries.progress()
            if not data and pick(told, "ended", bool) == end:
                break
        return offset

    # Files.

    async def read(self, path: StrPath, *, max_bytes: int = 100 * MiB) -> bytes:
        """Return the bytes of a file. Paths are absolute, or relative to the working directory of the sandbox.

        FileNotFoundError, IsADirectoryError, PermissionError; TooLarge: it has more than `max_bytes`.
        """
        async def once() -> bytes:
            async with await self._http.ask("GET", f"/v1/files{_query(path=path)}") as answer:
                return await answer.whole(max_bytes)
        return await repeat(once)

    async def write(self, path: StrPath, data: Union[Bytes, str], *, mode: Optional[int] = None, if_sha256: str = "",
                    if_new: bool = False, action_id: Optional[str] = None) -> FileInfo:
        """Write a whole file at once; directories that are missing are made. Text is UTF-8.

        `mode` has the permission bits, such as 0o755. With `if_sha256`, the file must have this hash, and with
        `if_new` it must not be there: otherwise Refused with status 412, and nothing is done.
        """
        return await self._put(path, _bytes(data), mode, if_sha256, if_new, action_id)

    async def _put(self, path: StrPath, data: Union[bytes, Body], mode: Optional[int], if_sha256: str, if_new: bool,
                   action_id: Optional[str]) -> FileInfo:
        headers = {**({"If-Match": f'"{header_value("if_sha256", if_sha256)}"'} if if_sha256 else {}),
                   **({"If-None-Match": "*"} if if_new else {})}
        query = _query(path=path, mode=None if mode is None else f"{mode:o}")
        key = _identity(action_id)
        o = await self._result("PUT", f"/v1/files{query}", data, key, kind="application/octet-stream", headers=headers)
        return FileInfo.of(_checked(o, key))

    async def edit(self, path: StrPath, old: str, new: str, *, all: bool = False, action_id: Optional[str] = None) -> str:
        """Replace a text in a file, which must be there once, or with `all` any number of times; return the difference.

        Failed: `code` is "no_match", "multiple_matches" or another word; nothing was changed. FileNotFoundError: there is no such
        file.
        """
        path = os.fspath(path)
        if not path.startswith("/"):
            path = f"{pick(await self.server_info(), 'working_dir', str)}/{path}"
        args = {"command": "replace", "path": path, "old_str": old, "new_str": new, "allow_multiple": all}
        o = await self.act("edit", args, action_id=action_id)
        if o.get("outcome") == "failed":
            detail, code = pick(o, "content", str), pick(o, "code", str)
            detail = detail[len("ERROR:\n"):] if detail.startswith("ERROR:\n") else detail
            raise NotFound(404, detail, code) if code == "file_not_found" else Failed(detail, code)
        return pick(pick(o, "extras", dict), "diff", str)

    async def delete(self, path: StrPath, *, recursive: bool = False, action_id: Optional[str] = None) -> None:
        """Remove a file or a link, or with `recursive` a directory and all that is in it. FileNotFoundError: it is not there."""
        key = _identity(action_id)
        query = _query(path=path, recursive="true" if recursive else None)
        _checked(await self._result("DELETE", f"/v1/files{query}", b"", key), key)

    async def list(self, path: StrPath = "") -> List[Entry]:
        """Return what is in a directory, by default the working directory. FileNotFoundError, NotADirectoryError."""
        entries: List[Entry] = []
        after = ""
        while True:
            page = await self._http.tell("GET", f"/v1/list{_query(path=path or '.', after=after or None)}", most=64 * MiB)
            found = [Entry.of(e) for e in pick(page, "entries", list)]
            entries += found
            after, before = pick(page, "next", str), after
            if not after or not found or after == before:
                return entries

    async def upload(self, local: StrPath, remote: StrPath) -> None:
        """Send a local file to a path, or the contents of a local directory into a directory, which is made.

        Devices, FIFOs and sockets in a directory are left out.
        """
        local = os.fspath(local)
        if not os.path.isdir(local):
            file, size, mode = await _io.blocking(_archive.source, local)
            with file:
                await self._put(remote, Body(file, size), mode, "", False, None)
            return
        with await _io.blocking(_archive.pack, local) as spool:
            await self._unpack(remote, spool)

    async def _unpack(self, remote: StrPath, spool: Any) -> None:
        """Unpack an archive, which is a real file, into a directory, which is made."""
        key = _identity(None)
        spool.seek(0)
        body = Body(spool, os.fstat(spool.fileno()).st_size)
        headers = {"Idempotency-Key": key}

        async def once() -> None:
            path = f"/v1/unpack{_query(path=remote, create='true')}"
            async with await self._http.ask("POST", path, body=body, kind="application/x-tar", headers=headers, silence=600) as answer:
                await answer.whole(MiB)
        await repeat(once, key)

    async def download(self, remote: StrPath, local: StrPath, *, max_bytes: int = 10 << 30) -> List[str]:
        """Fetch a file to a local path, or the contents of a directory into a local directory, which is made.

        Nothing is written outside of it or through a link. Links that are absolute or leave it, devices, sockets and FIFOs are
        left out: the result says which. Incomplete: the sandbox's user may not read a file or a directory in it; the rest is
        there. TooLarge: it has more than `max_bytes`.
        """
        local = os.fspath(local)
        with tempfile.TemporaryFile() as spool:
            try:
                mode, mtime = await repeat(lambda: self._fetch(f"/v1/files{_query(path=remote)}", spool, max_bytes))
                await _io.blocking(_archive.save, spool, local, mode, mtime)
                return []
            except Refused as e:
                if not isinstance(e, IsDirectory) and e.status != 400:
                    raise
                await self._pack(remote, spool, max_bytes)
                return await _io.blocking(_archive.unpack, spool, local)

    async def _pack(self, remote: StrPath, spool: Any, max_bytes: int = 10 << 30) -> None:
        """Write an archive of a directory's contents to a file, and go to its start."""
        path = os.fspath(remote).rstrip("/") or "/"
        await repeat(lambda: self._fetch(f"/v1/pack{_query(path=path)}", spool, max_bytes))
        spool.seek(0)

    async def _fetch(self, path: str, spool: Any, most: int) -> Tuple[int, Optional[float]]:
        """Write the body of an answer to a file, and return the mode and the time that headers name."""
        spool.seek(0)
        spool.truncate()
        async with await self._http.ask("GET", path) as answer:
            while data := await answer.part():
                if spool.tell() + len(data) > most:
                    raise TooLarge(413, f"it has more than {most} bytes")
                await _io.blocking(spool.write, data)
            mode = answer.headers.get("x-file-mode", "")
            try:
                time: Optional[float] = parsedate_to_datetime(answer.headers["last-modified"]).timestamp()
            except (KeyError, TypeError, ValueError, OverflowError):
                time = None
            return int(mode, 8) & 0o777 if mode.isdecimal() and len(mode) < 6 and set(mode) <= set("01234567") else 0o644, time

    # What actions change in the workspace. States are "s16", "start", names of checkpoints, or numbers of actions, for the states after these.

    async def changes(self, since: Union[str, int] = "", until: Union[str, int] = "", *, path: str = "", diff: bool = False) -> Dict[str, Any]:
        """Return what changed between two states, by default from the beginning until now; with `diff` also the lines."""
        query = _query(since=since, until=until, path=path, diff="1" if diff else None)
        return await self._http.tell("GET", f"/v1/changes{query}", most=64 * MiB)

    async def restore(self, to: Union[str, int], *, paths: Optional[Sequence[str]] = None, dry_run: bool = False,
                      force: bool = False) -> Dict[str, Any]:
        """Make the workspace what it was in a state, or only some paths, and return what that changed.

        `refused` of the result are the paths that cannot be restored, and `restore(result["before"])` takes it back. With
        `dry_run` nothing is changed. Refused with status 409: an action runs; `force` does it all the same. NotFound, Gone: there
        is no such state. Cut: it may have been done.
        """
        return await self._restore({"to": str(to), "paths": None if paths is None else list(paths), "dry_run": dry_run, "force": force})

    async def undo(self, before: Optional[int] = None, *, only: Optional[int] = None, paths: Optional[Sequence[str]] = None,
                   dry_run: bool = False, force: bool = False) -> Dict[str, Any]:
        """Take back the last change, or all since before an action; with `only` that action alone. Otherwise as `restore`.

        Paths that changed after the action `only` are in `refused`.
        """
        what: Dict[str, Any] = {"before": before, "only": only, "last": before is None and only is None}
        return await self._restore({**what, "paths": None if paths is None else list(paths), "dry_run": dry_run, "force": force})

    async def _restore(self, request: Dict[str, Any]) -> Dict[str, Any]:
        sent = {name: value for name, value in request.items() if value not in (None, False)}
        return await self._http.tell("POST", "/v1/restore", sent, tries=1, most=64 * MiB, silence=LONG)

    async def checkpoint(self, name: str, *, verify: bool = False, wait_seconds: float = 60, expires_seconds: float = 0) -> Dict[str, Any]:
        """Give the present state a name. `missing` of the result counts files that a restore would refuse.

        With `verify` every file is looked at. `wait_seconds` bounds the wait for contents. For `expires_seconds` the state goes last where
        the store is full; then it makes room where there are 100 checkpoints. Refused with status 409: the name is taken.
        """
        asked: Dict[str, Any] = {"name": name, "verify": verify, "wait_seconds": wait_seconds, "expires_seconds": expires_seconds}
        return await self._http.tell("POST", "/v1/checkpoints", asked, tries=1, silence=LONG)

    async def checkpoints(self) -> List[Dict[str, Any]]:
        """Return the checkpoints, the oldest first."""
        return pick(await self._http.tell("GET", "/v1/checkpoints"), "checkpoints", list)

    async def remove_checkpoint(self, name: str) -> None:
        """Remove a checkpoint. NotFound: there is none."""
        await self._http.tell("DELETE", f"/v1/checkpoints/{quote(name, safe='')}", tries=1)

    async def attempt(self, action: str, args: Mapping[str, Any], *, session: str = "", wait: Optional[float] = None,
                      action_id: Optional[str] = None) -> Attempt:
        """Carry out an action as `act` does whose effects `keep` or `discard` then decides, with the id of the result.

        The state before is the checkpoint attempt/ID: after an exception, or where this program is killed, the attempt may be open, see
        `attempts`. Left: another attempt or a bisect is open.
        """
        key = _identity(action_id)
        name = _ATTEMPT + key
        points = await self.checkpoints()
        sent = any(p.get("name") == name for p in points)
        if not sent:
            _goes_on(points, _ATTEMPT, _BISECT)
            await self._keep_before(name, wait_seconds=10, expires_seconds=_DAY)
        try:
            o = _checked(await self._result("POST", "/v1/actions", _body(action, args, session, wait), key), key)
        except (ActiondError, GeneratorExit) as e:
            if isinstance(e, Refused) and 400 <= e.status < 500 and not sent:
                await self.remove_checkpoint(name)
            raise
        except BaseException:
            await self._abandon(key)
            raise
        record = await self._http.tell("GET", f"/v1/actions/{quote(key, safe='')}?wait=0", most=64 * MiB)
        return Attempt(key, o, pick(record, "changes", dict))

    async def attempts(self) -> List[Dict[str, Any]]:
        """Return the open attempts, the oldest first: the id is in `attempt`, the state before in `before`, and the begin in `time`."""
        return [{"attempt": p["name"][len(_ATTEMPT):], "before": pick(p, "state", str), "time": pick(p, "time", str)}
                for p in await self.checkpoints() if pick(p, "name", str).startswith(_ATTEMPT)]

    async def keep(self, attempt: str) -> Dict[str, Any]:
        """End an attempt and keep its effects, which are returned. NotFound: it is not open."""
        changed = await self.changes(_ATTEMPT + attempt)
        await self.remove_checkpoint(_ATTEMPT + attempt)
        return changed

    async def discard(self, attempt: str, *, force: bool = False) -> Dict[str, Any]:
        """End an attempt and take back all that changed since its begin, as `restore` does. NotFound: it is not open.

        Foreign: other actions, uploads or restores changed something since, and nothing was done. `force` takes that back too, also
        while actions run. Where one came in during the restore, Foreign names the state with its effects, and the attempt stays open.
        """
        before = [a["before"] for a in await self.attempts() if a["attempt"] == attempt]
        if not before:
            raise NotFound(404, f"there is no open attempt {attempt!r}")
        if not force:
            try:
                record = await self._http.tell("GET", f"/v1/actions/{quote(attempt, safe='')}?wait=0", most=64 * MiB)
            except NotFound:
                record = {}
            own = {pick(record, "n", int)}
            await self._only_own(before[0], own, [])
        done = await self.restore(_ATTEMPT + attempt, force=force)
        if not force:  # one may have come in between
            try:
                await self._only_own(before[0], own, [done])
            except Foreign as e:
                raise Foreign(f"{e}; the state before the restore is {pick(done, 'before', str)}") from e
        await self.remove_checkpoint(_ATTEMPT + attempt)
        return done

    async def _keep_before(self, name: str, **more: Any) -> str:
        """Make the checkpoint of an attempt or a bisect, and return its state. Where no answer comes, it is removed."""
        try:
            return pick(await self.checkpoint(name, **more), "state", str)
        except BaseException as e:
            if not isinstance(e, Refused):
                with contextlib.suppress(ActiondError):
                    await self.remove_checkpoint(name)
            raise

    async def _entries(self, state: str) -> List[Dict[str, Any]]:
        """Return the entries of the log after a state, the newest first, but for actions that ended together.

        Those whose state is not known are left out.
        """
        entries: List[Dict[str, Any]] = []
        before = 0
        while True:
            page = await self._http.tell("GET", f"/v1/changes/log{_query(limit=1000, before=before or None)}", most=64 * MiB)
            listed = pick(page, "entries", list)
            entries += [e for e in listed if _number(pick(e, "after", str)) > _number(state)]
            following = pick(page, "next", int)
            earlier = listed and 0 < _number(pick(listed[-1], "after", str)) <= _number(state)
            if earlier or not following or before and following >= before:
                return entries
            before = following

    async def _only_own(self, state: str, actions: Set[int], restored: List[Dict[str, Any]]) -> None:
        """Raise Foreign if the log has an action, upload or restore after a state that is not one of these."""
        after = {pick(r, "after", str) for r in restored}
        for e in await self._entries(state):
            n, cause, ended = e.get("n"), pick(e, "cause", str), pick(e, "after", str)
            if n is not None and n not in actions or cause == "upload" or cause == "restore" and ended not in after:
                what = f"action {n}" if n is not None else cause
                raise Foreign(f"another client changed the workspace: {what}, after which it was {ended}")

    async def bisect(self, good: Union[str, int], bad: Union[str, int], command: Union[str, Sequence[str]], *,
                     timeout: float = 600) -> AsyncIterator[Dict[str, Any]]:
        """Find the action that broke something: yield an event "testing" and "tested" for each test, and "result" at the end.

        `command` is a line for /bin/sh, or words: exit code 0 is good, 125 cannot be tested, others are bad. A test may take `timeout`
        seconds. The tests are actions as any other. The present is restored at the end, also where the iteration is closed. `detail`
        of an event "tested" or "result" says which paths a restore could not bring back.

        Failed: a test could not be carried out. Foreign: another client changed something, and the workspace is left as it is. Left: an
        earlier bisect did not end. In both cases, and where this program is killed, the present of before is the checkpoint
        before-bisect-TIME, which the message names.
        """
        _goes_on(await self.checkpoints(), _BISECT)
        ends = await self.changes(str(good), str(bad))
        first, last = pick(ends, "before", str), pick(ends, "after", str)
        if not 0 < _number(first) < _number(last):
            raise ValueError(f"the good state must be before the bad one, and {first} is not before {last}")
        found: Dict[str, int] = {last: 0}
        for e in await self._entries(first):
            if _number(pick(e, "after", str)) <= _number(last):
                found[e["after"]] = max(found.get(e["after"], 0), e.get("n") or 0)
        states = sorted(found, key=_number)
        name = _BISECT + time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        present = await self._keep_before(name, verify=True, expires_seconds=min(_DAY + len(states) * timeout, 366 * _DAY))
        actions: Set[int] = set()
        skipped: Set[int] = set()
        restored: List[Dict[str, Any]] = []

        async def go(to: str) -> None:
            restored.append(await self.restore(to))
        low, high, tests, moved, stays = -1, len(states) - 1, 0, False, False
        try:
            while True:
                middle = low + (high - low) // 2
                left = [i for i in range(low + 1, high) if i not in skipped]
                if not left:
                    break
                i = min(left, key=lambda i: abs(i - middle))
                event: Dict[str, Any] = {"state": states[i], "n": found[states[i]], "left": (high - low - 1).bit_length()}
                await self._only_own(present, actions, restored)
                try:
                    would = await self.restore(states[i], dry_run=True)
                except (NotFound, Gone):
                    skipped.add(i)
                    continue
                if would.get("lost"):
                    written = {_name(p) for p in pick(await self.changes(present, pick(would, "before", str)), "paths", list)}
                    lost = [p for p in map(_name, would["lost"]) if p not in written]
                    if lost:
                        raise Failed(f"restoring {states[i]} would lose {lost[0]!r}, whose content is not kept")
                yield {"event": "testing", **event}
                moved, tests, key = True, tests + 1, _identity(None)
                try:
                    await _io.Background(lambda: go(states[i])).end()  # the server ends it anyway, and its answer says that it is ours
                except Refused as e:
                    moved = e.status != 409 or bool(restored)
                    raise
                try:
                    ended = await self.exec(command, timeout=timeout, action_id=key)
                finally:  # one that was cancelled has ended after it
                    record = await self._http.tell("GET", f"/v1/actions/{quote(key, safe='')}?wait=10", most=64 * MiB)
                    actions.add(pick(record, "n", int))
                code, output = ended.returncode, ended.output[-4096:]
                if ended.timed_out or code in (None, 126, 127):
                    why = f"took longer than {timeout} seconds" if ended.timed_out else f"cannot be run (exit code {code})"
                    raise Failed(f"the command {why} in {states[i]}; its output ends with: {output}")
                verdict = {0: "good", 125: "skip"}.get(code or 0, "bad")
                if verdict == "skip":
                    skipped.add(i)
                low, high = i if verdict == "good" else low, i if verdict == "bad" else high
                yield {"event": "tested", **event, "verdict": verdict, "exit_code": code, "output": output, **_not_restored(restored[-1])}
        except Foreign as e:
            stays = moved
            raise Foreign(f"{e}; the workspace is left as it is, and the checkpoint {name} has the state before") if moved else e
        finally:
            if not stays:
                detail = await self._go_back(name, present, actions, restored, moved)
                if detail and left:  # an error or the caller ended the search
                    raise Left(detail["detail"])
        yield {"event": "result", "state": states[high], "n": found[states[high]], "tests": tests, "skipped": states[low + 1:high], **detail}

    async def _go_back(self, name: str, present: str, actions: Set[int], restored: List[Dict[str, Any]], moved: bool) -> Dict[str, str]:
        """Restore the present of a bisect, and remove its checkpoint, or return the detail of paths that did not come back."""
        if moved:
            try:
                await self._only_own(present, actions, restored)
                restored.append(await self.restore(name))
                await self._only_own(present, actions, restored)  # one may have come in between
            except ActiondError as e:
                raise Left(f"restoring the present: {e}; the checkpoint {name} has it") from e
            detail = _not_restored(restored[-1])
            if detail:
                return {"detail": f"{detail['detail']}; the checkpoint {name} has the state before"}
        await self.remove_checkpoint(name)
        return {}

    # Tools of models, sessions, ports and the server.

    async def tools(self, dialect: str = "", format: str = "openai") -> List[Any]:
        """Return the tools of a dialect that the sandbox has, defined for a model API: "openai", "openai-responses", "anthropic",
        "gemini" or "mcp". The dialect "actiond" fits GPT and most other models."""
        return pick(await self._http.tell("GET", f"/v1/tools{_query(dialect=dialect, format=format)}"), "tools", list)

    async def call(self, name: str, arguments: Union[str, Mapping[str, Any], None], *, dialect: str = "", tool_call_id: Optional[str] = None,
                   session: str = "", wait: Optional[float] = None, action_id: Optional[str] = None) -> ToolResult:
        """Carry out a tool call of a model, with arguments as the model wrote them. What the model did wrong is a result too.

        A cancelled task or Ctrl-C cancels the call. Unknown: the server died meanwhile.
        """
        call = {"name": name, "arguments": arguments if isinstance(arguments, str) else dict(arguments or {}), "dialect": dialect or None,
                "tool_call_id": tool_call_id, "session": session or None, "timeout": wait}
        key = _identity(action_id)
        try:
            o = await self._result("POST", "/v1/tools/call", encode({n: v for n, v in call.items() if v is not None}), key)
        except (ActiondError, GeneratorExit):
            raise
        except BaseException:
            await self._abandon(key)
            raise
        if o.get("outcome") == "unknown":
            raise _unknown(o, key)
        return ToolResult.of(o, key)

    async def sessions(self) -> List[Dict[str, Any]]:
        """Return the sessions of the sandbox as the API describes them."""
        return pick(await self._http.tell("GET", "/v1/sessions"), "sessions", list)

    async def close_session(self, name: str = "default") -> None:
        """End the shell and the kernel of a session, and what runs in them. NotFound: there is none."""
        await self._http.tell("DELETE", f"/v1/sessions/{quote(name, safe='')}")

    async def ports(self) -> List[Port]:
        """Return the TCP ports that processes of the sandbox listen on."""
        return [Port.of(p) for p in pick(await self._http.tell("GET", "/v1/ports"), "ports", list)]

    async def preview(self, port: int, ttl_seconds: int = 3600) -> Preview:
        """Return an address of a web application in the sandbox that needs no key for so many seconds, a week at most.

        ActiondError: the sandbox is not that of a gateway.
        """
        if not self._gateway:
            raise ActiondError("only a gateway has previews: take the sandbox from a Client")
        told = await self._gateway._http.tell("POST", f"/{quote(self.id, safe='')}/ports/{port:d}/url", {"ttl_seconds": ttl_seconds})
        return Preview(pick(told, "url", str), pick(told, "expires", str))

    async def server_info(self) -> Dict[str, Any]:
        """Return what the server is, uses and can do, as the API describes it."""
        return await self._http.tell("GET", "/server_info")

    async def usage(self) -> Dict[str, Any]:
        """Return what all processes of the sandbox use together, as the API describes it."""
        return await self._http.tell("GET", "/v1/usage")


class AsyncClient:
    """A gateway (`runtimectl serve`): it creates, lists and removes sandboxes. Use it as a context manager, or `close` it."""

    def __init__(self, url: str = "", key: str = "", *, tls: Optional[ssl.SSLContext] = None) -> None:
        """Take the gateway at a URL, by default ACTIOND_URL, with its key, by default ACTIOND_API_KEY.

        ValueError: the URL or the key is none.
        """
        key = key or os.environ.get("ACTIOND_API_KEY", "")
        self._pool = Pool(parse(url or os.environ.get("ACTIOND_URL", "")), tls)
        headers = {"User-Agent": "actiond-python"}
        if key:
            headers["X-API-Key"] = header_value("the key", key)
        self._http = Http(self._pool, "/v1/sandboxes", headers, (key,) if key else ())
        self._child: Optional[_launch.Child] = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._pool.address}>"

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections. A gateway that `docker` started ends, and removes the sandboxes that it created."""
        self._pool.close()
        if self._child:
            await _io.blocking(self._child.stop)

    async def create(self, image: str = "", *, key: Optional[str] = None, name: str = "", owner: str = "",
                     env: Optional[Mapping[str, str]] = None, labels: Optional[Mapping[str, str]] = None, user: str = "",
                     working_dir: str = "", memory: Union[int, str] = 0, cpus: float = 0, gpus: Union[int, str] = 0,
                     network: Union[str, Mapping[str, Any]] = "", ttl_seconds: int = 0, idle_seconds: int = 0, pull: str = "",
                     **more: Any) -> AsyncSandbox:
        """Create a sandbox, and return when a command ran in its shell. What is not given is the gateway's default.

        `memory` is in bytes or a text such as "2g", `cpus` in processors. `gpus` is a number, "all", or "device=" and UUIDs with commas
        between them. `ttl_seconds` is how long it lives, and `idle_seconds` how long it may be idle. `network` is "bridge", "none" or a
        policy. `key` identifies the creation (at most 256 characters): the same key with the same arguments gives the same sandbox.
        `more` are members of the API that have no argument here.

        Busy: there are too many, or no GPU is free. Refused with status 409: the name is taken; 422: it did not start.
        """
        spec: Dict[str, Any] = {
            "image": image, "name": name, "owner": owner, "env": dict(env or {}), "labels": dict(labels or {}), "user": user,
            "working_dir": working_dir, "memory": _size(memory), "cpus": cpus, "gpus": gpus,
            "network": network if isinstance(network, str) else dict(network),
            "ttl_seconds": ttl_seconds, "idle_limit_seconds": idle_seconds, "pull": pull,
        }
        spec = {**{name: value for name, value in spec.items() if value}, **more}
        headers = {"Idempotency-Key": _identity(key)}
        sandbox = self._sandbox(await self._http.tell("POST", "", spec, headers=headers, key=headers["Idempotency-Key"], silence=CREATION))
        sandbox._mine = os.getpid()
        return sandbox

    async def get(self, id: str) -> AsyncSandbox:
        """Return a sandbox by its id or name. NotFound: there is none. SandboxEnded: there was one."""
        return self._sandbox(await self._http.tell("GET", f"/{quote(id, safe='')}"))

    async def list(self, *filters: str, limit: int = 100, after: str = "") -> Page:
        """Return sandboxes that fit all filters, such as "owner=me" or "label=team=a", the eldest first."""
        query = urlencode([("filter", f) for f in filters] + [("limit", str(limit))] + ([("after", after)] if after else []))
        page = await self._http.tell("GET", f"?{query}")
        return Page([SandboxInfo.of(s) for s in pick(page, "sandboxes", list)], pick(page, "next", str))

    async def delete(self, id: str) -> None:
        """Remove a sandbox with everything in it. One that is not there is no error."""
        try:
            await self._http.tell("DELETE", f"/{quote(id, safe='')}", silence=CREATION)
        except (NotFound, SandboxEnded):
            pass

    async def renew(self, id: str, ttl_seconds: int) -> SandboxInfo:
        """Let a sandbox live for so many seconds from now on; 0 is forever."""
        return SandboxInfo.of(await self._http.tell("POST", f"/{quote(id, safe='')}/renew", {"ttl_seconds": ttl_seconds}))

    async def stop(self, id: str) -> SandboxInfo:
        """End the processes of a sandbox and keep its files."""
        return await self._do(id, "stop")

    async def start(self, id: str) -> SandboxInfo:
        """Start a stopped sandbox."""
        return await self._do(id, "start")

    async def pause(self, id: str) -> SandboxInfo:
        """Freeze the processes of a sandbox."""
        return await self._do(id, "pause")

    async def resume(self, id: str) -> SandboxInfo:
        """Let the processes of a paused sandbox go on."""
        return await self._do(id, "resume")

    async def network(self, id: str) -> Dict[str, Any]:
        """Return the network policy of a sandbox, and what its connections do, as the API describes it."""
        return await self._http.tell("GET", f"/{quote(id, safe='')}/network")

    async def set_network(self, id: str, policy: Mapping[str, Any], *, generation: Optional[int] = None) -> Dict[str, Any]:
        """Replace the network policy of a sandbox, and return the new state once connections that it refuses have ended.

        With `generation`, only a policy of that generation. Refused with status 412: it is of another one; 409: there
        is none; 422: a rule is wrong. Busy: it may be stored and not applied, and nothing is reached until it is.
        """
        return await self._network("PUT", id, policy, generation)

    async def change_network(self, id: str, *, generation: Optional[int] = None, **changes: Any) -> Dict[str, Any]:
        """Change parts of a policy as `set_network` replaces it: `mode`, `allow_add`, `deny_remove` and others of the API."""
        return await self._network("PATCH", id, changes, generation)

    async def denied(self, id: str, *, after: int = 0, wait: int = 0) -> List[Dict[str, Any]]:
        """Return the refused connections after a number, the oldest first, once there are any or `wait` seconds are over."""
        path = f"/{quote(id, safe='')}/network/denied?after={int(after)}&wait={int(wait)}"
        return pick(await self._http.tell("GET", path, silence=wait + SILENCE), "denied", list)

    async def _network(self, method: str, id: str, body: Mapping[str, Any], generation: Optional[int]) -> Dict[str, Any]:
        headers = {} if generation is None else {"If-Match": f'"{int(generation)}"'}  # a second try would find its own change
        return await self._http.tell(method, f"/{quote(id, safe='')}/network", dict(body), headers=headers, tries=len(headers))

    async def _do(self, id: str, verb: str) -> SandboxInfo:
        return SandboxInfo.of(await self._http.tell("POST", f"/{quote(id, safe='')}/{verb}", silence=CREATION))

    def _sandbox(self, told: Dict[str, Any]) -> AsyncSandbox:
        """Return the sandbox of an answer. Its URL is below the gateway's own: the key goes nowhere else."""
        info = SandboxInfo.of(told)
        if not info.id or not info.id.isalnum() or not info.id.isascii():
            raise Malformed("the id of the sandbox is none")
        sandbox = AsyncSandbox.__new__(AsyncSandbox)
        session_key = pick(told, "session_api_key", str)
        headers = {"User-Agent": "actiond-python"}
        if session_key:
            headers["X-Session-API-Key"] = header_value("the key of the sandbox", session_key)
        sandbox._http = Http(self._pool, f"/sandboxes/{info.id}", headers, (session_key,) if session_key else (), gateway=self._http,
                             id=info.id, child=self._child)
        sandbox._gateway, sandbox._child, sandbox._mine = self, None, 0
        sandbox.id, sandbox.info = info.id, info
        return sandbox


async def async_local(directory: str = "", *, server: str = "") -> AsyncSandbox:
    """Start a server on this machine and return its sandbox, which isolates nothing: commands run as this user.

    It warns of that; warnings.filterwarnings("ignore", "actiond.local") silences it. `docker` isolates.

    It works in `directory`, by default a new one that is removed at the end. `server` is the program, by default
    ACTIOND_SERVER, the one in this package, or that beside `runtimectl` on PATH. It ends, with all processes that it started,
    with the context or `close`, with this program, however that ends, and after eight hours without work.

    FileNotFoundError: there is no such program. ActiondError: it did not start.
    """
    warnings.warn(f"actiond.local() isolates nothing: commands run on this machine with all rights of user {os.geteuid()}", RuntimeWarning, 2)
    child = await _io.blocking(_launch.start_server, directory, server)
    sandbox = AsyncSandbox(child.url)
    sandbox._child = sandbox._http.child = child
    return sandbox


async def async_docker(*flags: str, runtimectl: str = "") -> AsyncClient:
    """Start a gateway to the Docker engine of this machine with flags of `runtimectl serve`, and return its client.

    The sandboxes that it creates are removed with the context or `close`, and when this program ends, however that is.
    `runtimectl` is the program, by default ACTIOND_RUNTIMECTL, the one in this package, or that on PATH.

    FileNotFoundError: there is no such program. ActiondError: it did not start.
    """
    child = await _io.blocking(_launch.start_gateway, flags, runtimectl)
    client = AsyncClient(child.url, child.key)
    client._child = child
    return client


def _goes_on(points: List[Dict[str, Any]], *prefixes: str) -> None:
    """Raise Left if a checkpoint is of an attempt or a bisect that did not end."""
    now = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    for p in points:
        name = pick(p, "name", str)
        if name.startswith(prefixes) and pick(p, "expires", str) > now:
            raise Left(f"an attempt or a bisect is open, which began at {pick(p, 'time', str)}; the checkpoint {name} has the state before")


def _number(state: str) -> int:
    """Return the number of a state such as s16, 0 if it is none."""
    return int(state[1:]) if re.fullmatch("s[0-9]{1,19}", state) else 0


def _not_restored(done: Dict[str, Any]) -> Dict[str, str]:
    """Return the detail of an event of a bisect, if paths are not what they were in the state that was restored."""
    refused = pick(done, "refused", list)
    if not refused:
        return {}
    more = f"{pick(done, 'refused_count', int)} paths are not what they were, such as "
    return {"detail": one_line(f"{more}{_name(refused[0])!r}: {pick(refused[0], 'why', str)}")}


def _name(path: Any) -> str:
    """Return the path of a change, of a refusal, or in a list."""
    if isinstance(path, dict):
        return path.get("path") or path.get("path_base64") or path.get("base64") or ""
    return str(path)


def _identity(key: Optional[str]) -> str:
    """Return an id: the caller's, or a new one."""
    if key is None:
        return str(uuid.uuid4())
    if not 1 <= len(key) <= 255 or not all("!" <= c <= "~" for c in key) or key in (".", ".."):
        raise ValueError("an id must have 1 to 255 visible ASCII characters, and be neither . nor ..")
    return key


def _bytes(data: Any) -> bytes:
    """Return text and objects like bytes as bytes. TypeError: it is something else."""
    return data.encode() if isinstance(data, str) else data if isinstance(data, bytes) else bytes(memoryview(data))


def _size(size: Union[int, str]) -> int:
    """Return a size in bytes: "2g" and "1.5G" are numbers of powers of 1024. ValueError: it is none."""
    if not isinstance(size, str):
        return size
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([bkmgt]?)(?:i?b)?", size.strip().lower())
    if not match:
        raise ValueError(f"memory must be a number of bytes, or a text such as \"512m\" or \"2g\", and not {size!r}")
    return int(float(match[1]) * 1024 ** " kmgt".find(match[2].strip("b") or " "))


def _body(action: str, args: Mapping[str, Any], session: str, wait: Optional[float]) -> bytes:
    envelope: Dict[str, Any] = {"action": action, "args": dict(args)}
    if session:
        envelope["session"] = session
    if wait is not None:
        envelope["timeout"] = wait
    return encode({"action": envelope})


def _query(**parameters: Any) -> str:
    known = {name: value for name, value in parameters.items() if value not in (None, "")}
    return "?" + urlencode(known, quote_via=quote, safe="", errors="surrogateescape") if known else ""


def _checked(o: Observation, key: str) -> Observation:
    """Return an observation, or raise what it says instead of a result."""
    outcome = o.get("outcome")
    if outcome == "unknown":
        raise _unknown(o, key)
    if "observation" not in o or o["observation"] == "error":
        code, content = pick(o, "code", str), pick(o, "content", str)
        if outcome == "not_started" or outcome == "cancelled":
            raise NotRun(code or str(outcome), content)
        raise Failed(content, code)
    return o


def _unknown(o: Observation, key: str) -> Unknown:
    return Unknown(key, pick(o, "content", str).partition("What it printed:\n")[2])


def _failure(event: Dict[str, Any], key: str) -> ActiondError:
    """Return the exception for an event that ends a stream without an observation."""
    status, detail = pick(event, "status", int), pick(event, "detail", str)
    if detail.startswith("the result is unknown:"):
        return Unknown(key, detail.partition("What it printed:\n")[2])
    return refused(status, detail)


def _again_by_post(error: ActiondError, can: bool) -> ActiondError:
    """Return a cut in the place of an answer that a server does not know an action, where that can be sent again."""
    if can and isinstance(error, Refused) and error.status in (400, 404):
        return Broken("the server does not know the action")
    return error
