"""The address of a primary that Sentinels watch.

redis+sentinel://[user:password@]host[:26379][,host[:26379]...]/service[/database][?sentinel_password=...]

The login is the servers'; the Sentinels' own password, if they require one, is a query parameter. With
`rediss+sentinel` both are reached through TLS.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import parse_qsl, unquote, urlsplit

SCHEMES = ("redis+sentinel", "rediss+sentinel")
PORT = 26379
_SENTINEL_LOGIN = {"sentinel_username", "sentinel_password"}


class _NotSuchAnAddress(ValueError):
    """Its message is our own and quotes nothing of the address."""


def speaks_of_sentinels(url: str) -> bool:
    return url.partition("://")[0].lower() in SCHEMES


@dataclass(frozen=True, slots=True)
class SentinelUrl:
    """The Sentinels to ask for the primary of a service, and the logins for both."""

    sentinels: tuple[tuple[str, int], ...]
    service: str
    database: int
    tls: bool
    login: Mapping[str, str] = field(repr=False)
    sentinel_login: Mapping[str, str] = field(repr=False)

    @classmethod
    def read(cls, url: str) -> Self:
        """Raises ValueError for an invalid address, without quoting it: it may contain a password."""
        try:
            return cls._read(url)
        except _NotSuchAnAddress as error:
            raise ValueError(str(error)) from None
        except ValueError:
            # The library's message quotes what it could not parse.
            raise ValueError("an address of Sentinels is a URL, and a port is a number") from None

    @classmethod
    def _read(cls, url: str) -> Self:
        # A list of hosts is not a valid authority: newer Pythons refuse brackets behind a comma.
        scheme, _, rest = url.partition("://")
        authority, _, tail = rest.partition("/")
        parts = urlsplit(f"{scheme}://hosts/{tail}")
        user, _, hosts = authority.rpartition("@")
        name, _, password = user.partition(":")
        service, _, database = parts.path.removeprefix("/").partition("/")
        options = dict(parse_qsl(parts.query))
        if parts.scheme not in SCHEMES or not service or not options.keys() <= _SENTINEL_LOGIN:
            raise _NotSuchAnAddress("an address of Sentinels needs hosts and the name of a service")
        return cls(
            sentinels=tuple(_place(host) for host in hosts.split(",")),
            service=unquote(service),
            database=_number(database or "0"),
            tls=parts.scheme == "rediss+sentinel",
            login=_given(username=unquote(name), password=unquote(password)),
            sentinel_login={key.removeprefix("sentinel_"): value for key, value in options.items()},
        )


def _place(host: str) -> tuple[str, int]:
    parts = urlsplit(f"//{host}")
    if not parts.hostname:
        raise _NotSuchAnAddress("a Sentinel needs a host")
    return parts.hostname, PORT if parts.port is None else parts.port


def _number(text: str) -> int:
    if not text.isdecimal():
        raise _NotSuchAnAddress("a database is a number")
    return int(text)


def _given(**values: str) -> dict[str, str]:
    return {name: value for name, value in values.items() if value}
