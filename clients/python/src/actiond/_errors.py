"""The exceptions of this package. All of them are an ActiondError, and can be pickled."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any, Dict, List, Tuple, Type

if TYPE_CHECKING:
    from ._types import ExecResult

MAX_TEXT = 4096  # characters of a server's words in the text of an exception


def one_line(text: str) -> str:
    """Return the start of text with invisible characters escaped: the server may be an attacker's."""
    more = "..." if len(text) > MAX_TEXT else ""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[:MAX_TEXT]) + more


class ActiondError(Exception):
    """The base of all exceptions of this package."""

    def __reduce__(self) -> Tuple[Any, ...]:
        return type(self), self.args


class Unreachable(ActiondError, ConnectionError):
    """No connection could be made. Nothing was sent."""


class Broken(ActiondError, ConnectionError):
    """The connection broke during a request. The caller of a public method sees it as the cause of a Cut."""


class Malformed(ActiondError):
    """An answer breaks the protocol, or a bound on its size. A request that changes something may have done so."""


class Cut(ActiondError, ConnectionError):
    """The connection broke after a request was sent, and asking again failed ten times in a row.

    The action may run. `action_id` is its id, "" for a request without one: ask by
    `Sandbox.action(action_id)`, or repeat the call with the same `action_id`. `last` is the last failure in words.
    """

    def __init__(self, action_id: str = "", last: str = "") -> None:
        Exception.__init__(self, action_id, last)
        self.action_id, self.last = action_id, last

    def __str__(self) -> str:
        action = f"; the action {self.action_id} may run" if self.action_id else ""
        return f"the connection broke and does not come back{action}" + (f"; at last: {self.last}" if self.last else "")


class Unknown(ActiondError):
    """The action began, and its end was not seen: the server died meanwhile. It does not run again.

    `action_id` is its id, and `output` what it printed until then.
    """

    def __init__(self, action_id: str, output: str = "") -> None:
        Exception.__init__(self, action_id, output)
        self.action_id, self.output = action_id, output

    def __str__(self) -> str:
        return f"the result of the action {self.action_id} is unknown: it began, and its end was not seen"


class NotRun(ActiondError):
    """The action did nothing. `state` says why: "busy", "cancelled" or "refused"; `detail` says it in words."""

    def __init__(self, state: str, detail: str = "") -> None:
        Exception.__init__(self, state, detail)
        self.state, self.detail = state, detail

    def __str__(self) -> str:
        return f"the action did not run ({one_line(self.state)}): {one_line(self.detail)}"


class Foreign(ActiondError):
    """The workspace changed in the middle of an attempt or a bisect while an action, upload or restore of another client ran."""

    def __str__(self) -> str:
        return one_line(super().__str__())


class Left(ActiondError):
    """An attempt or a bisect did not end or could not end; the message names the checkpoint that has the state before."""

    def __str__(self) -> str:
        return one_line(super().__str__())


class Failed(ActiondError):
    """An action ended with an error and has no other result, such as an edit whose text is not there.

    `detail` is for people and models; `code` is a word of the server's ErrorCode, such as "no_match", or "".
    """

    def __init__(self, detail: str, code: str = "") -> None:
        Exception.__init__(self, detail, code)
        self.detail, self.code = detail, code

    def __str__(self) -> str:
        return one_line(self.detail)


class ExecFailed(ActiondError):
    """A program of `exec(check=True)` ended with another exit code than 0, or by a signal. `result` has it all."""

    def __init__(self, result: ExecResult) -> None:
        Exception.__init__(self, result)
        self.result = result

    def __str__(self) -> str:
        end = "timed out" if self.result.timed_out else f"ended with {self.result.returncode}"
        return f"the program {end}: {one_line(self.result.stderr[-500:])}"


class Incomplete(ActiondError, PermissionError):
    """A download wrote everything but files that the user of the sandbox may not read.

    `left_out` says of each what it is; links that lead outside, devices and sockets are among them.
    """

    def __init__(self, left_out: List[str]) -> None:
        Exception.__init__(self, left_out)
        self.left_out = left_out
        OSError.__init__(self, errno.EACCES, "not everything could be read")

    def __reduce__(self) -> Tuple[Any, ...]:
        return type(self), (self.left_out,)

    def __str__(self) -> str:
        return f"the download is not complete, {len(self.left_out)} were left out: {one_line('; '.join(self.left_out))}"


class Refused(ActiondError):
    """The server refused a request, and did nothing.

    `status` is the HTTP status, `detail` says what is wrong, and `code` is a machine word such as "is_directory", or "".
    """

    _errno = 0

    def __init__(self, status: int, detail: str = "", code: str = "") -> None:
        Exception.__init__(self, status, detail, code)
        self.status, self.detail, self.code = status, detail, code
        if isinstance(self, OSError):
            OSError.__init__(self, self._errno, one_line(detail))

    def __reduce__(self) -> Tuple[Any, ...]:
        return type(self), (self.status, self.detail, self.code)

    def __str__(self) -> str:
        return f"{self.status}: {one_line(self.detail)}" if self.detail else str(self.status)


class NotFound(Refused, FileNotFoundError):
    """There is no such file, action, session or sandbox (404)."""

    _errno = errno.ENOENT


class Forbidden(Refused, PermissionError):
    """The key is wrong, or the user of the sandbox lacks the right (401, 403)."""

    _errno = errno.EACCES


class IsDirectory(Refused, IsADirectoryError):
    """The path is that of a directory, where a file is needed."""

    _errno = errno.EISDIR


class NotDirectory(Refused, NotADirectoryError):
    """A part of the path is no directory."""

    _errno = errno.ENOTDIR


class Busy(Refused):
    """Too much runs, or the sandbox is paused, starting or about to end (429, 503). Try again later. `code` says which."""


class Gone(Refused):
    """The record of the action is no longer kept (410). It did not run again."""


class SandboxEnded(Gone):
    """The sandbox ended or was removed, and its actions with it. Asking again does not help.

    `reason` is a word: "deadline", "idle", "memory", "killed", "removed", "stopped", "server" for the server of `local` or the
    gateway of `docker`, and others of the gateway, or "" where that is not known.
    """

    def __init__(self, status: int, detail: str = "", code: str = "", reason: str = "") -> None:
        super().__init__(status, detail, code)
        self.reason = reason

    def __reduce__(self) -> Tuple[Any, ...]:
        return type(self), (self.status, self.detail, self.code, self.reason)

    def __str__(self) -> str:
        text = one_line(self.detail or "the sandbox ended")
        return text if self.reason in text else f"{text} ({one_line(self.reason)})"


class TooLarge(Refused):
    """A file, an answer or a body is larger than the server takes or the caller allows (413)."""


_by_status: Dict[int, Type[Refused]] = {
    401: Forbidden, 403: Forbidden, 404: NotFound, 410: Gone, 413: TooLarge, 429: Busy, 503: Busy,
}
_by_code: Dict[str, Type[Refused]] = {
    "is_directory": IsDirectory, "not_directory": NotDirectory, "file_not_found": NotFound,
    "permission_denied": Forbidden, "file_too_large": TooLarge,
}


def refused(status: int, detail: str, code: str = "", reason: str = "") -> Refused:
    """Return the exception for a refusal: by its code, or else by its status."""
    if (status, code) in ((410, "ended"), (503, "stopped")):
        return SandboxEnded(status, detail, code, reason or ("stopped" if code == "stopped" else ""))
    return _by_code.get(code, _by_status.get(status, Refused))(status, detail, code)
