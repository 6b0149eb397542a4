"""Names of agents.sandbox.snapshot."""


def resolve_snapshot(snapshot, id):
    return snapshot
