"""Sandboxes for the OpenAI Agents SDK (openai-agents 0.22.0): client=ActiondSandboxClient(), options=ActiondOptions(image=...).

The gateway is that of ACTIOND_URL and ACTIOND_API_KEY, or one that is started for the Docker engine of this machine.
"""

from __future__ import annotations

import io
import pathlib
import tarfile
import tempfile
import uuid
from typing import Any, Dict, Literal, Optional, Tuple, Union

from agents.sandbox.errors import (
    ExecTimeoutError, ExecTransportError, WorkspaceArchiveReadError, WorkspaceArchiveWriteError, WorkspaceReadNotFoundError,
    WorkspaceWriteTypeError,
)
from agents.sandbox.manifest import Manifest
from agents.sandbox.session import SandboxSession, SandboxSessionState
from agents.sandbox.session.base_sandbox_session import BaseSandboxSession
from agents.sandbox.session.manager import Instrumentation
from agents.sandbox.session.sandbox_client import BaseSandboxClient, BaseSandboxClientOptions
from agents.sandbox.snapshot import resolve_snapshot
from agents.sandbox.types import ExecResult

from .. import ActiondError, AsyncSandbox, Gone, NotFound
from ._gateway import gateway


class ActiondOptions(BaseSandboxClientOptions):
    """The sandbox of a session, whose user must have the right to make `manifest.root`. `memory` is in bytes or a text such as "2g"."""

    type: Literal["actiond"] = "actiond"
    image: str = ""
    user: str = ""
    memory: Union[int, str] = 0
    cpus: float = 0
    env: Dict[str, str] = {}
    network: Union[str, Dict[str, Any]] = ""
    ttl_seconds: int = 24 * 3600


class ActiondState(SandboxSessionState):
    """What finds the sandbox of a session again. It has no key."""

    type: Literal["actiond"] = "actiond"
    sandbox_id: str
    options: Dict[str, Any] = {}


class ActiondSession(BaseSandboxSession):
    """One sandbox. A command that began is never run again."""

    def __init__(self, state: ActiondState, sandbox: AsyncSandbox) -> None:
        self.state, self.sandbox = state, sandbox

    async def _exec_internal(self, *command: Union[str, pathlib.Path], timeout: Optional[float] = None) -> ExecResult:
        words = [str(word) for word in command]
        user = None
        if len(words) > 3 and (words[0], words[1], words[3]) == ("sudo", "-u", "--"):  # the SDK's way to name a user
            user, words = words[2], words[4:]
        cwd = str(self.state.manifest.root) if self.state.workspace_root_ready else None
        try:
            result = await self.sandbox.exec(words, cwd=cwd, user=user, timeout=timeout)
        except ActiondError as e:
            raise ExecTransportError(command=command, cause=e, message=str(e), retryable=False) from e
        if result.timed_out:
            raise ExecTimeoutError(command=command, timeout_s=timeout)
        code = result.returncode if result.returncode is not None else 1
        return ExecResult(stdout=result.stdout_bytes, stderr=result.stderr_bytes, exit_code=128 - code if code < 0 else code)

    async def _prepare_backend_workspace(self) -> None:
        await self.sandbox.exec(["mkdir", "-p", str(self.state.manifest.root)], check=True)
        self.state.workspace_root_ready = True

    async def read(self, path: pathlib.Path, *, user: Any = None) -> io.IOBase:
        if user is not None:
            await self._check_read_with_exec(path, user=user)
        try:
            return io.BytesIO(await self.sandbox.read(str(await self._validate_path_access(path))))
        except NotFound as e:
            raise WorkspaceReadNotFoundError(path=path, cause=e) from e
        except ActiondError as e:
            raise WorkspaceArchiveReadError(path=path, cause=e) from e

    async def write(self, path: pathlib.Path, data: io.IOBase, *, user: Any = None) -> None:
        if user is not None:
            await self._check_write_with_exec(path, user=user)
        content = data.read()
        if not isinstance(content, (str, bytes, bytearray)):
            raise WorkspaceWriteTypeError(path=path, actual_type=type(content).__name__)
        try:
            await self.sandbox.write(str(await self._validate_path_access(path, for_write=True)), content)
        except ActiondError as e:
            raise WorkspaceArchiveWriteError(path=path, cause=e) from e

    async def running(self) -> bool:
        client = self.sandbox._gateway
        try:
            info = (await client.get(self.sandbox.id)).info if client and self.state.workspace_root_ready else None
        except ActiondError:
            return False
        return bool(info and info.state == "ready")

    async def persist_workspace(self) -> io.IOBase:
        """Return an archive of the workspace, without what the SDK leaves out. A file that may not be read is an error."""
        root = pathlib.Path(str(self.state.manifest.root))
        skipped = {path.as_posix() for path in self._persist_workspace_skip_relpaths()}
        kept = tempfile.TemporaryFile()
        try:
            with tempfile.TemporaryFile() as spool:
                await self.sandbox._pack(str(root), spool)
                with tarfile.open(fileobj=spool, mode="r|") as source, tarfile.open(fileobj=kept, mode="w") as target:
                    for member in source:
                        name = pathlib.PurePosixPath(*pathlib.PurePosixPath(member.name).parts[1:])  # below the directory's own
                        member.name, member.pax_headers = name.as_posix(), {}  # these have the name too, and go first
                        member.linkname = "/".join(member.linkname.split("/")[1:]) if member.islnk() else member.linkname
                        if not skipped.intersection(p.as_posix() for p in (name, *name.parents)):
                            target.addfile(member, source.extractfile(member) if member.isreg() else None)
                    if "ACTIOND.unreadable" in (source.pax_headers or {}):
                        raise PermissionError("the user of the sandbox may not read all of it")
        except (ActiondError, PermissionError, tarfile.TarError) as e:
            raise WorkspaceArchiveReadError(path=root, cause=e) from e
        kept.seek(0)
        return kept  # type: ignore[return-value]

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        root = pathlib.Path(str(self.state.manifest.root))
        with tempfile.TemporaryFile() as spool:
            while piece := data.read(1 << 20):
                spool.write(piece)
            try:
                await self.sandbox._unpack(str(root), spool)
            except ActiondError as e:
                raise WorkspaceArchiveWriteError(path=root, cause=e) from e

    async def _shutdown_backend(self) -> None:
        client = await gateway.take()
        try:
            await client.delete(self.sandbox.id)
        finally:
            await gateway.leave()


