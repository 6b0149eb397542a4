"""Names of harbor.environments.capabilities."""

from pydantic import BaseModel


class EnvironmentCapabilities(BaseModel):
    gpus: bool = False
    disable_internet: bool = False
    network_allowlist: bool = False
    dynamic_network_policy: bool = False
    mounted: bool = False


class EnvironmentResourceCapabilities(BaseModel):
    cpu_limit: bool = False
    memory_limit: bool = False
