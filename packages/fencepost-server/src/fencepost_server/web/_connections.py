"""How many connections the server holds, and how long each may keep it waiting. Decisions only, no I/O.

A connection *waits* while the server expects bytes from it: the head of a request, the rest of a body, or the
next request of a connection that is kept alive. A request that is being answered does not wait.

When the table is full, a new connection takes the slot of the one that has waited longest: a client that
sends its request at once is served, however many slow ones there are. It is refused when none waits, or when
its address has its share of those that wait: refusing one costs a tenth of replacing one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import IPv6Address, ip_address

from fencepost_server.web._networks import NOWHERE, Networks

# One IPv6 client usually has a whole network of this size.
IPV6_PREFIX_BITS = 64
SHARE_MIN = 4
"""The number of connections of one address that may always wait: a browser keeps a few open."""
BODY_BYTES_PER_SECOND = 16_384
"""The slowest body that is still read: this many bytes extend its deadline by one second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one server. `proxies` forward for many clients, so the limits per address do not apply to
    them."""

    total_max: int = 4096
    per_address_max: int = 1024
    header_seconds: float = 10.0
    body_seconds: float = 30.0
    send_seconds: float = 30.0
    reserved_descriptors: int = 256
    proxies: Networks = NOWHERE

    def body_deadline_seconds(self, received_bytes: int) -> float:
        """How long a body may take of which this much has arrived."""
        return self.body_seconds + received_bytes / BODY_BYTES_PER_SECOND


class Ending(StrEnum):
    """Why the server refused or closed a connection."""

    ADDRESS_FULL = "address_full"
    TOTAL_FULL = "total_full"
    NO_DESCRIPTOR = "no_descriptor"
    SLOW_HEADER = "slow_header"
    SLOW_BODY = "slow_body"
    SLOW_READER = "slow_reader"


@dataclass(slots=True, eq=False)
class Waiting:
    """A connection for which the server waits, and how to close it at once."""

    source: str
    close: Callable[[], object]


@dataclass(slots=True)
class ConnectionTable:
    """Which connections are open, by address, and which of them wait, oldest first. Used by one thread."""

    limits: Limits
    total: int = 0
    _by_source: dict[str, int] = field(default_factory=dict[str, int])
    _waiting: OrderedDict[Waiting, None] = field(default_factory=OrderedDict[Waiting, None])
    _waiting_by_source: dict[str, OrderedDict[Waiting, None]] = field(
        default_factory=dict[str, OrderedDict[Waiting, None]]
    )

    def decide(self, source: str) -> tuple[Ending | None, Waiting | None]:
        """What happens to a new connection from `source`: the limit that it meets, if any, and
        the connection whose closing makes room for it."""
        if self._by_source.get(source, 0) >= self.limits.per_address_max and not self._is_proxy(source):
            return Ending.ADDRESS_FULL, self.oldest(source)
        if self.total < self.limits.total_max:
            return None, None
        return Ending.TOTAL_FULL, None if self._has_its_share(source) else self.oldest()

    def oldest(self, source: str | None = None) -> Waiting | None:
        among = self._waiting if source is None else self._waiting_by_source.get(source)
        return next(iter(among), None) if among else None

    def opened(self, source: str) -> None:
        self.total += 1
        self._by_source[source] = self._by_source.get(source, 0) + 1

    def closed(self, source: str) -> None:
        self.total -= 1
        left = self._by_source[source] - 1
        if left:
            self._by_source[source] = left
        else:
            del self._by_source[source]

    def begins_to_wait(self, one: Waiting) -> None:
        self._waiting[one] = None
        self._waiting_by_source.setdefault(one.source, OrderedDict())[one] = None

    def waits_no_more(self, one: Waiting) -> None:
        """Also safe for a connection that did not wait."""
        if one not in self._waiting:
            return
        del self._waiting[one]
        of_source = self._waiting_by_source[one.source]
        del of_source[one]
        if not of_source:
            del self._waiting_by_source[one.source]

    def _has_its_share(self, source: str) -> bool:
        own = self._waiting_by_source.get(source)
        if own is None or self._is_proxy(source):
            return False
        return len(own) >= max(SHARE_MIN, len(self._waiting) // len(self._waiting_by_source))

    def _is_proxy(self, source: str) -> bool:
        return source in self.limits.proxies


def source_of(host: str) -> str:
    """What counts as one address: an IPv4 address, or the network of one IPv6 client."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    if address.is_loopback:
        return str(address)
    return str(IPv6Address(int(address) >> IPV6_PREFIX_BITS << IPV6_PREFIX_BITS))
