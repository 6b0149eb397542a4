"""Signatures of inspect_ai.util: src/inspect_ai/util/_sandbox/environment.py, limits.py and _subprocess.py."""

import abc
import dataclasses
from typing import Generic, TypeVar

from pydantic import BaseModel

T = TypeVar("T")
kinds = {}


@dataclasses.dataclass
class ExecResult(Generic[T]):
    success: bool
    returncode: int
    stdout: T
    stderr: T


class OutputLimitExceededError(Exception):
    def __init__(self, limit_str, truncated_output):
        self.limit_str, self.truncated_output = limit_str, truncated_output


class SandboxUnavailableError(RuntimeError):
    pass


class SandboxEnvironmentLimits:
    MAX_EXEC_OUTPUT_SIZE = 10 << 20
    MAX_EXEC_OUTPUT_SIZE_STR = "10 MiB"
    MAX_READ_FILE_SIZE = 100 << 20
    MAX_READ_FILE_SIZE_STR = "100 MiB"


class SandboxConnection(BaseModel):
    type: str
    command: str
    vscode_command: list = None
    ports: list = None
    container: str = None


class SandboxEnvironment(abc.ABC):
    def __init__(self):
        self._tools_injected = False

    @abc.abstractmethod
    async def exec(self, cmd, input=None, cwd=None, env=None, user=None, timeout=None, timeout_retry=True, concurrency=True): ...

    @abc.abstractmethod
    async def write_file(self, file, contents): ...

    @abc.abstractmethod
    async def read_file(self, file, text=True): ...

    @classmethod
    @abc.abstractmethod
    async def sample_cleanup(cls, task_name, config, environments, interrupted): ...

    def as_type(self, sandbox_cls):
        assert isinstance(self, sandbox_cls)
        return self


def sandboxenv(name):
    def register(kind):
        kinds[name] = kind
        return kind
    return register
