"""The address of a Redis Cluster.

redis+cluster://[user:password@]host[:6379][,host[:6379]...]

One node that answers is enough: it names the others. With `rediss+cluster` all are reached through TLS.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import unquote, urlsplit

SCHEMES = ("redis+cluster", "rediss+cluster")
PORT = 6379


def speaks_of_a_cluster(url: str) -> bool:
    return url.partition("://")[0].lower() in SCHEMES


@dataclass(frozen=True, slots=True)
class ClusterUrl:
    """Nodes to ask for the others, and the login for all."""

    nodes: tuple[tuple[str, int], ...]
    tls: bool
    login: Mapping[str, str] = field(repr=False)

    @classmethod
    def read(cls, url: str) -> Self:
        """Raises ValueError for an invalid address, without quoting it: it may contain a password."""
        scheme, _, rest = url.partition("://")
        authority, _, path = rest.partition("/")
        user, _, hosts = authority.rpartition("@")
        name, _, password = user.partition(":")
        login = {"username": unquote(name), "password": unquote(password)}
        if scheme.lower() not in SCHEMES or path not in ("", "0"):
            # A cluster has no numbered databases, and everything else has no option here.
            raise ValueError("an address of a cluster needs hosts, and nothing behind them")
        return cls(
            nodes=tuple(_place(host) for host in hosts.split(",")),
            tls=scheme.lower() == "rediss+cluster",
            login={key: value for key, value in login.items() if value},
        )


def _place(host: str) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{host}")
        name, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError("an address of a cluster is a URL, and a port is a number") from None
    if not name or parts.query or parts.path:
        raise ValueError("a node needs a host")
    return name, PORT if port is None else port
