"""Signatures of deepagents.backends.protocol."""

import dataclasses
from typing import Any, Optional


def result(name, *fields):
    return dataclasses.make_dataclass(name, [(field, Any, dataclasses.field(default=None)) for field in fields])


FileInfo = FileData = dict
DeleteResult = result("DeleteResult", "error", "path")
EditResult = result("EditResult", "error", "path", "occurrences")
WriteResult = result("WriteResult", "error", "path")
LsResult = result("LsResult", "error", "entries")
ReadResult = result("ReadResult", "error", "file_data", "total_lines", "start_line", "end_line", "next_offset", "no_lines_requested")
FileDownloadResponse = result("FileDownloadResponse", "path", "content", "error")
FileUploadResponse = result("FileUploadResponse", "path", "error")


@dataclasses.dataclass
class ExecuteResponse:
    output: str
    exit_code: Optional[int] = None
    truncated: bool = False
