"""The whole system of `fencepost up`: servers, schema, services. Started in order, stopped in reverse."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from fencepost import server_addresses
from fencepost.cli import _schema as schema
from fencepost.cli._services import SERVICES, ServiceContext
from fencepost.cli.terminal import progress
from fencepost.embedded import Pair
from fencepost.embedded._server import EmbeddedServer
from fencepost.errors import ServerUnavailable
from fencepost.logs import get_logger
from fencepost.metrics import Metrics
from fencepost.server_addresses import ServerAddresses
from fencepost.settings import Settings

# A server that ends more often than this has a permanent fault.
REVIVALS_MAX = 5


@dataclass(frozen=True, slots=True)
class Stack:
    """A running system: its addresses and URLs, and the check that restarts embedded servers, if any."""

    server_addresses: ServerAddresses
    urls: Mapping[str, str]
    keep_alive: Callable[[], None]


@contextmanager
def open_stack(settings: Settings, application: str | None = None) -> Generator[Stack]:
    """Start everything for the duration of the block, and stop it afterwards."""
    external = server_addresses.of_settings(settings)
    opened = (
        _external_stack(settings, external, application)
        if external
        else _embedded_stack(settings, application)
    )
    with opened as stack:
        yield stack


@contextmanager
def _external_stack(
    settings: Settings, addresses: ServerAddresses, application: str | None
) -> Generator[Stack]:
    """The system on external servers, which are neither started nor restarted here."""
    _migrate_external(settings, addresses)
    with _services(settings, addresses, application) as urls:
        yield Stack(_with_endpoint(addresses, urls), urls, keep_alive=lambda: None)


@contextmanager
def _embedded_stack(settings: Settings, application: str | None) -> Generator[Stack]:
    with _embedded_pair(settings) as pair:
        addresses = _addresses_of(pair, settings)
        with _services(settings, addresses, application) as urls:
            addresses = _with_endpoint(addresses, urls)
            with server_addresses.noted(settings.data_directory, addresses):
                yield Stack(addresses, urls, EmbeddedStack(pair).keep_alive)


@contextmanager
def _embedded_pair(settings: Settings) -> Generator[Pair]:
    first = not (settings.data_directory / "postgres").exists()
    pair = Pair(settings.data_directory)
    with ExitStack() as closing:
        with progress("Making the database, once" if first else "Starting PostgreSQL and Valkey"):
            closing.enter_context(pair)
        with progress("Migrating"):
            schema.bring_up_unless_it_fits(pair.admin_url)
            pair.create_logins()
        yield pair


def _addresses_of(pair: Pair, settings: Settings) -> ServerAddresses:
    return ServerAddresses(
        origin=f"fencepost up in {settings.data_directory}",
        remedy=f"The `fencepost up` in {settings.data_directory} has ended. Start it again.",
        migration_url=pair.admin_url,
        service_url=pair.service_url,
        viewer_url=pair.viewer_url,
        redis_url=settings.redis_url or pair.redis_url,
    )


def _migrate_external(settings: Settings, addresses: ServerAddresses) -> None:
    """Skip a complete schema without a migration URL: the services' role may not renew it, and need not."""
    if settings.migration_database_url is None and schema.compare(addresses.migration_url).is_complete:
        return
    with progress("Migrating"):
        schema.bring_up(addresses.migration_url)


@contextmanager
def _services(
    settings: Settings, addresses: ServerAddresses, application: str | None
) -> Generator[Mapping[str, str]]:
    """Start every service; yields the URLs of those that have one."""
    context, urls = ServiceContext(settings, addresses, Metrics(), application), dict[str, str]()
    with ExitStack() as closing:
        for name, build in SERVICES.items():
            service = build(context)
            if service is None:
                continue
            service.start()
            closing.callback(service.stop)
            if service.url is not None:
                urls[name] = service.url
        yield urls


def _with_endpoint(addresses: ServerAddresses, urls: Mapping[str, str]) -> ServerAddresses:
    return replace(addresses, endpoint_url=urls.get("web"))


class EmbeddedStack:
    """Restarts an embedded server that ended, at the same address; PostgreSQL recovers by itself."""

    def __init__(self, pair: Pair) -> None:
        self._servers: Mapping[str, EmbeddedServer] = {"PostgreSQL": pair.postgres, "Valkey": pair.valkey}
        self._revivals = 0

    def keep_alive(self) -> None:
        for name, server in self._servers.items():
            if not server.running:
                self._revive(name, server)

    def _revive(self, name: str, server: EmbeddedServer) -> None:
        self._revivals += 1
        if self._revivals > REVIVALS_MAX:
            raise ServerUnavailable(f"{name} keeps ending. Its log is {server.log}.")
        get_logger(__name__).warning("server ended; starting it again", server=name, log=str(server.log))
        server.restart()
