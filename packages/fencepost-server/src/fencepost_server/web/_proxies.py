"""Requests that a proxy forwards: which proxy is trusted, and with what.

A proxy that `HTTP_PROXIES` names says in `X-Forwarded-For` for which client it forwards, and in
`X-Forwarded-Proto` whether that client came by HTTPS. No other peer is trusted, and no other header is read:
a
proxy that writes one of them passes on what its client wrote into the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from starlette.types import ASGIApp, Receive, Scope, Send

from fencepost_server.web._networks import Networks, address_in

# A longer chain of proxies is not followed.
HOPS_MAX = 20
FORWARDING_PREFIX = "x-forwarded-"
FORWARDING = frozenset({"forwarded", "x-real-ip"})
PASSING = frozenset({"via"})
"""Written by proxies, including those in front of a browser: enough to know that a request is not local."""


def is_forwarded(headers: Mapping[str, str]) -> bool:
    """Whether a header says that this request was forwarded."""
    return any(_is_forwarding(name) for name in headers)


def is_local(headers: Mapping[str, str], http_version: str) -> bool:
    """Whether nothing contradicts that a program of this machine sent the request directly.

    HTTP/1.0 contradicts it: nginx uses it for forwarded requests, and by default gives no other sign.
    """
    return http_version != "1.0" and not is_forwarded(headers) and not PASSING.intersection(headers)


def client_of(peer: str, forwarded_for: Iterable[str], proxies: Networks) -> str:
    """The nearest address that is not a proxy's. Where a proxy names something that is not an address, the
    proxy itself."""
    hops = [hop for line in forwarded_for for hop in line.split(",")]
    nearest = peer
    for hop in reversed(hops[-HOPS_MAX:]):
        if nearest not in proxies:
            break
        address = address_in(_without_port(hop.strip()))
        if address is None:
            break
        nearest = str(address)
    return nearest


class Proxied:
    """Replaces a named proxy by its client in the scope, and removes the proxy's headers."""

    def __init__(self, app: ASGIApp, proxies: Networks) -> None:
        self._app = app
        self._proxies = proxies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        peer = scope.get("client")
        if scope["type"] == "http" and peer is not None and peer[0] in self._proxies:
            scope = self._seen_through(scope, peer)
        await self._app(scope, receive, send)

    def _seen_through(self, scope: Scope, peer: tuple[str, int]) -> Scope:
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        forwarded_for = [value for name, value in headers if name == "x-forwarded-for"]
        schemes = [value.strip().lower() for name, value in headers if name == "x-forwarded-proto"]
        return {
            **scope,
            "client": (client_of(peer[0], forwarded_for, self._proxies), 0),
            "scheme": "https" if schemes == ["https"] else "http",
            "headers": [one for one in scope["headers"] if not _is_forwarding(one[0].decode("latin-1"))],
        }


def _is_forwarding(name: str) -> bool:
    return name in FORWARDING or name.startswith(FORWARDING_PREFIX)


def _without_port(hop: str) -> str:
    """`10.0.0.7:443` and `[::1]:443` as some proxies write them."""
    if hop.startswith("["):
        return hop[1:].partition("]")[0]
    return hop.partition(":")[0] if hop.count(":") == 1 else hop
