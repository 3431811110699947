"""The services that `fencepost up` starts, in order: the HTTP services, then an application's worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Protocol

from fencepost.cli._worker_service import WorkerService
from fencepost.metrics import Metrics
from fencepost.plugin import load
from fencepost.server_addresses import ServerAddresses
from fencepost.settings import Settings


@dataclass(frozen=True, slots=True)
class ServiceContext:
    """What a service is built from. It connects by the service URL: the application role, never the owner."""

    settings: Settings
    server_addresses: ServerAddresses
    metrics: Metrics
    application: str | None = None


class Service(Protocol):
    def start(self) -> None: ...

    def stop(self) -> None: ...

    @property
    def url(self) -> str | None:
        """The URL to open in a browser, or None."""
        ...


def _web(context: ServiceContext) -> Service | None:
    """The services over HTTP, with the work of every role; None when fencepost-server is not installed."""
    if find_spec("fencepost_server") is None:
        return None
    service: Service = load("fencepost_server._web_service:web_service")(
        context.settings, context.server_addresses, context.metrics, roles=("all",)
    )
    return service


def _worker(context: ServiceContext) -> Service | None:
    """The worker of an application, or None when no application is named."""
    return (
        None if context.application is None else WorkerService(context.application, context.server_addresses)
    )


SERVICES: Mapping[str, Callable[[ServiceContext], Service | None]] = {"web": _web, "worker": _worker}
