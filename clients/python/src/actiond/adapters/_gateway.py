"""What the adapters share: the gateway of the process, and what a task may not declare."""

from __future__ import annotations

import asyncio
import os
from typing import Any, Tuple

from .. import ActiondError, AsyncClient, async_docker

NO_POLICY = "network policies cannot be enforced yet, and the task is not run without its policy"


class Gateway:
    """The gateway of ACTIOND_URL, or else one that this process starts for the Docker engine. Its users are counted.

    ACTIOND_SERVE_FLAGS has flags of `runtimectl serve` for the latter, divided by spaces.
    """

    def __init__(self) -> None:
        self._client: Any = None
        self._loop: Any = None
        self._users = 0
        self._lock: Any = None

    async def take(self) -> AsyncClient:
        """Return the client, and count a user of it."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # one of an event loop that ended cannot be used
            self._loop, self._lock, self._client, self._users = loop, asyncio.Lock(), None, 0
        async with self._lock:
            if self._client is None:
                flags: Tuple[str, ...] = tuple(os.environ.get("ACTIOND_SERVE_FLAGS", "").split())
                self._client = AsyncClient() if os.environ.get("ACTIOND_URL") else await async_docker(*flags)
            self._users += 1
            client: AsyncClient = self._client
            return client

    async def leave(self) -> None:
        """Close the client when its last user leaves."""
        if self._loop is not asyncio.get_running_loop() or not self._users:
            return
        async with self._lock:
            self._users -= 1
            if not self._users:
                client, self._client = self._client, None
                await client.close()


gateway = Gateway()


def refuse_policy(network: object) -> None:
    """Raise an exception where a task declares a network policy. A mode ("", "none", "bridge") is none."""
    if network is not None and not isinstance(network, str):
        raise ActiondError(NO_POLICY)
