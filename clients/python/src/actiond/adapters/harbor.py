"""An environment for Harbor: harbor run --environment-import-path actiond.adapters.harbor:ActiondEnvironment.

A task must name its image (`docker_image`): a Dockerfile alone or a compose file is refused. The gateway is that of
ACTIOND_URL and ACTIOND_API_KEY, or one that is started for the Docker engine of this machine.
"""

from __future__ import annotations

import os
import pathlib
import shutil
from typing import Any, Dict, Optional, Union

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities
from harbor.environments.definition import parse_dockerfile_workdir
from harbor.models.task.config import NetworkMode

from .. import AsyncSandbox, Refused
from ._gateway import gateway

DIRECTORIES = ["/logs/agent", "/logs/verifier"]


def policy_of(policy: Any) -> Dict[str, Any]:
    """Return a policy of Harbor's in the form of the gateway."""
    return {"mode": getattr(policy.network_mode, "value", policy.network_mode), "allow": list(policy.allowed_hosts)}


class ActiondEnvironment(BaseEnvironment):
    """One sandbox. A command that began is never run again.

    Commands are root's, as Harbor's tasks expect, unless ACTIOND_SERVE_FLAGS has another `--user`. A task that names users
    needs `--allow-root` there.
    """

    sandbox: Optional[AsyncSandbox] = None

    @staticmethod
    def type() -> str:
        return "actiond"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        """A sandbox that was created with all of the network cannot get less later."""
        return EnvironmentCapabilities(disable_internet=True, network_allowlist=True, dynamic_network_policy=self._has_policy)

    @classmethod
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        return EnvironmentResourceCapabilities(cpu_limit=True, memory_limit=True)

    @property
    def _has_policy(self) -> bool:
        if "_created_with" not in self.__dict__:
            self._created_with = self.network_policy
        return bool(self._created_with.network_mode != NetworkMode.PUBLIC)

    def _validate_definition(self) -> None:
        for name in ("docker-compose.yaml", "docker-compose.yml"):
            if os.path.exists(os.path.join(self.environment_dir, name)):
                raise ValueError(f"{name}: compose files are not supported")
        if not self.task_env_config.docker_image:
            raise ValueError("the task must name its image as docker_image: no image is built from a Dockerfile")

    async def _apply_network_policy(self, network_policy: Any) -> None:
        """Change what the sandbox reaches, open connections included."""
        client = await gateway.take()
        try:
            await client.set_network(self._started.id, policy_of(network_policy))
        finally:
            await gateway.leave()

    @classmethod
    def preflight(cls) -> None:
        if not (os.environ.get("ACTIOND_URL") or os.environ.get("ACTIOND_RUNTIMECTL") or shutil.which("runtimectl")):
            raise SystemExit("set ACTIOND_URL and ACTIOND_API_KEY, or put runtimectl on PATH")

    async def start(self, force_build: bool) -> None:
        """Create the sandbox. Its disk is not limited."""
        config = self.task_env_config
        workdir = config.workdir or parse_dockerfile_workdir(pathlib.Path(self.environment_dir) / "Dockerfile") or ""
        user = "" if "--user" in os.environ.get("ACTIOND_SERVE_FLAGS", "") else "root"
        client = await gateway.take()
        try:
            self.sandbox = await client.create(
                config.docker_image, key=f"harbor-{self.session_id}", labels={"actiond.harness": "harbor"}, ttl_seconds=24 * 3600, user=user,
                working_dir=workdir, memory=(self._effective_memory_mb or 0) << 20, cpus=self._effective_cpus or 0,
                network=policy_of(self.network_policy) if self._has_policy else "")
            directories = dict.fromkeys([*DIRECTORIES, *self._mount_targets(writable_only=True)])
            await self.sandbox.exec(["sh", "-c", 'mkdir -p "$@" && chmod 777 "$@"', "sh", *directories], check=True)
            await self._upload_environment_dir_after_start()
        except BaseException:
            if self.sandbox:
                await client.delete(self.sandbox.id)
                self.sandbox = None
            await gateway.leave()
            raise

    async def stop(self, delete: bool) -> None:
        """Remove the sandbox, or with `delete` false end its processes and keep its files until its time is up."""
        if not self.sandbox:
            return
        client = await gateway.take()
        try:
            await (client.delete(self.sandbox.id) if delete else client.stop(self.sandbox.id))
            self.sandbox = None
            await gateway.leave()
        finally:
            await gateway.leave()

    @property
    def _started(self) -> AsyncSandbox:
        if not self.sandbox:
            raise RuntimeError("the environment was not started")
        return self.sandbox

    async def exec(self, command: str, cwd: Optional[str] = None, env: Optional[Dict[str, str]] = None,
                   timeout_sec: Optional[int] = None, user: Union[str, int, None] = None) -> ExecResult:
        """Run a line for bash. TimeoutError: it was ended after `timeout_sec` seconds, with all that it started."""
        try:
            result = await self._started.exec(["bash", "-c", command], cwd=cwd, env=self._merge_env(env), timeout=timeout_sec,
                                              user=self._resolve_user(user))
        except Refused as e:
            if e.status != 422:
                raise
            return ExecResult(stdout="", stderr=e.detail, return_code=126)  # there is no such user
        if result.timed_out:
            raise TimeoutError(f"the command did not end within {timeout_sec} seconds")
        code = result.returncode if result.returncode is not None else 1
        return ExecResult(stdout=result.stdout, stderr=result.stderr, return_code=128 - code if code < 0 else code)

    async def upload_file(self, source_path: Union[pathlib.Path, str], target_path: str) -> None:
        await self._started.upload(source_path, target_path)

    async def upload_dir(self, source_dir: Union[pathlib.Path, str], target_dir: str) -> None:
        if not os.path.isdir(source_dir):
            raise NotADirectoryError(str(source_dir))
        await self._started.upload(source_dir, target_dir)

    async def download_file(self, source_path: str, target_path: Union[pathlib.Path, str]) -> None:
        await self._started.download(source_path, target_path)

    async def download_dir(self, source_dir: str, target_dir: Union[pathlib.Path, str]) -> None:
        await self._started.download(source_dir, target_dir)

    async def attach(self) -> None:
        os.execvp("runtimectl", ["runtimectl", "sh", self._started.id])
