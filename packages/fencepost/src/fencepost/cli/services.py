"""What `fencepost up` starts, in order: the HTTP application and the worker of an application."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Protocol

from fencepost.cli.worker_service import WorkerService
from fencepost.metrics import Metrics
from fencepost.plugin import load
from fencepost.server_addresses import ServerAddresses
from fencepost.settings import Settings


@dataclass(frozen=True, slots=True)
class ServiceContext:
    """What a service stands on. Its database is the service URL: the application role, never the owner's."""

    settings: Settings
    server_addresses: ServerAddresses
    metrics: Metrics
    application: str | None = None


class Service(Protocol):
    def start(self) -> None: ...

    def stop(self) -> None: ...

    @property
    def url(self) -> str | None:
        """Where a person can open it, or None."""
        ...


def _web(ground: ServiceContext) -> Service | None:
    """The services over HTTP. They are a distribution of their own, fencepost-server."""
    if find_spec("fencepost_server") is None:
        return None
    service: Service = load("fencepost_server.web_service:web_service")(
        ground.settings, ground.server_addresses, ground.metrics
    )
    return service


def _worker(ground: ServiceContext) -> Service | None:
    """The jobs of an application, when one was named."""
    return None if ground.application is None else WorkerService(ground.application, ground.server_addresses)


SERVICES: Mapping[str, Callable[[ServiceContext], Service | None]] = {"web": _web, "worker": _worker}
