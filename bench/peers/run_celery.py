# mypy: ignore-errors
# pyright: basic, reportMissingImports=false
# ruff: noqa: ANN201
# The packages it imports are those of an environment of its own, which the checkers here do not see.
"""Celery on Redis with acks_late: a task is acknowledged when it has ended."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from urllib.parse import unquote, urlsplit

from celery import Celery
from handlers import SyncHandlers
from redis import Redis
from runner import PeerTask, play

QUEUE = "celery"
PROCESSES = 2


def _address(order: PeerTask) -> str:
    return f"redis+socket://{unquote(urlsplit(order.redis_url).path)}?virtual_host=0"


def _app(order: PeerTask) -> Celery:
    app = Celery("bench", broker=_address(order))
    app.conf.update(
        broker_transport_options={"visibility_timeout": order.lease_seconds},
        broker_connection_retry_on_startup=True,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_ignore_result=order.kind != "zombie",
        result_backend=_address(order) if order.kind == "zombie" else None,
        worker_prefetch_multiplier=64,
        worker_hijack_root_logger=False,
        worker_send_task_events=False,
    )
    handlers = SyncHandlers(order)

    @app.task(name="empty")
    def empty() -> None:
        handlers.empty()

    @app.task(name="write")
    def write() -> None:
        handlers.write()

    @app.task(name="timed")
    def timed(at: float) -> None:
        handlers.timed(at)

    @app.task(name="zombie")
    def zombie() -> str:
        return handlers.zombie()

    return app


class CeleryPeer:
    def prepare(self, order: PeerTask) -> None:
        """Nothing to create."""

    def work(self, order: PeerTask) -> None:
        os.environ["C_FORCE_ROOT"] = "1"
        _app(order).worker_main(
            [
                "worker",
                f"--concurrency={PROCESSES}",
                "--loglevel=WARNING",
                "--without-gossip",
                "--without-mingle",
                "--without-heartbeat",
                f"--hostname={order.worker}-{os.getpid()}",
            ]
        )

    @asynccontextmanager
    async def client(self, order: PeerTask):
        yield CeleryClient(_app(order), Redis.from_url(order.redis_url, decode_responses=True))


class CeleryClient:
    def __init__(self, app: Celery, redis: Redis) -> None:
        self._app = app
        self._redis = redis

    async def submit_many(self, kind: str, count: int) -> None:
        await asyncio.to_thread(self._submit_many, kind, count)

    def _submit_many(self, kind: str, count: int) -> None:
        task = self._app.tasks[kind]
        with self._app.producer_pool.acquire() as producer:
            for _ in range(count):
                task.apply_async(producer=producer)

    async def submit(self, kind: str, at: float) -> None:
        arguments = (at,) if kind == "timed" else ()
        await asyncio.to_thread(self._app.tasks[kind].apply_async, arguments)

    async def unfinished(self) -> int:
        return self._redis.llen(QUEUE) + self._redis.hlen("unacked")

    async def outcome(self):
        keys = [str(key).removeprefix("celery-task-meta-") for key in self._redis.keys("celery-task-meta-*")]
        kept = self._app.AsyncResult(keys[0]) if keys else None
        return {"finished": kept is not None and kept.successful(), "by": kept and kept.result}


if __name__ == "__main__":
    play(CeleryPeer())
