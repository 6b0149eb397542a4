"""What the adapters share: the gateway of the process."""

from __future__ import annotations

import asyncio
import os
from typing import Any, Tuple

from .. import AsyncClient, async_docker


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
