"""Signatures of harbor.environments.base."""

import abc

from harbor.models.task.config import NetworkMode, NetworkPolicy
from pydantic import BaseModel


class ExecResult(BaseModel):
    stdout: str = None
    stderr: str = None
    return_code: int


class BaseEnvironment(abc.ABC):
    def __init__(self, environment_dir, environment_name, session_id, trial_paths, task_env_config, logger=None, persistent_env=None,
                 mounts=None, network_policy=None, **more):
        self.environment_dir, self.session_id, self.task_env_config = environment_dir, session_id, task_env_config
        self.default_user = None
        self._persistent_env, self._mounts = persistent_env or {}, mounts or []
        self._network_policy = network_policy or NetworkPolicy()
        self._validate_definition()
        self.validate_network_policy_support()

    network_policy = property(lambda self: self._network_policy)
    _effective_cpus = property(lambda self: self.task_env_config.cpus)
    _effective_memory_mb = property(lambda self: self.task_env_config.memory_mb)

    def validate_network_policy_support(self, network_policy=None):
        mode = (network_policy or self._network_policy).network_mode
        needed = {NetworkMode.NO_NETWORK: "disable_internet", NetworkMode.ALLOWLIST: "network_allowlist"}.get(mode)
        if needed and not getattr(self.capabilities, needed):
            raise ValueError(f"{mode} is not supported")

    async def set_network_policy(self, network_policy):
        self.validate_network_policy_support(network_policy)
        if network_policy == self._network_policy:
            return
        if not self.capabilities.dynamic_network_policy:
            raise ValueError("the environment cannot change network policy after start")
        await self._apply_network_policy(network_policy)
        self._network_policy = network_policy

    async def _apply_network_policy(self, network_policy):
        raise NotImplementedError

    def _mount_targets(self, *, writable_only=False):
        return [mount["target"] for mount in self._mounts if not (writable_only and mount.get("read_only"))]

    async def _upload_environment_dir_after_start(self):
        self.uploaded = True

    def _resolve_user(self, user):
        return user if user is not None else self.default_user

    def _merge_env(self, env):
        return {**self._persistent_env, **(env or {})} or None

    for name in ("type", "_validate_definition", "start", "stop", "upload_file", "upload_dir", "download_file", "download_dir", "exec"):
        locals()[name] = abc.abstractmethod(lambda self: None)
    del name
