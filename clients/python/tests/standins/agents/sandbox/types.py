"""Names of agents.sandbox.types."""


class ExecResult:
    def __init__(self, *, stdout, stderr, exit_code):
        self.stdout, self.stderr, self.exit_code = stdout, stderr, exit_code
