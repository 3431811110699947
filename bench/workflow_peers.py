"""Workflows of Fencepost and of its peers by the same roles, each with a worker process and a database of its
own, on one durable PostgreSQL. Restate and Temporal have servers of their own, with stores of their own.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bench import jobs_zombie as zombie
from bench.jobs_env import Entrant, Servers
from bench.jobs_peers import PEERS, STRANGERS, CannotTakePart, Environment, Peer
from bench.report import Row
from bench.workflow_servers import SERVERS, Addresses, ServerProgram

STEPS = 5
"""As in `peers/runner.py`, which only the environments of the peers can import."""
WARM_UP = 20
LEASE_SECONDS = zombie.LEASE_SECONDS
LOAD_SECONDS_MAX = 600
STOPPED = "stopped inside a step"
NOWHERE: Addresses = {}


@dataclass(frozen=True, slots=True)
class WorkflowPeer(Peer):
    """A library whose runner has workflows, with the server that it brings."""

    server: ServerProgram | None = None

    @property
    def title(self) -> str:
        if self.server is None:
            return super(WorkflowPeer, self).title
        return f"{self.name} {self.server.version}"

    @property
    def runner(self) -> Path:
        return PEERS / f"workflows_{self.name}.py"

    @property
    def ready(self) -> bool:
        """Whether everything that it needs is installed."""
        return Environment(self).ready and (self.server is None or self.server.ready)


OURSELVES = WorkflowPeer("fencepost", "PostgreSQL")
STRANGE_WORKFLOWS = (
    *(
        WorkflowPeer(peer.name, peer.truth, peer.packages)
        for peer in STRANGERS
        if peer.name in ("dbos", "absurd")
    ),
    WorkflowPeer(
        "restate", "its own", ("restate-sdk[serde]==1.2.0", "hypercorn==0.18.0"), server=SERVERS["restate"]
    ),
    WorkflowPeer("temporal", "its own", ("temporalio==1.35.0",), server=SERVERS["temporal"]),
)


@dataclass(frozen=True, slots=True)
class PeerFigures:
    """What was measured of one library; `why_not` says why it was not."""

    peer: WorkflowPeer
    rows_per_second: float = 0.0
    trivial_per_second: float = 0.0
    writes_per_second: float = 0.0
    """With a statement for each step instead of a block, which only Fencepost has."""
    alone_ms: float = 0.0
    row_commits: float = 0.0
    trivial_commits: float = 0.0
    why_not: str = ""

    def row(self) -> Row:
        if self.why_not:
            return {"library": self.peer.title, "not measured": self.why_not}
        unseen = self.peer.server is not None
        return {
            "library": self.peer.title,
            "five steps with a row each, per second": self.rows_per_second,
            "five trivial steps, per second": self.trivial_per_second,
            "five trivial steps alone, p50 ms": self.alone_ms,
            # A server with a store of its own commits there.
            "commits a step, with a row": "not seen" if unseen else self.row_commits,
            "commits a step, without": "not seen" if unseen else self.trivial_commits,
        }


@contextmanager
def entrant_of(servers: Servers, peer: WorkflowPeer) -> Generator[Entrant]:
    """A library with a new database, and with its own server where it has one."""
    Environment(peer).make()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fencepost-bench-")))
        addresses: Addresses = stack.enter_context(peer.server.running(folder)) if peer.server else NOWHERE
        entrant = Entrant(peer, servers.database_for(peer), "", folder, addresses)
        entrant.prepare()
        yield entrant


def measure(servers: Servers, peer: WorkflowPeer, count: int, alone: int) -> PeerFigures:
    """Throughput, time alone and commits of one library."""
    _tell(f"{peer.title}: {count} workflows of each kind")
    try:
        with entrant_of(servers, peer) as entrant, entrant.worker():
            entrant.call("load", kind="trivial", count=WARM_UP)
            rates: dict[str, tuple[float, float]] = {}
            for kind in ("rows", "trivial") if peer.packages else ("rows", "writes", "trivial"):
                before = entrant.commits()
                done = entrant.call("load", kind=kind, count=count, deadline_seconds=LOAD_SECONDS_MAX)
                seconds = float(done["seconds"])
                rates[kind] = count / seconds, (entrant.commits() - before) / (count * STEPS)
            alone_ms = float(entrant.call("alone", kind="trivial", count=alone)["p50_ms"])
    except (CannotTakePart, TimeoutError) as error:
        return PeerFigures(peer, why_not=str(error))
    (rows, row_commits), (trivial, trivial_commits) = rates["rows"], rates["trivial"]
    writes, _ = rates.get("writes", (0.0, 0.0))
    return PeerFigures(peer, rows, trivial, writes, alone_ms, row_commits, trivial_commits)


def takeover_seconds(servers: Servers, how: Literal["killed", "frozen"]) -> float:
    """How long after its worker was killed, or frozen with its transaction open, a step runs elsewhere."""
    order = {"kind": "zombie", "lease_seconds": LEASE_SECONDS}
    with entrant_of(servers, OURSELVES) as entrant, entrant.worker("A", **order) as first:
        entrant.call("submit", **order)
        _until(lambda: entrant.results.acted("A", "started"), "the step begins")
        with entrant.worker("B", **order):
            _until(lambda: _workers(entrant) == 2, "the second worker is there")
            began = time.monotonic()
            for pid in first.pids:
                os.kill(pid, signal.SIGKILL if how == "killed" else signal.SIGSTOP)
            _until(lambda: entrant.results.acted("B", "started"), "the step runs elsewhere")
            took = time.monotonic() - began
            entrant.results.allow("B")
    return took


def zombie_row(servers: Servers, peer: WorkflowPeer) -> Row:
    """A worker is stopped inside a step until its successor has finished the workflow."""
    _tell(f"{peer.title}: the zombie inside a step")
    try:
        with entrant_of(servers, peer) as entrant:
            ending = zombie.play(entrant, "after")
    except zombie.NeverRanElsewhere:
        return {STOPPED: peer.title, "the late step": "never ran elsewhere, so it was not late"}
    except (CannotTakePart, TimeoutError) as error:
        return {STOPPED: peer.title, "the late step": f"not seen: {error}"}
    said = "changed the outcome" if ending.accepted else "changed nothing"
    return {
        STOPPED: peer.title,
        "the late step": said,
        "rows of the step": ending.effects,
        "end": ending.note,
    }


def best(figures: Iterable[PeerFigures], name: str, *, least: bool = False) -> float:
    """The best figure of the peers that were measured; 0 where none was."""
    found = [float(getattr(one, name)) for one in figures if not one.why_not]
    if not found:
        return 0.0
    return min(found) if least else max(found)


def _workers(entrant: Entrant) -> int:
    with entrant.database.connect_admin() as connection:
        return len(connection.execute("select 1 from fencepost.job_workers").fetchall())


def _until(met: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + zombie.ELSEWHERE_SECONDS_MAX
    while not met():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {zombie.ELSEWHERE_SECONDS_MAX} s: {what}")
        time.sleep(0.01)


def _tell(text: str) -> None:
    sys.stderr.write(f"{text}\n")
