# mypy: ignore-errors
# pyright: basic, reportMissingImports=false
# ruff: noqa: ANN001, ANN201, ANN202
# The packages it imports are those of an environment of its own, which the checkers here do not see.
"""Dramatiq on Redis."""

from __future__ import annotations

import asyncio
import signal
from contextlib import asynccontextmanager

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import ResultMissing, Results
from dramatiq.results.backends.redis import RedisBackend
from handlers import SyncHandlers
from redis import Redis
from runner import PeerTask, play

THREADS = 8


def _results(order: PeerTask) -> RedisBackend:
    return RedisBackend(client=Redis.from_url(order.redis_url))


def _actors(order: PeerTask):
    broker = RedisBroker(
        client=Redis.from_url(order.redis_url),
        heartbeat_timeout=order.lease_seconds * 1000,
        # Maintenance, which recovers messages of lost workers, runs for one command in so many.
        maintenance_chance=1000 if order.kind != "zombie" else 1_000_000,
    )
    if order.kind == "zombie":
        broker.add_middleware(Results(backend=_results(order), store_results=True))
    dramatiq.set_broker(broker)
    handlers = SyncHandlers(order)
    actors = {
        kind: dramatiq.actor(getattr(handlers, kind), actor_name=kind, broker=broker, max_retries=3)
        for kind in ("empty", "write", "timed", "zombie")
    }
    return broker, actors


class DramatiqPeer:
    def prepare(self, order: PeerTask) -> None:
        """Nothing to create."""

    def work(self, order: PeerTask) -> None:
        broker, _ = _actors(order)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        worker = dramatiq.Worker(broker, worker_threads=THREADS, worker_timeout=100)
        worker.start()
        signal.sigwait({signal.SIGTERM})
        worker.stop(timeout=5000)

    @asynccontextmanager
    async def client(self, order: PeerTask):
        broker, actors = _actors(order)
        yield DramatiqClient(actors, Redis.from_url(order.redis_url), order)
        broker.close()


class DramatiqClient:
    def __init__(self, actors, redis: Redis, order: PeerTask) -> None:
        self._actors = actors
        self._redis = redis
        self._order = order

    async def submit_many(self, kind: str, count: int) -> None:
        actor = self._actors[kind]
        await asyncio.to_thread(lambda: [actor.send() for _ in range(count)])

    async def submit(self, kind: str, at: float) -> None:
        arguments = (at,) if kind == "timed" else ()
        message = await asyncio.to_thread(self._actors[kind].send, *arguments)
        if kind == "zombie":
            self._order.results.note("job", message.encode().decode())

    async def unfinished(self) -> int:
        # Acknowledging a message removes it from the hash of messages.
        return self._redis.hlen("dramatiq:default.msgs")

    async def outcome(self):
        """Whether it is acknowledged, or has a result that a client would be given."""
        message = dramatiq.Message.decode(self._order.results.noted("job").encode())
        acknowledged = not self._redis.hexists("dramatiq:default.msgs", message.options["redis_message_id"])
        try:
            by = message.get_result(backend=_results(self._order))
        except ResultMissing:
            by = None
        note = f"{'acknowledged' if acknowledged else 'not acknowledged'}, result of {by}"
        return {"finished": acknowledged or by is not None, "by": by, "note": note}


if __name__ == "__main__":
    play(DramatiqPeer())
