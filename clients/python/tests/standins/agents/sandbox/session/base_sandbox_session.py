"""Signatures of agents.sandbox.session.base_sandbox_session."""

import abc
import pathlib


class BaseSandboxSession(abc.ABC):
    preserved = None

    async def start(self):
        await self._prepare_backend_workspace()

    async def exec(self, *command, timeout=None, shell=True, user=None):
        words = ["sh", "-lc", command[0]] if shell else list(command)
        return await self._exec_internal(*(["sudo", "-u", user, "--"] if user else []), *words, timeout=timeout)

    async def _validate_path_access(self, path, *, for_write=False):
        return pathlib.Path(self.state.manifest.root) / path

    def _persist_workspace_skip_relpaths(self):
        return {pathlib.Path("skipped")}

    def _set_start_state_preserved(self, workspace, *, system=None):
        self.preserved = workspace

    for name in ("_exec_internal", "read", "write", "running", "persist_workspace", "hydrate_workspace"):
        locals()[name] = abc.abstractmethod(lambda self: None)
    del name
