"""The roles of every peer, and their protocol: `python run_NAME.py ROLE '{...}'`.

Runs inside the environments of the peers. The answer is one JSON document, on the last line of the output.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from bench.peers.results_store import ResultsStore
else:
    # Beside this file: in the environment of a peer there is no Fencepost.
    from results_store import ResultsStore

POLL_SECONDS = 0.005
STEPS = 5
"""The steps of a workflow, in the benchmark of workflows."""
KINDS = ("empty", "write", "write_with", "timed", "zombie", "chunk", "bytes_100", "bytes_10240")


@dataclass(frozen=True)
class PeerTask:
    """What the benchmark asks for."""

    postgres_url: str
    admin_url: str
    redis_url: str
    results: ResultsStore
    worker: str = "A"
    kind: str = "empty"
    count: int = 0
    rate: float = 100
    seconds: float = 0
    deadline_seconds: float = 120
    lease_seconds: int = 60
    server_url: str = ""
    server_admin_url: str = ""
    """Of a library with a server of its own."""


class Client(Protocol):
    """The side that submits, and that reads the store."""

    async def submit_many(self, kind: str, count: int) -> None:
        """As fast as the library allows in one process, and as durably as it can."""

    async def submit(self, kind: str, at: float) -> None:
        """One job, in the way that its documentation shows."""

    async def unfinished(self) -> int:
        """The number of jobs that the store does not show yet as finished and acknowledged."""
        ...

    async def outcome(self) -> dict[str, Any]:
        """For the only job: whether it is finished, and by which worker if the library keeps results."""
        ...


class Peer(Protocol):
    """A job library with its settings for this benchmark."""

    def prepare(self, order: PeerTask) -> None:
        """Create what the library needs in an empty database."""

    def work(self, order: PeerTask) -> None:
        """Run a worker until SIGTERM."""

    def client(self, order: PeerTask) -> AbstractAsyncContextManager[Client]: ...


def play(peer: Peer) -> None:
    """Run the role that the command line names."""
    role, given = sys.argv[1], json.loads(sys.argv[2])
    order = PeerTask(results=ResultsStore(Path(given.pop("results"))), **given)
    if role == "prepare":
        peer.prepare(order)
    elif role == "work":
        threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
        peer.work(order)
    else:
        parts: dict[str, Callable[[Client, PeerTask], Awaitable[dict[str, Any]]]] = {
            "load": _load,
            "pace": _pace,
            "fill": _fill,
            "submit": _submit,
            "alone": _alone,
            "outcome": _outcome,
            "recover": _recover,
        }
        sys.stdout.write(json.dumps(asyncio.run(_with_client(peer, order, parts[role]))) + "\n")


def _end_with_parent(parent: int) -> None:
    """A worker that outlived the benchmark would disturb the next measurement."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


async def _with_client(
    peer: Peer, order: PeerTask, part: Callable[[Client, PeerTask], Awaitable[dict[str, Any]]]
) -> dict[str, Any]:
    async with peer.client(order) as client:
        return await part(client, order)


async def _load(client: Client, order: PeerTask) -> dict[str, Any]:
    """Submit, and wait until running workers have finished them all: the whole life of jobs."""
    before = order.results.total()
    began = time.monotonic()
    deadline = began + order.deadline_seconds
    await client.submit_many(order.kind, order.count)
    submitted = time.monotonic()
    await _until(lambda: order.results.total() - before >= order.count, deadline)
    handled = time.monotonic()
    while await client.unfinished() > 0:
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"{await client.unfinished()} jobs are not finished after {order.deadline_seconds} s"
            )
        await asyncio.sleep(getattr(client, "poll_seconds", POLL_SECONDS))
    return {
        "seconds": time.monotonic() - began,
        "submit_seconds": submitted - began,
        "handle_seconds": handled - began,
        "handled": order.results.total() - before,
    }


async def _pace(client: Client, order: PeerTask) -> dict[str, Any]:
    """Submit at a steady rate, however long the answers take, and wait until every job has started."""
    before = order.results.total()
    count = round(order.rate * order.seconds)
    began = time.monotonic()
    pending: set[asyncio.Task[None]] = set()
    for turn in range(count):
        await asyncio.sleep(max(0.0, began + turn / order.rate - time.monotonic()))
        task = asyncio.create_task(client.submit("timed", time.monotonic()))
        pending.add(task)
        task.add_done_callback(pending.discard)
    await asyncio.gather(*pending)
    await _until(lambda: order.results.total() - before >= count, time.monotonic() + order.deadline_seconds)
    return {"submitted": count, "waits": order.results.waits()}


async def _alone(client: Client, order: PeerTask) -> dict[str, Any]:
    """One after another, from the submission to the end of the handler: the median in milliseconds."""
    took: list[float] = []
    for turn in range(order.count):
        before, began = order.results.total(), time.monotonic()
        await client.submit(order.kind, began)
        while order.results.total() == before:
            if time.monotonic() - began > order.deadline_seconds:
                raise TimeoutError(f"number {turn} is not handled after {order.deadline_seconds} s")
            await asyncio.sleep(0.0005)
        took.append((time.monotonic() - began) * 1000)
    return {"p50_ms": median(took)}


async def _fill(client: Client, order: PeerTask) -> dict[str, Any]:
    """Submit so many, or as many as the time allows, while no worker runs."""
    began = time.monotonic()
    done, piece = 0, 1000
    while done < order.count and time.monotonic() - began < order.deadline_seconds:
        piece = min(piece, order.count - done)
        await client.submit_many("empty", piece)
        done += piece
    return {"waiting": done, "seconds": time.monotonic() - began}


async def _submit(client: Client, order: PeerTask) -> dict[str, Any]:
    await client.submit(order.kind, time.monotonic())
    return {}


async def _outcome(client: Client, order: PeerTask) -> dict[str, Any]:
    return await client.outcome()


async def _recover(client: Client, order: PeerTask) -> dict[str, Any]:
    """What the documentation tells an operator to run for jobs of lost workers, if no worker does it."""
    recover = getattr(client, "recover", None)
    if recover is not None:
        await recover(order.lease_seconds)
    return {"recovers": recover is not None}


async def _until(met: Callable[[], bool], deadline: float) -> None:
    while not met():
        if time.monotonic() > deadline:
            raise TimeoutError("the workers have not handled every job in time")
        await asyncio.sleep(POLL_SECONDS)


async def by_batches(submit: Callable[[int], Awaitable[None]], count: int, batch: int) -> None:
    """Submit `count` in batches, two of them in flight: while one waits for the disk the next is written."""
    sizes = iter([min(batch, count - first) for first in range(0, count, batch)])

    async def submit_some() -> None:
        for size in sizes:
            await submit(size)

    await asyncio.gather(submit_some(), submit_some())


async def run_until_told(work: Awaitable[Any], stop: Callable[[], Any] | None = None) -> None:
    """Run an async worker until SIGTERM; then let it stop by itself, or cancel it."""
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)
    loop.add_signal_handler(signal.SIGTERM, stop or task.cancel)
    with suppress(asyncio.CancelledError):
        await task
