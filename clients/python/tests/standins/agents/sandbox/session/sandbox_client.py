"""Signatures of agents.sandbox.session.sandbox_client."""

import abc
from typing import Generic, TypeVar

from pydantic import BaseModel

from . import SandboxSession

T = TypeVar("T")


class BaseSandboxClientOptions(BaseModel):
    type: str


class BaseSandboxClient(abc.ABC, Generic[T]):
    def _wrap_session(self, inner, *, instrumentation=None):
        return SandboxSession(inner)

    def _validate_manifest_for_create(self, manifest):
        return manifest

    def _deserialize_session_state_payload(self, payload, kind):
        return kind(**payload)

    for name in ("create", "delete", "resume"):
        locals()[name] = abc.abstractmethod(lambda self: None)
    del name
