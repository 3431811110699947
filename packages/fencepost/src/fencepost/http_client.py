"""One HTTP exchange that reports whether the request can have been sent.

A library's "timeout" does not report that. Here NotSent means that no byte of the request can have reached
the other side; every other failure is MaybeSent. Redirects are not followed and nothing is retried: either
would be a second request that is not counted. No cookie is kept: it would be state that no other worker has.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any, Literal, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from fencepost import _http1 as http1
from fencepost.errors import FencepostError
from fencepost.redaction import HIDDEN, redact_text, redact_words

# Keeping one longer than most servers do is of no use, and each that they close may cause a MaybeSent.
IDLE_SECONDS_MAX = 15.0
HAPPY_EYEBALLS_SECONDS = 0.25
EXCERPT_MAX = 300
METADATA = frozenset(map(ip_address, ("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254")))
"""Where clouds answer a machine about itself, besides link-local addresses."""
NAT64 = ip_network("64:ff9b::/96")
Loopback = Literal["any", "named", "never"]
"""Which hosts lead to this machine: every one that resolves to it, only `localhost` and literal addresses, or
none."""
# Shorter values occur in every text, and a path has ordinary names.
SECRET_MIN = 4
SECRET_OPTION_MIN = 8
SECRET_SEGMENT_MIN = 16
_SECRET_HEADER = re.compile(
    r"auth|cookie|secret|token|pass|credential|sign|(?<!idempotency-)key", re.IGNORECASE
)


class NotSent(FencepostError):
    """The request was not sent: there was no connection for it."""


class MaybeSent(FencepostError):
    """The request was sent, or may have been, and no complete reply came."""


def failure_name(error: Exception) -> str:
    """The kind of a failure, such as ConnectionRefusedError, without a text that may quote a secret."""
    cause = error.__cause__ if isinstance(error, NotSent | MaybeSent) else None
    return type(cause or error).__name__


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes | None = None

    @classmethod
    def post_json(cls, url: str, document: Any) -> Self:
        """A POST of a document as JSON."""
        return cls("POST", url, {"Content-Type": "application/json"}, json.dumps(document).encode())


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete reply. Header names are in lower case."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""
    asked: Request | None = field(default=None, repr=False, compare=False)

    def json(self) -> Any:
        """The body as a document with exact numbers, or None if it is not JSON."""
        try:
            return _DOCUMENTS.decode(self.body.decode(json.detect_encoding(self.body), "surrogatepass"))
        except (ValueError, RecursionError):
            return None

    def excerpt(self, characters: int = EXCERPT_MAX) -> str:
        """The beginning of the body, for a log or an error, without secrets, including those of the request,
        which some servers repeat when they refuse."""
        text = self.body[: 8 * characters].decode(errors="replace").replace("\0", "\ufffd")
        # Cut afterwards: half of a secret would not be recognised.
        sent = () if self.asked is None else _secrets_of(self.asked)
        return redact_text(redact_words(text, sent))[:characters]


def peer_refusal(host: str, peer: str, loopback: Loopback = "any") -> str | None:
    """Why no request for this host may be sent to this address, or None."""
    address = ip_address(peer.partition("%")[0])
    if isinstance(address, IPv6Address):
        # The same machine by another name: ::ffff:127.0.0.1, 2002:7f00:1::, 64:ff9b::7f00:1.
        inner = address.ipv4_mapped or address.sixtofour
        if address in NAT64:
            inner = IPv4Address(int(address) & 0xFFFFFFFF)
        address = inner or address
    if address.is_loopback:
        if loopback == "never":
            return f"{host} leads to this machine ({address})"
        if loopback == "named" and not _is_local_name(host):
            return (
                f"{host} leads to this machine ({address}); write localhost or the address if that is meant"
            )
        return None
    if (
        address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or address.is_reserved
        or address in METADATA
    ):
        return f"{host} leads to {address}, where machines keep their own credentials or nothing answers"
    return None


def _is_local_name(host: str) -> bool:
    name = host.strip("[]").rstrip(".").lower()
    try:
        ip_address(name)
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")
    return True


class HttpClient:
    """A pool of connections to other systems, for one event loop. `close` closes them.

    A request is never sent to an address that serves no other machine's purpose (`peer_refusal`), whatever a
    host name resolves to. `loopback` says which hosts lead to this machine.
    """

    def __init__(
        self,
        *,
        connections_max: int = 256,
        connect_seconds: float = 5.0,
        reply_seconds: float = 30.0,
        body_bytes_max: int = http1.BODY_BYTES_MAX,
        loopback: Loopback = "any",
    ) -> None:
        # Connecting and TLS happen before the request is sent; the reply's time begins after it.
        self._connect_seconds = connect_seconds
        self._reply_seconds = reply_seconds
        self._body_bytes_max = body_bytes_max
        self._loopback: Loopback = loopback
        self._places = asyncio.Semaphore(connections_max)
        self._idle: dict[http1.Place, list[_Connection]] = {}
        self._open: set[_Connection] = set()
        self._tls: ssl.SSLContext | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def exchange(self, request: Request) -> Reply:
        """The reply, regardless of its status. Raises NotSent or MaybeSent."""
        if self._places.locked():
            await self._wait_for_place(request)
        else:
            await self._places.acquire()
        try:
            return await self._exchange(request)
        finally:
            self._places.release()

    async def close(self) -> None:
        """Close every connection, also those with a request under way, and wait until they are closed."""
        self._idle.clear()
        for connection in tuple(self._open):
            connection.close()
            await connection.closed.wait()

    async def _wait_for_place(self, request: Request) -> None:
        try:
            async with asyncio.timeout(self._connect_seconds):
                await self._places.acquire()
        except TimeoutError as error:
            raise NotSent(
                f"{_name(request)}: no connection was free after {self._connect_seconds:g} s"
            ) from error

    async def _exchange(self, request: Request) -> Reply:
        try:
            address = http1.address_of(request.url)
            written = http1.request_bytes(request.method, address, request.headers, request.body)
            connection = self._rested(address) or await self._connected(address)
        except (OSError, TimeoutError, ValueError) as error:
            # Without a connection nothing can have been sent.
            raise NotSent(f"{_name(request)}: {type(error).__name__} {error}") from error
        kept = False
        try:
            reply = await connection.exchange(written, self._reply_seconds)
            kept = reply.keeps_connection
        except (OSError, TimeoutError, ValueError) as error:
            # With a connection, it is unknown how much was sent.
            raise MaybeSent(f"{_name(request)}: {type(error).__name__} {error}") from error
        finally:
            # Also on cancellation: a late reply must not be read as another request's.
            if kept:
                self._keep(address, connection)
            else:
                connection.close()
        return Reply(reply.status, reply.headers, reply.body, request)

    def _rested(self, address: http1.Address) -> _Connection | None:
        """The most recently used connection that is still usable, if any."""
        idle = self._idle.get(address.place)
        while idle:
            connection = idle.pop()
            if connection.is_fit:
                return connection
            connection.close()
        return None

    async def _connected(self, address: http1.Address) -> _Connection:
        limit = asyncio.timeout(self._connect_seconds)
        try:
            async with limit:
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: _Connection(self._open, self._body_bytes_max),
                    address.host,
                    address.port,
                    ssl=self._secured() if address.is_secure else None,
                    happy_eyeballs_delay=HAPPY_EYEBALLS_SECONDS,
                )
        except TimeoutError:
            if not limit.expired():
                raise
            raise TimeoutError(f"not connected after {self._connect_seconds:g} s") from None
        # The address that it is connected to, not one that the name had a moment ago or has now.
        refusal = peer_refusal(address.host, connection.peer, self._loopback)
        if refusal is not None:
            connection.close()
            raise OSError(refusal)
        return connection

    def _keep(self, address: http1.Address, connection: _Connection) -> None:
        connection.rest()
        self._idle.setdefault(address.place, []).append(connection)

    def _secured(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls


class _Connection(asyncio.Protocol):
    """One connection, with at most one request in progress."""

    def __init__(self, open_ones: set[_Connection], body_bytes_max: int) -> None:
        self.closed = asyncio.Event()
        self._open = open_ones
        self._body_bytes_max = body_bytes_max
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reader: http1.ReplyReader | None = None
        self._answered: asyncio.Future[http1.ParsedReply] | None = None
        self._rested_at = 0.0

    @property
    def is_fit(self) -> bool:
        """Whether the other side has not closed it, and has had no time to."""
        rested_seconds = self._loop.time() - self._rested_at
        return (
            self._transport is not None
            and not self._transport.is_closing()
            and rested_seconds < IDLE_SECONDS_MAX
        )

    @property
    def peer(self) -> str:
        assert self._transport is not None
        return str(self._transport.get_extra_info("peername")[0])

    async def exchange(self, written: bytes, reply_seconds: float) -> http1.ParsedReply:
        """Raises OSError, TimeoutError or ValueError. From the first line on, it may have been sent."""
        assert self._transport is not None
        if self._transport.is_closing():
            raise ConnectionResetError("the other side hung up")
        self._reader = http1.ReplyReader(self._body_bytes_max)
        self._answered = self._loop.create_future()
        self._transport.write(written)
        late = self._loop.call_later(
            reply_seconds, self._fail, TimeoutError(f"no whole reply after {reply_seconds:g} s")
        )
        try:
            return await self._answered
        finally:
            late.cancel()

    def rest(self) -> None:
        self._reader, self._answered, self._rested_at = None, None, self._loop.time()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._open.add(self)

    def data_received(self, data: bytes) -> None:
        if self._reader is None:
            # Bytes without a request: the next request must not take them for its reply.
            self.close()
            return
        try:
            self._reader.feed(data)
        except ValueError as error:
            self._fail(error)
        else:
            self._tell(self._reader)

    def eof_received(self) -> bool:
        if self._reader is not None:
            try:
                self._reader.end()
            except ValueError as error:
                self._fail(error)
            else:
                self._tell(self._reader)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._open.discard(self)
        self.closed.set()
        self._fail(exc or ConnectionResetError("the other side hung up"))

    def _tell(self, reader: http1.ReplyReader) -> None:
        if reader.reply is not None and self._answered is not None and not self._answered.done():
            self._answered.set_result(reader.reply)

    def _fail(self, error: Exception) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(error)


def _name(request: Request) -> str:
    """Without the login, the query and long parts of the path: they may contain webhook keys."""
    # First by the rule for texts: it finds a password that contains a slash.
    scheme, _, rest = re.split("[?#]", redact_text(request.url), maxsplit=1)[0].partition("://")
    if not rest:
        return f"{request.method} {HIDDEN}"
    place, *segments = rest.split("/")
    shown = (HIDDEN if len(segment) >= SECRET_SEGMENT_MIN else segment for segment in segments)
    return f"{request.method} {scheme}://{'/'.join((place.rpartition('@')[2], *shown))}"


def _secrets_of(request: Request) -> Iterator[str]:
    """Possible secrets of a request: in its headers, or wherever a URL can hold a key."""
    for name, value in request.headers.items():
        if _SECRET_HEADER.search(name):
            yield from (word for word in value.split() if len(word) >= SECRET_MIN)
    try:
        parts = urlsplit(request.url)
    except ValueError:
        return
    if parts.password is not None and len(parts.password) >= SECRET_MIN:
        basic = f"{unquote(parts.username or '')}:{unquote(parts.password)}"
        yield from (parts.password, unquote(parts.password), b64encode(basic.encode()).decode())
    options = [value for _, value in parse_qsl(parts.query) if len(value) >= SECRET_OPTION_MIN]
    segments = [segment for segment in parts.path.split("/") if len(segment) >= SECRET_SEGMENT_MIN]
    for part in (*options, *segments):
        yield from (part, unquote(part))


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


# Made once: it decodes every reply.
_DOCUMENTS = json.JSONDecoder(parse_float=Decimal, parse_constant=_refuse)
