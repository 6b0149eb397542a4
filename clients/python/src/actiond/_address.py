"""The address of a server."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Address:
    """Where a server listens: on a Unix socket, or a host and a port, with TLS or without. Paths begin with prefix."""

    socket: str = ""
    host: str = ""
    port: int = 0
    tls: bool = False
    prefix: str = ""

    @property
    def authority(self) -> str:
        """The value of the header Host."""
        if self.socket:
            return "sandbox"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"

    def __str__(self) -> str:
        if self.socket:
            return f"unix://{self.socket}"
        return f"http{'s' if self.tls else ''}://{self.authority}{self.prefix}"


def parse(url: str) -> Address:
    """Return the address of a URL: unix:///path, http://host:port/prefix or https://host.

    ValueError says what is wrong, and does not repeat the URL, which may have a password in it.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError("the URL of the server cannot be parsed") from None
    if parts.username is not None or parts.password is not None:
        raise ValueError("the URL of the server must have no user and no password: give the key apart from it")
    if re.search(r"[^\x21-\x7e]", url) and parts.scheme != "unix" or parts.query or parts.fragment:
        raise ValueError("the URL of the server must have no query, no fragment, and visible ASCII characters only")
    if parts.scheme == "unix" and not parts.netloc and parts.path.startswith("/"):
        return Address(socket=parts.path)
    if parts.scheme in ("http", "https") and parts.hostname:
        tls = parts.scheme == "https"
        return Address("", parts.hostname, port or (443 if tls else 80), tls, parts.path.rstrip("/"))
    raise ValueError("the URL of the server must be http://host:port, https://host or unix:///path")


def header_value(name: str, value: str) -> str:
    """Return value if a header can have it. ValueError does not repeat it: it may be a key."""
    if not re.fullmatch(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?", value):
        raise ValueError(f"{name} must be visible ASCII characters")
    return value
