"""Names of harbor.models.task.config."""

import enum


class NetworkMode(str, enum.Enum):
    PUBLIC = "public"
