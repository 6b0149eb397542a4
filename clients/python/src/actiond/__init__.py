"""Sandboxes for AI agents: a client of Actiond's server and gateway, with asyncio and without.

    import actiond

    with actiond.docker() as gateway, gateway.create("debian:bookworm") as sandbox:
        print(sandbox.run("echo hello").output)
        print(sandbox.exec(["id", "-un"], timeout=10).stdout)

Without a Docker engine, local() has the same sandbox as processes of this machine. It isolates nothing.
"""

from ._async import AsyncClient, AsyncSandbox, async_docker, async_local
from ._errors import (
    ActiondError, Busy, Cut, ExecFailed, Failed, Forbidden, Foreign, Gone, Incomplete, IsDirectory, Left, Malformed, NotDirectory, NotFound,
    NotRun, Refused, SandboxEnded, TooLarge, Unknown, Unreachable,
)
from ._sync import Client, Sandbox, docker, local
from ._types import (
    Attempt, Entry, ExecResult, FileInfo, Output, Page, Port, Preview, Record, RunResult, SandboxInfo, ToolResult, Waiting,
)

__version__ = "0.1.0"

__all__ = [
    "ActiondError", "AsyncClient", "AsyncSandbox", "Attempt", "Busy", "Client", "Cut", "Entry", "ExecFailed", "ExecResult", "Failed",
    "FileInfo", "Forbidden", "Foreign", "Gone", "Incomplete", "IsDirectory", "Left", "Malformed", "NotDirectory", "NotFound", "NotRun", "Output", "Page",
    "Port", "Preview", "Record", "Refused", "RunResult", "Sandbox", "SandboxEnded", "SandboxInfo", "ToolResult", "TooLarge", "Unknown",
    "Unreachable", "Waiting", "async_docker", "async_local", "docker", "local",
]
