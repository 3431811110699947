"""Which addresses a registered webhook may be delivered to.

A webhook is registered over the network, so its address must not lead to what only this machine may reach:
its own services, and the metadata service of a cloud, which hands out credentials. Private networks are
allowed: receivers often are there.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

from fencepost.errors import InvalidInput
from fencepost.settings import is_http_url

_NAT64 = ip_network("64:ff9b::/96")
# Metadata services outside of the link-local networks.
METADATA = frozenset({ip_address("fd00:ec2::254"), ip_address("100.100.100.200"), ip_address("192.0.0.192")})


def may_reach(host: str, *, loopback: bool = False) -> bool:
    """Whether the IP address may be connected to; `loopback` allows this machine's own."""
    address = ip_address(host.partition("%")[0])
    if isinstance(address, IPv6Address):
        # The same machine by another name: ::ffff:127.0.0.1, 2002:7f00:1::, 64:ff9b::7f00:1.
        inner = address.ipv4_mapped or address.sixtofour
        if address in _NAT64:
            inner = IPv4Address(int(address) & 0xFFFFFFFF)
        address = inner or address
    if address.is_loopback:
        return loopback
    return not (
        address.is_link_local
        or address.is_unspecified
        or address.is_multicast
        or address.is_reserved
        or address in METADATA
    )


def checked_url(url: str, *, loopback: bool = False) -> str:
    """The URL, if webhooks may be registered with it; raises InvalidInput. A name is checked again at each
    connection."""
    if not is_http_url(url) or any(letter.isspace() for letter in url):
        raise InvalidInput("url must be an http or https URL.", field="url")
    host = (urlsplit(url).hostname or "").rstrip(".")
    try:
        allowed = may_reach(host, loopback=loopback)
    except ValueError:
        allowed = loopback or not (host == "localhost" or host.endswith(".localhost"))
    if not allowed:
        raise InvalidInput(
            "url names an address that webhooks must not reach: this machine's own, a link-local one or a"
            " metadata service. OUTBOX_WEBHOOK_LOOPBACK=on allows this machine's own.",
            field="url",
        )
    return url
