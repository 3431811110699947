"""The pages for health, metrics and the status of the whole system.

`/healthz` says that the process is alive; `/readyz` that it can work, which needs PostgreSQL with a matching
schema. Redis only reduces latency, so its absence is reported and does not make the system unready.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from fencepost.cli._status_metrics import StatusCollector
from fencepost.cli._status_page import board_page
from fencepost.cli._status_snapshot import StatusSnapshot, read_board
from fencepost.cli.database_reader import first_line, reading
from fencepost.client import Fencepost
from fencepost.errors import FencepostError
from fencepost.kernel.migrate import check_version, schema_version
from fencepost.metrics import Metrics
from fencepost.metrics_server import MetricsPage, Route
from fencepost.redis_streams.connection import connect_sync
from fencepost.redis_streams.errors import RedisError
from fencepost.server_addresses import CHECK_THE_URL, ServerAddresses

HTML = "text/html; charset=utf-8"
JSON = "application/json"


class HealthPages:
    """The routes by path: status, metrics, liveness and readiness."""

    def __init__(
        self, server_addresses: ServerAddresses, metrics: Metrics, *, connect_seconds: float
    ) -> None:
        self._addresses = server_addresses
        self._connect_seconds = connect_seconds
        metrics.registry.register(StatusCollector(self._board))
        self.routes: Mapping[str, Route] = {
            "/": self._status,
            "/metrics": metrics.page,
            "/healthz": lambda: MetricsPage(b"ok\n"),
            "/readyz": self._ready,
        }

    @classmethod
    def of(cls, fp: Fencepost) -> HealthPages:
        """The pages of a process that runs an application. It has one database login, used for every role."""
        addresses = ServerAddresses(
            origin="the application",
            remedy=CHECK_THE_URL,
            migration_url=fp.database_url,
            service_url=fp.database_url,
            viewer_url=fp.database_url,
            redis_url=fp.redis_url,
        )
        return cls(addresses, fp.metrics, connect_seconds=fp.settings.connect_seconds)

    def _board(self) -> StatusSnapshot:
        with reading(self._addresses.service_url, seconds=self._connect_seconds) as connection:
            return read_board(connection)

    def _status(self) -> MetricsPage:
        try:
            return MetricsPage(board_page(self._board()).encode(), HTML)
        except FencepostError as error:
            return MetricsPage(f"{error}\n".encode(), status=503)

    def _ready(self) -> MetricsPage:
        answers = {"postgresql": self._postgres(), "redis": self._redis()}
        body = json.dumps(answers, ensure_ascii=False).encode() + b"\n"
        return MetricsPage(body, JSON, status=200 if answers["postgresql"] == "ok" else 503)

    def _postgres(self) -> str:
        try:
            with reading(self._addresses.service_url, seconds=self._connect_seconds):
                check_version(schema_version(self._addresses.service_url))
        except FencepostError as error:
            return first_line(error)
        return "ok"

    def _redis(self) -> str:
        if self._addresses.redis_url is None:
            return "not configured"
        try:
            with connect_sync(self._addresses.redis_url, reply_seconds=1) as client:
                client.ping()  # pyright: ignore[reportUnknownMemberType]
        except (RedisError, OSError) as error:
            return first_line(error)
        return "ok"
