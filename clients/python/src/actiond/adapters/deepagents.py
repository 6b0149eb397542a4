"""A backend for Deep Agents (deepagents 0.7.8): create_deep_agent(backend=ActiondSandbox(sandbox)).

Files are read, written, edited, listed and removed by the sandbox's server, so that the image needs no Python for it;
`glob` is inherited, which runs Python there, and `grep` the image's grep.
"""

from __future__ import annotations

import asyncio
import base64
import codecs
import hashlib
import io
from typing import Any, List, Optional, Tuple

from deepagents.backends.protocol import (
    DeleteResult, EditResult, ExecuteResponse, FileData, FileDownloadResponse, FileInfo, FileUploadResponse, LsResult,
    ReadResult, WriteResult,
)
from deepagents.backends.sandbox import BaseSandbox

from .. import ActiondError, NotDirectory, Sandbox
from .._http_sync import repeat
from .._sync import _query

MAX_READ = 500 << 10  # bytes of text or of a binary file that a read returns
MAX_OUTPUT = 10 << 20
SHORTENED = 30_000  # characters beyond which the server shortens the merged output
EMPTY = "System reminder: File exists but has empty contents"
CUT = "\n\n[Output was truncated due to size limits. Continue reading with a larger offset or smaller limit.]"


def word(error: BaseException) -> str:
    """Return the framework's word for what is wrong with a file, or else the error's text."""
    for kind, name in ((FileNotFoundError, "file_not_found"), (PermissionError, "permission_denied"),
                       (IsADirectoryError, "is_directory"), (NotADirectoryError, "invalid_path")):
        if isinstance(error, kind):
            return name
    return "invalid_path" if isinstance(error, ValueError) else str(error)


