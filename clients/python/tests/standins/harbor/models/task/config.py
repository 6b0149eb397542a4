"""Names of harbor.models.task.config."""

import enum
from typing import List

from pydantic import BaseModel


class NetworkMode(str, enum.Enum):
    NO_NETWORK = "no-network"
    PUBLIC = "public"
    ALLOWLIST = "allowlist"


class NetworkPolicy(BaseModel):
    network_mode: NetworkMode = NetworkMode.PUBLIC
    allowed_hosts: List[str] = []
