"""Sandboxes for Inspect (inspect_ai 0.3.260): sandbox="actiond", or sandbox=("actiond", "python:3.12-slim").

The gateway is that of ACTIOND_URL and ACTIOND_API_KEY, or one that is started for the Docker engine of this machine.
"""

from __future__ import annotations

from typing import Any, Dict, List, Literal, Mapping, Optional, Union, overload

from inspect_ai.util import (
    ExecResult, OutputLimitExceededError, SandboxConnection, SandboxEnvironment, SandboxEnvironmentLimits,
    SandboxUnavailableError, sandboxenv,
)
from pydantic import BaseModel

from .. import AsyncSandbox, Busy, Forbidden, Gone, NotFound, Refused, TooLarge, Unreachable
from ._gateway import gateway

LABEL = "actiond.harness"


class ActiondConfig(BaseModel):
    """The sandbox of a sample. What is not given is the gateway's default; `memory` is in bytes or a text such as "2g", times are in seconds."""

    image: str = ""
    user: str = ""
    working_dir: str = ""
    memory: Union[int, str] = 0
    cpus: float = 0
    env: Dict[str, str] = {}
    network: Union[str, Dict[str, Any]] = ""
    ttl_seconds: int = 24 * 3600

    def __hash__(self) -> int:  # Inspect groups samples by it
        return hash(repr(self))


def config_of(config: Any) -> ActiondConfig:
    """Return the configuration that an image, a model or nothing stands for. Compose files are refused."""
    if config is None:
        return ActiondConfig()
    if isinstance(config, str):
        if config.endswith((".yaml", ".yml", "Dockerfile")):
            raise ValueError(f"{config}: compose files and Dockerfiles are not supported: name an image, or an ActiondConfig")
        return ActiondConfig(image=config)
    if not isinstance(config, ActiondConfig):
        raise ValueError(f"{type(config).__name__} is not supported: name an image, or an ActiondConfig")
    return config


@sandboxenv(name="actiond")
class ActiondSandboxEnvironment(SandboxEnvironment):
    """One sandbox. A command that began is never run again: `timeout_retry` has no effect."""

    def __init__(self, sandbox: AsyncSandbox) -> None:
        super().__init__()
        self.sandbox = sandbox

    async def exec(self, cmd: List[str], input: Union[str, bytes, None] = None, cwd: Optional[str] = None,
                   env: Optional[Dict[str, str]] = None, user: Optional[str] = None, timeout: Optional[int] = None,
                   timeout_retry: bool = True, concurrency: bool = True) -> ExecResult[str]:
        """Run a program. TimeoutError: it was ended after `timeout` seconds, with all that it started."""
        try:
            result = await self.sandbox.exec(cmd, input=input, cwd=cwd, env=env, user=user, timeout=timeout,
                                             max_output=SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE)
        except (Unreachable, Busy, Forbidden, NotFound, Gone) as e:  # the key of a removed sandbox is wrong
            raise SandboxUnavailableError(str(e)) from e
        except Refused as e:
            if user is None or e.status != 422:
                raise
            return ExecResult(False, 1, "", e.detail)  # there is no such user
        if result.timed_out:
            raise TimeoutError(f"the command did not end within {timeout} seconds")
        if result.returncode == 126 and result.pid is None and result.stderr.endswith("permission denied"):
            raise PermissionError(result.stderr)
        if result.truncated:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, result.stdout + result.stderr)
        code = result.returncode if result.returncode is not None else 1
        code = 128 - code if code < 0 else code  # of a signal, as shells have it
        return ExecResult(code == 0, code, result.stdout, result.stderr)

    async def write_file(self, file: str, contents: Union[str, bytes]) -> None:
        """Write a file; directories that are missing are made."""
        await self.sandbox.write(file, contents)

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> Union[str, bytes]:
        """Read a file. UnicodeDecodeError: it is no text."""
        try:
            data = await self.sandbox.read(file, max_bytes=SandboxEnvironmentLimits.MAX_READ_FILE_SIZE)
        except TooLarge as e:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None) from e
        return data.decode("utf-8") if text else data

    async def connection(self, *, user: Optional[str] = None) -> SandboxConnection:
        """Return the command that opens a shell in the sandbox."""
        return SandboxConnection(type="actiond", command=f"runtimectl sh {self.sandbox.id}", container=self.sandbox.id)

    @classmethod
    def config_deserialize(cls, config: Dict[str, Any]) -> BaseModel:
        return ActiondConfig(**config)

    @classmethod
    async def task_init(cls, task_name: str, config: Any) -> None:
        config_of(config)
        await gateway.take()

    @classmethod
    async def task_cleanup(cls, task_name: str, config: Any, cleanup: bool) -> None:
        await gateway.leave()

    @classmethod
    async def sample_init(cls, task_name: str, config: Any, metadata: Mapping[str, str]) -> Dict[str, SandboxEnvironment]:
        wanted = config_of(config).model_dump()
        client = await gateway.take()
        try:
            sandbox = await client.create(labels={LABEL: "inspect"}, **wanted)
        except BaseException:
            await gateway.leave()
            raise
        return {"default": cls(sandbox)}

    @classmethod
    async def sample_cleanup(cls, task_name: str, config: Any, environments: Dict[str, SandboxEnvironment], interrupted: bool) -> None:
        client = await gateway.take()
        try:
            for environment in environments.values():
                await client.delete(environment.as_type(ActiondSandboxEnvironment).sandbox.id)
                await gateway.leave()
        finally:
            await gateway.leave()

    @classmethod
    async def cli_cleanup(cls, id: Optional[str]) -> None:
        client = await gateway.take()
        try:
            for found in [id] if id else [s.id for s in (await client.list(f"label={LABEL}=inspect", limit=1000)).sandboxes]:
                await client.delete(found)
        finally:
            await gateway.leave()


__all__ = ["ActiondConfig", "ActiondSandboxEnvironment"]
