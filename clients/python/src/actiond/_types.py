"""What the methods return: frozen dataclasses."""

from __future__ import annotations

import base64
import binascii
import signal as signals
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Type, TypeVar

from ._errors import Malformed, one_line

T = TypeVar("T")


def pick(answer: Any, name: str, kind: Type[T]) -> T:
    """Return a member of an answer, or the zero value of its type where it is absent or null."""
    value = answer.get(name) if isinstance(answer, dict) else answer
    if value is None:
        return kind()
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise Malformed(f"{one_line(name)} of the answer is no {kind.__name__}")
    return value


def _words(answer: Any, names: str) -> Dict[str, Any]:
    return {name: pick(answer, name, str) for name in names.split()}


def maybe(answer: Any, name: str, kind: Type[T]) -> Optional[T]:
    """Return a member of an answer, or None where it is absent or null."""
    return None if answer.get(name) is None else pick(answer, name, kind)


def unbase64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as e:
        raise Malformed("the answer has invalid base64") from e


@dataclass(frozen=True)
class Waiting:
    """Why a command or program has not ended, by what the kernel knows.

    `reason` is a word such as "input", "busy", "network", "sleep" or "unknown"; `on` is the file, peer or thing;
    `prompt` is the last line of the output where input is waited for; `silent` is the age of the last output in
    seconds; `text` says all of it in sentences, for a model.
    """

    reason: str
    on: str
    prompt: str
    silent: float
    text: str

    @classmethod
    def of(cls, answer: Any) -> Optional[Waiting]:
        w = pick(answer, "waiting", dict)
        return cls(**_words(w, "on prompt text"), reason=pick(w, "for", str), silent=pick(w, "silent", float)) if w else None


@dataclass(frozen=True)
class RunResult:
    """The result of a command in a persistent shell.

    `output` is what a person would have seen on the terminal, shortened in the middle beyond 30,000 characters.
    `exit_code` is None while the command runs. `running` says that it was answered before its end: `waiting` says
    why. `notice` has the server's words about the command; `shell_replaced` is {"reason", "signal"} where the
    session has a new shell, otherwise empty. `code` is a word such as "timed_out", or "".
    """

    output: str
    exit_code: Optional[int]
    running: bool
    waiting: Optional[Waiting]
    working_dir: str
    notice: str
    shell_replaced: Dict[str, Any]
    code: str
    action_id: str

    @classmethod
    def of(cls, o: Dict[str, Any], action_id: str) -> RunResult:
        meta = pick(pick(o, "extras", dict), "metadata", dict)
        running = o.get("outcome") == "running"
        notice = (pick(meta, "prefix", str) + pick(meta, "suffix", str)).strip()
        return cls(pick(o, "content", str), None if running else pick(meta, "exit_code", int), running, Waiting.of(meta),
                   pick(meta, "working_dir", str), notice, pick(meta, "shell_replaced", dict), pick(o, "code", str), action_id)


@dataclass(frozen=True)
class ExecResult:
    """The result of a program.

    `returncode` is as in subprocess: the exit code, the negative number of the signal that ended the program, or
    None while it runs; `signal` is the name of that signal, or "". `timed_out` says that `timeout` ended the program.
    `stdout_bytes` and `stderr_bytes` have at most `max_output` bytes of the beginning of each stream, as UTF-8
    `stdout` and `stderr`; `truncated` says that bytes are missing. `output` has both streams in the order of
    arrival, shortened in the middle beyond 30,000 characters. `cpu_seconds` and `max_rss` (bytes) are None where
    the kernel does not tell them.
    """

    returncode: Optional[int]
    stdout_bytes: bytes = field(repr=False)
    stderr_bytes: bytes = field(repr=False)
    output: str
    truncated: bool
    timed_out: bool
    running: bool
    signal: str
    pid: Optional[int]
    cpu_seconds: Optional[float]
    max_rss: Optional[int]
    waiting: Optional[Waiting]
    action_id: str

    @property
    def stdout(self) -> str:
        """Standard output; what is not UTF-8 is U+FFFD."""
        return self.stdout_bytes.decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        """Standard error; what is not UTF-8 is U+FFFD."""
        return self.stderr_bytes.decode("utf-8", "replace")

    @property
    def ok(self) -> bool:
        """Whether the program ended with exit code 0."""
        return self.returncode == 0

    @classmethod
    def of(cls, o: Dict[str, Any], action_id: str, stdout: bytes, stderr: bytes, truncated: bool) -> ExecResult:
        extras = pick(o, "extras", dict)
        name = pick(extras, "signal", str)
        code = maybe(extras, "exit_code", int)
        if name:
            code = -int(getattr(signals, name, 255)) if name.startswith("SIG") else -255
        return cls(code, stdout, stderr, pick(o, "content", str), truncated, extras.get("ended_by") == "kill_after",
                   o.get("outcome") == "running", name, maybe(extras, "pid", int), maybe(extras, "cpu_seconds", float),
                   maybe(extras, "max_rss", int), Waiting.of(extras), action_id)


