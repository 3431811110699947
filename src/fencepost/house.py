"""The whole house in one value: the client of the kernel, and the runtimes on it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ParamSpec, Self

from fencepost import client
from fencepost.drive.lanes import NORMAL
from fencepost.jobs.handler import Function, Handler, Handlers
from fencepost.jobs.metrics import JobMetrics
from fencepost.jobs.policy import RetryPolicy, exponential
from fencepost.jobs.settings import JobSettings
from fencepost.jobs.worker import Worker
from fencepost.metrics import Metrics
from fencepost.settings import Settings
from fencepost.whereabouts import of_this_directory

P = ParamSpec("P")


class Fencepost(client.Fencepost):
    """Exactly-once effects on one database, and the jobs that bring them about.

    fp = Fencepost.from_env()

    @fp.job("thumbnails", attempts=5, lease=30)
    async def thumbnail(job: Job, image_id: int) -> None: ...

    async with fp:
        async with fp.transaction() as tx:
            await thumbnail.submit(tx, image_id=7)
    """

    def __init__(
        self,
        database_url: str,
        *,
        redis_url: str | None = None,
        settings: Settings | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        super().__init__(database_url, settings=settings, metrics=metrics)
        self.redis_url = redis_url
        self.handlers = Handlers()
        self._facade: client.SyncFencepost | None = None
        self._facade_lock = threading.Lock()

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, config_file: Path | None = None) -> Self:
        """From DATABASE_URL and REDIS_URL, or from the pair that `fencepost up` runs in this directory."""
        settings = Settings.load(environ, config_file)
        place = of_this_directory(settings)
        return cls(place.service_url, redis_url=place.redis_url, settings=settings)

    async def close(self) -> None:
        if self._facade is not None:
            self._facade.__exit__(None, None, None)
            self._facade = None
        await super().close()

    def job(
        self,
        queue: str,
        *,
        kind: str | None = None,
        attempts: int = 5,
        lease: float = 60,
        timeout: float | None = None,
        lane: int = NORMAL,
        retry: RetryPolicy | None = None,
        unique: Callable[P, str] | None = None,
        concurrency_key: Callable[P, str] | None = None,
        concurrency_limit: int = 1,
    ) -> Callable[[Function[P]], Handler[P]]:
        """Declare a handler. Its jobs wait in `queue`; its arguments after the job are the payload."""

        def declare(function: Function[P]) -> Handler[P]:
            handler = Handler(
                function=function,
                queue=queue,
                kind=kind or function.__name__,
                tries_max=attempts,
                lease_seconds=lease,
                timeout_seconds=timeout,
                lane=lane,
                policy=retry or exponential(),
                unique=unique,
                concurrency_key=concurrency_key,
                concurrency_limit=concurrency_limit,
            )
            self.handlers.add(handler)
            return handler

        return declare

    def worker(self, settings: JobSettings | None = None) -> Worker:
        """A worker for every handler that was declared; `run` it while this client is open."""
        return Worker(
            self.handlers,
            self,
            self._sync_facade,
            JobMetrics.on(self.metrics),
            settings or JobSettings(),
            database_url=self.database_url,
            listen_url=self.settings.listen_database_url or self.database_url,
            redis_url=self.redis_url,
            redis_reply_seconds=self.settings.redis_reply_seconds,
        )

    def _sync_facade(self) -> client.SyncFencepost:
        """For handlers that run in threads: opened when the first of them asks, closed with the client."""
        with self._facade_lock:
            if self._facade is None:
                facade = self.sync()
                facade.__enter__()
                self._facade = facade
            return self._facade
