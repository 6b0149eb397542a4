"""Names of agents.sandbox.session.manager."""


class Instrumentation:
    pass