class ActiondSandbox(BaseSandbox):
    """A sandbox as a backend. Its owner closes it.

    A command that `timeout` ends, 30 minutes where none is given, has the exit code 124, and is not run again.
    """

    def __init__(self, sandbox: Sandbox, *, timeout: int = 1800) -> None:
        self.sandbox, self._timeout = sandbox, timeout

    @property
    def id(self) -> str:
        return self.sandbox.id or repr(self.sandbox)

    def execute(self, command: str, *, timeout: Optional[int] = None) -> ExecuteResponse:
        most = timeout or self._timeout
        result = self.sandbox.exec(command, timeout=most, max_output=MAX_OUTPUT)
        output, truncated = result.output, result.truncated
        if len(output) >= SHORTENED or truncated:
            data = self.sandbox.output(result.action_id, most=MAX_OUTPUT + 1)
            truncated = len(data) > MAX_OUTPUT
            output = data[:MAX_OUTPUT].decode("utf-8", "replace")
        if result.timed_out:
            return ExecuteResponse(f"{output}\nThe command was ended after {most} seconds.", 124, truncated)
        code = result.returncode
        return ExecuteResponse(output, 128 - code if code is not None and code < 0 else code, truncated)

    def upload_files(self, files: List[Tuple[str, bytes]]) -> List[FileUploadResponse]:
        return [FileUploadResponse(path, self._try(self.sandbox.write, path, data)[1]) for path, data in files]

    def download_files(self, paths: List[str]) -> List[FileDownloadResponse]:
        return [FileDownloadResponse(path, *self._try(self.sandbox.read, path)) for path in paths]

    def _try(self, work: Any, path: str, *args: Any) -> Tuple[Any, Optional[str]]:
        try:
            return (work(path, *args), None) if path.startswith("/") else (None, "invalid_path")
        except (ActiondError, ValueError) as e:
            return None, word(e)

    def ls(self, path: str) -> LsResult:
        try:
            entries = self.sandbox.list(path)
        except (ActiondError, ValueError) as e:
            names = {"file_not_found": "path_not_found", "invalid_path": "not_a_directory"}
            what = "not_a_directory" if isinstance(e, NotDirectory) else names.get(word(e), word(e))
            return LsResult(entries=None, error=f"Path '{path}': {what}")
        base = path.rstrip("/")
        return LsResult(entries=[FileInfo(path=f"{base}/{e.name}", is_dir=e.is_dir, size=e.size, modified_at=e.modified) for e in entries])

    def read(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        offset = max(0, offset)
        try:
            total, page = repeat(lambda: self._lines(file_path, offset, limit))
        except UnicodeDecodeError:
            try:
                data = self.sandbox.read(file_path, max_bytes=MAX_READ)
            except ActiondError:
                return ReadResult(error=f"File '{file_path}': Binary file exceeds maximum preview size of {MAX_READ} bytes")
            return ReadResult(file_data=FileData(content=base64.b64encode(data).decode(), encoding="base64"))
        except (ActiondError, ValueError) as e:
            what = "not_a_file" if word(e) == "is_directory" or getattr(e, "code", "") == "not_regular_file" else word(e)
            return ReadResult(error=f"File '{file_path}': {what}")
        if not total:
            return ReadResult(file_data=FileData(content=EMPTY, encoding="utf-8"))
        if limit <= 0:
            return ReadResult(file_data=FileData(content="", encoding="utf-8"), no_lines_requested=True)
        if offset >= total:
            return ReadResult(error=f"File '{file_path}': Line offset {offset} exceeds file length ({total} lines)")
        return self._page(total, offset, page)

    def _lines(self, path: str, offset: int, limit: int) -> Tuple[int, List[str]]:
        """Return how many lines a file of any size has, and some of them, of each of which no more is kept than is shown."""
        total, room, pending = 0, MAX_READ, ""
        page: List[str] = []
        decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8")(), translate=True)
        with self.sandbox._http.ask("GET", f"/v1/files{_query(path=path)}") as answer:
            data = b"begin"
            while data:
                data = answer.part()
                text = decoder.decode(data, final=not data)
                first, *rest = text.split("\n")
                pending = (pending + first)[:MAX_READ + 1]
                if not data and (rest[-1] if rest else pending):  # a last line without an end
                    rest.append("")
                if total + len(rest) > offset and total < offset + limit and room >= 0:
                    kept = [pending, *rest][:len(rest)][max(0, offset - total):offset + limit - total]
                    page += kept
                    room -= sum(map(len, kept))
                pending = rest[-1][:MAX_READ + 1] if rest else pending
                total += len(rest)
        return total, page

    def _page(self, total: int, offset: int, page: List[str]) -> ReadResult:
        size = kept = 0
        while kept < len(page) and size + len(page[kept].encode()) < MAX_READ:
            size += len(page[kept].encode()) + 1
            kept += 1
        content = "\n".join(page[:kept])
        if kept < len(page):
            content += ("" if kept else page[0].encode()[:MAX_READ].decode("utf-8", "ignore")) + CUT
        end = offset + max(kept, 1)
        return ReadResult(file_data=FileData(content=content, encoding="utf-8"), total_lines=total, start_line=offset + 1,
                          end_line=end, next_offset=end if end < total else None)

    def write(self, file_path: str, content: str) -> WriteResult:
        _, error = self._try(self.sandbox.write, file_path, content)
        return WriteResult(error=f"Failed to write file '{file_path}': {error}") if error else WriteResult(path=file_path)

    def edit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> EditResult:
        """Replace a text, which may have the other kind of line ends in the file. A file that changed meanwhile is left as it is."""
        try:
            data = self.sandbox.read(file_path)
            before = data.decode("utf-8")
            for old, new in ((old_string, new_string), *((_ends(old_string, e), _ends(new_string, e)) for e in ("\r\n", "\n"))):
                count = before.count(old) if old else 0
                if count > 1 and not replace_all:
                    return EditResult(error=f"Error: String '{old_string}' appears multiple times. "
                                            "Use replace_all=True to replace all occurrences.")
                if count:
                    self.sandbox.write(file_path, before.replace(old, new), if_sha256=hashlib.sha256(data).hexdigest())
                    return EditResult(path=file_path, occurrences=count)
            return EditResult(error=f"Error: String not found in file: '{old_string}'")
        except UnicodeDecodeError:
            return EditResult(error=f"Error: File '{file_path}' is not a text file")
        except FileNotFoundError:
            return EditResult(error=f"Error: File '{file_path}' not found")
        except PermissionError:
            return EditResult(error=f"Error: Permission denied editing file '{file_path}'")
        except (ActiondError, ValueError) as e:
            what = "it is not a regular file" if word(e) == "is_directory" else word(e)
            return EditResult(error=f"Error editing file '{file_path}': {what}")

    def delete(self, file_path: str) -> DeleteResult:
        _, error = self._try(lambda path: self.sandbox.delete(path, recursive=True), file_path)
        if error == "file_not_found":
            return DeleteResult(error=f"Error: '{file_path}' not found")
        return DeleteResult(error=f"Error deleting file '{file_path}': {error}") if error else DeleteResult(path=file_path)

    async def als(self, path: str) -> LsResult:
        return await asyncio.to_thread(self.ls, path)

    async def aread(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        return await asyncio.to_thread(self.read, file_path, offset, limit)

    async def awrite(self, file_path: str, content: str) -> WriteResult:
        return await asyncio.to_thread(self.write, file_path, content)

    async def aedit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> EditResult:
        return await asyncio.to_thread(self.edit, file_path, old_string, new_string, replace_all)


def _ends(text: str, end: str) -> str:
    return text.replace("\r\n", "\n").replace("\n", end)