class ActiondSandboxClient(BaseSandboxClient[ActiondOptions]):
    """Creates, finds and removes the sandboxes of sessions."""

    backend_id = "actiond"

    def __init__(self, *, instrumentation: Any = None, dependencies: Any = None) -> None:
        self._instrumentation = instrumentation if instrumentation is not None else Instrumentation()
        self._dependencies = dependencies

    async def create(self, *, snapshot: Any = None, manifest: Any = None, options: ActiondOptions) -> SandboxSession:
        """Create a sandbox. Refused with status 422: the gateway cannot keep the network policy of the options."""
        manifest = self._validate_manifest_for_create(manifest if manifest is not None else Manifest())
        wanted, id = {name: value for name, value in options.model_dump().items() if name != "type"}, uuid.uuid4()
        sandbox = await self._new(wanted, manifest)
        state = ActiondState(session_id=id, snapshot=resolve_snapshot(snapshot, str(id)), manifest=manifest, sandbox_id=sandbox.id,
                             options=wanted)
        return self._wrap_session(ActiondSession(state, sandbox), instrumentation=self._instrumentation)

    async def _new(self, wanted: Dict[str, Any], manifest: Any) -> AsyncSandbox:
        arguments: Dict[str, Any] = {**wanted, "env": {**wanted["env"], **await manifest.environment.resolve()}}
        client = await gateway.take()
        try:
            return await client.create(labels={"actiond.harness": "openai-agents"}, **arguments)
        except BaseException:
            await gateway.leave()
            raise

    async def delete(self, session: SandboxSession) -> SandboxSession:
        """Remove the sandbox of a session; one that is not there is no error."""
        if not isinstance(session._inner, ActiondSession):
            raise TypeError("the session is not one of ActiondSandboxClient")
        await session._inner._shutdown_backend()
        await gateway.leave()
        return session

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        """Find the sandbox of a session, or create another one, which gets the session's snapshot."""
        if not isinstance(state, ActiondState):
            raise TypeError("the state is not one of ActiondSandboxClient")
        sandbox, found = await self._find(state)
        state.sandbox_id, state.workspace_root_ready = sandbox.id, found and state.workspace_root_ready
        session = ActiondSession(state, sandbox)
        session._set_start_state_preserved(found, system=found)
        return self._wrap_session(session, instrumentation=self._instrumentation)

    async def _find(self, state: ActiondState) -> Tuple[AsyncSandbox, bool]:
        client = await gateway.take()
        try:
            return await client.get(state.sandbox_id), True
        except (NotFound, Gone):
            await gateway.leave()
            return await self._new(state.options, state.manifest), False

    def deserialize_session_state(self, payload: Dict[str, Any]) -> SandboxSessionState:
        return self._deserialize_session_state_payload(payload, ActiondState)
