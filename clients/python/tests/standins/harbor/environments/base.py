"""Signatures of harbor.environments.base."""

import abc

from pydantic import BaseModel


class ExecResult(BaseModel):
    stdout: str = None
    stderr: str = None
    return_code: int


class BaseEnvironment(abc.ABC):
    def __init__(self, environment_dir, environment_name, session_id, trial_paths, task_env_config, logger=None, persistent_env=None, **more):
        self.environment_dir, self.session_id, self.task_env_config = environment_dir, session_id, task_env_config
        self.default_user = None
        self._persistent_env = persistent_env or {}
        self._validate_definition()
        self._validate_internet_config()

    def _resolve_user(self, user):
        return user if user is not None else self.default_user

    def _merge_env(self, env):
        return {**self._persistent_env, **(env or {})} or None

    for name in ("type", "is_mounted", "supports_gpus", "can_disable_internet", "_validate_definition", "start", "stop", "upload_file",
                 "upload_dir", "download_file", "download_dir", "exec"):
        locals()[name] = abc.abstractmethod(lambda self: None)
    del name