@dataclass(frozen=True)
class Output:
    """Bytes that an action printed: `stream` is "stdout" or "stderr" of a program, "" for a terminal.

    `offset` is that of the first byte in its stream, and `missed` how many bytes before it are not kept.
    `seq` numbers the outputs of an action: `follow(id, after=seq)` goes on behind this one.
    """

    seq: int
    stream: str
    offset: int
    missed: int
    data: bytes

    @property
    def text(self) -> str:
        """The bytes as UTF-8; what is not UTF-8 is U+FFFD."""
        return self.data.decode("utf-8", "replace")

    @classmethod
    def of(cls, event: Dict[str, Any]) -> Output:
        coded = pick(event, "base64", str)
        data = unbase64(coded) if coded else pick(event, "text", str).encode("utf-8", "replace")
        return cls(pick(event, "seq", int), pick(event, "stream", str), pick(event, "offset", int), pick(event, "missed", int), data)


@dataclass(frozen=True)
class Record:
    """What the journal knows of an action.

    `state` is "reserved", "running", "done", "cancelled", "refused" or "unknown"; `outcome` is "running",
    "succeeded", "failed", "cancelled", "not_started" or "unknown"; `kind` is the action's name, and `text` the start
    of its command. `begin` and `end` are times as in RFC 3339; `end` is "" where there is none. `observation` is the
    result, empty while there is none and in lists. `n` is the number that `undo` takes.
    """

    id: str
    state: str
    outcome: str
    code: str
    session: str
    kind: str
    text: str
    begin: str
    end: str
    output_bytes: int
    waiting: Optional[Waiting]
    observation: Dict[str, Any] = field(repr=False)
    n: int = 0

    @property
    def ended(self) -> bool:
        """Whether the action was answered, or will not run."""
        return self.state not in ("reserved", "running")

    @classmethod
    def of(cls, a: Any) -> Record:
        return cls(**_words(a, "id state outcome code session kind text begin end"), output_bytes=pick(a, "output_bytes", int),
                   waiting=Waiting.of(a), observation=pick(a, "observation", dict), n=pick(a, "n", int))


@dataclass(frozen=True)
class Attempt:
    """An action whose effects are kept or discarded.

    `id` is also that of the action, `observation` its result, and `changes` is what it changed as the API describes it, empty
    where that is not known.
    """

    id: str
    observation: Dict[str, Any] = field(repr=False)
    changes: Dict[str, Any] = field(repr=False)


@dataclass(frozen=True)
class FileInfo:
    """A file that was written: its path, the SHA-256 of its bytes in hexadecimal, its size in bytes, and whether it is new."""

    path: str
    sha256: str
    size: int
    created: bool

    @classmethod
    def of(cls, o: Dict[str, Any]) -> FileInfo:
        e = pick(o, "extras", dict)
        return cls(pick(e, "path", str), pick(e, "sha256", str), pick(e, "size", int), pick(e, "created", bool))


@dataclass(frozen=True)
class Entry:
    """What a directory has: `name` relative to it, `type` ("file", "directory", "symlink" or another word), `size` in bytes,
    `mode` as an octal number in text, `modified` as in RFC 3339, and `target` of a link."""

    name: str
    type: str
    size: int
    mode: str
    modified: str
    target: str

    @property
    def is_dir(self) -> bool:
        """Whether it is a directory."""
        return self.type == "directory"

    @classmethod
    def of(cls, e: Any) -> Entry:
        return cls(**_words(e, "name type mode modified target"), size=pick(e, "size", int))


@dataclass(frozen=True)
class ToolResult:
    """The answer to a tool call of a model: `text` is for the model, `is_error` and `error_code` say what went wrong,
    and `observation` is all of the answer, images included."""

    text: str
    is_error: bool
    error_code: str
    action_id: str
    observation: Dict[str, Any] = field(repr=False)

    @classmethod
    def of(cls, o: Dict[str, Any], action_id: str) -> ToolResult:
        return cls(pick(o, "text", str), pick(o, "is_error", bool), pick(o, "error_code", str), action_id, o)


@dataclass(frozen=True)
class Port:
    """A TCP port that a process of the sandbox listens on. `forwards` says whether previews reach it."""

    port: int
    addresses: List[str]
    pid: int
    process: str
    command: str
    forwards: bool

    @classmethod
    def of(cls, p: Any) -> Port:
        return cls(**_words(p, "process command"), port=pick(p, "port", int), pid=pick(p, "pid", int),
                   addresses=[str(a) for a in pick(p, "addresses", list)], forwards=pick(p, "forwards", bool))


@dataclass(frozen=True)
class Preview:
    """An address of a web application in a sandbox that needs no key until `expires` (RFC 3339). It is a secret, and not in the repr."""

    url: str = field(repr=False)
    expires: str


@dataclass(frozen=True)
class SandboxInfo:
    """A sandbox as its gateway knows it: `state` is "pending", "creating", "starting", "ready", "paused", "stopped",
    "unknown" or "gone"; `created` and `deadline` are times as in RFC 3339, `deadline` "" for never; limits in seconds;
    `gpus` "" for none, "device=" and their names, or a number."""

    id: str
    name: str
    owner: str
    image: str
    state: str
    created: str
    deadline: str
    idle_limit_seconds: int
    labels: Dict[str, str]
    gpus: str = ""

    @classmethod
    def of(cls, s: Any) -> SandboxInfo:
        labels = {str(name): str(value) for name, value in pick(s, "labels", dict).items()}
        return cls(**_words(s, "id name owner image state created deadline gpus"), labels=labels,
                   idle_limit_seconds=pick(s, "idle_limit_seconds", int))


@dataclass(frozen=True)
class Page:
    """Some of the sandboxes of a gateway; `next` is `after` of the following page, "" at the end."""

    sandboxes: List[SandboxInfo]
    next: str
