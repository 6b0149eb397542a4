"""Names of agents.sandbox.errors, which take keywords alone."""


class SandboxError(Exception):
    def __init__(self, **context):
        super().__init__(context)


class ExecTimeoutError(SandboxError):
    pass


class ExecTransportError(SandboxError):
    pass


class WorkspaceArchiveReadError(SandboxError):
    pass


class WorkspaceArchiveWriteError(SandboxError):
    pass


class WorkspaceReadNotFoundError(SandboxError):
    pass


class WorkspaceWriteTypeError(SandboxError):
    pass
