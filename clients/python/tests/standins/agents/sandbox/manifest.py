"""Names of agents.sandbox.manifest."""


class Environment:
    async def resolve(self):
        return {"FROM_MANIFEST": "here"}


class Manifest:
    def __init__(self, root="/workspace"):
        self.root, self.environment = root, Environment()
