"""Sets of addresses, as in settings: `10.0.0.7`, `10.0.0.0/8`, `::1`."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Network = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class Networks:
    members: tuple[Network, ...] = ()

    @classmethod
    def read(cls, text: str) -> Networks:
        """Parse addresses and networks separated by commas. Raises ValueError for anything else."""
        return cls(tuple(ip_network(part.strip()) for part in text.split(",") if part.strip()))

    def __contains__(self, host: str) -> bool:
        address = address_in(host)
        return address is not None and any(address in network for network in self.members)

    def __bool__(self) -> bool:
        return bool(self.members)


NOWHERE = Networks()


def address_in(host: str) -> IPv4Address | IPv6Address | None:
    """The address in a text; also an IPv4 address that is written as IPv6. None when it is not an address."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
