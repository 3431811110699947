"""The worker that `fencepost up --app` runs beside the servers, in a process of its own."""

from __future__ import annotations

import os
import threading

from fencepost.cli._supervisor import FAREWELL_SECONDS, LOOK_SECONDS, Supervisor
from fencepost.jobs.settings import JobSettings
from fencepost.server_addresses import ServerAddresses


class WorkerService:
    """One `fencepost worker` process with the servers' URLs, restarted when it ends."""

    url = None

    def __init__(self, application: str, addresses: ServerAddresses) -> None:
        self._application = application
        self._addresses = addresses
        self._stopping = threading.Event()
        self._supervisor: Supervisor | None = None
        self._thread = threading.Thread(target=self._keep, name="fencepost-worker-processes", daemon=True)

    def start(self) -> None:
        environment = {
            **os.environ,
            "DATABASE_URL": self._addresses.service_url,
            "REDIS_URL": self._addresses.redis_url or "",
            # The port is taken by the parent process.
            "METRICS_PORT": "",
        }
        drain_seconds = JobSettings.load().drain_seconds + FAREWELL_SECONDS
        self._supervisor = Supervisor([self._application], 1, environment, drain_seconds=drain_seconds)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        if self._supervisor is not None:
            self._supervisor.stop()

    def _keep(self) -> None:
        while self._supervisor is not None and not self._stopping.wait(LOOK_SECONDS):
            self._supervisor.keep_alive()
