"""Names of agents.sandbox.session."""

from pydantic import BaseModel


class SandboxSessionState(BaseModel):
    type: str
    session_id: object
    snapshot: object
    manifest: object
    exposed_ports: tuple = ()
    workspace_root_ready: bool = False


class SandboxSession:
    def __init__(self, inner):
        self._inner = inner
