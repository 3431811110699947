"""The services that `fencepost up` starts, in order. A new one is a line in SERVICES."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from fencepost.cli.web_service import web_service
from fencepost.cli.worker_service import WorkerService
from fencepost.metrics import Metrics
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


def _web(ground: ServiceContext) -> Service:
    return web_service(ground.settings, ground.server_addresses, ground.metrics)


def _worker(ground: ServiceContext) -> Service | None:
    """The jobs of an application, when one was named."""
    return None if ground.application is None else WorkerService(ground.application, ground.server_addresses)


SERVICES: Mapping[str, Callable[[ServiceContext], Service | None]] = {"web": _web, "worker": _worker}
