"""Faults for nodes: killed, paused beyond their lease, and the clock jumps, while they serve."""

import asyncio
import random
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import psycopg

from fencepost.embedded import Database
from fencepost.embedded._deadline import Deadline
from fencepost.testing import Child, ChildFailed, Clock
from tests.acceptance.nonces.share import fill_gaps, serve_share

LEASE_SECONDS = 15.0
SCHEMA = """
    create table asked (signer text, block text, begun float8);
    create table told (signer text, block text, ended float8, request_id text, nonce bigint, hold bigint);
    grant select, insert on asked, told to fencepost_app;
"""


@dataclass(frozen=True)
class Plan:
    """How much is asked for, by which callers, and in which modes the nodes run."""

    requests: int
    signers: int = 2
    block: int = 20
    modes: tuple[str, ...] = ("basic",) * 4
    troubles: int = 12

    @property
    def total(self) -> int:
        return self.requests * self.signers

    def task(self, share: int) -> dict[str, Any]:
        settings = {
            "mode": self.modes[share],
            "node_address": f"http://node-{share}",
            "lease_seconds": LEASE_SECONDS,
            "wait_seconds": 2.0,
            "turn_seconds": 0.02,
            "batch_max": 1000,
        }
        return {
            "requests": self.requests,
            "signers": self.signers,
            "block": self.block,
            "nodes": len(self.modes),
            "settings": settings,
        }


@dataclass
class Storm:
    """Runs the plan to its end, and makes trouble on the way, at points of its progress."""

    database: Database
    clock: Clock
    plan: Plan
    seed: int
    within: float = 100.0
    troubles: list[str] = field(default_factory=list[str])

    def run(self) -> None:
        with self.database.connect_admin() as admin:
            admin.execute(SCHEMA.encode())
        self._chance = random.Random(self.seed)  # noqa: S311 - Trouble is no secret.
        with ExitStack() as stack, psycopg.connect(self.database.admin_url, autocommit=True) as self._admin:
            self._stack = stack
            children = [self._start(share) for share in range(len(self.plan.modes))]
            deadline = Deadline(self.within, f"{self.plan.total} nonces are used")
            for step in range(1, self.plan.troubles + 1):
                goal = self.plan.total * step // (self.plan.troubles + 2)
                self._await(deadline, goal, children)
                self._trouble(children)
            self._await(deadline, self.plan.total, children)
            for child in children:
                child.line("done", within=60)
        asyncio.run(fill_gaps(self.database.url, self.plan.signers))

    def used(self) -> int:
        row = self._admin.execute(
            "select count(*) from fencepost.nonce_allocation where status = 'CONSUMED'"
        ).fetchone()
        assert row is not None
        return int(row[0])

    def _await(self, deadline: Deadline, goal: int, children: list[Child]) -> None:
        """Wait for progress. The last holder of a signer may be a dead one: then only time helps."""
        stalled_at, looks = -1, 0

        def look() -> bool:
            nonlocal stalled_at, looks
            used = self.used()
            if used >= goal:
                return True
            looks = looks + 1 if used == stalled_at else 0
            stalled_at = used
            if looks and looks % 20 == 0:
                self.clock.advance(LEASE_SECONDS)
            return False

        try:
            deadline.wait(look)
        except TimeoutError as error:
            said = "\n".join(child.output for child in children)
            raise AssertionError(f"{error}; {self.used()} are. {self.troubles}\n{said}") from error

    def _trouble(self, children: list[Child]) -> None:
        share = self._chance.randrange(len(children))
        kind = self._chance.choice(["kill", "pause", "jump", "kill while another pauses"])
        self.troubles.append(kind)
        match kind:
            case "kill":
                self._replace(children, share)
            case "pause":
                self._pause(children, share, lambda: None)
            case "jump":
                self.clock.advance(self._chance.choice([1, LEASE_SECONDS / 2, LEASE_SECONDS * 2, 86_400]))
            case _:
                other = (share + 1) % len(children)
                self._pause(children, share, lambda: self._replace(children, other))

    def _pause(self, children: list[Child], share: int, meanwhile: Callable[[], None]) -> None:
        """Beyond the lease, by the database's clock; another process goes on before the sleeper wakes."""
        if is_done(children[share]):
            return
        try:
            children[share].stop()
        except ChildFailed:
            # It ended in this very moment: no process is left to pause.
            children[share].line("done", within=60)
            return
        before = self.used()
        self.clock.advance(LEASE_SECONDS * 2)
        meanwhile()
        Deadline(60, "others go on while one pauses").wait(
            lambda: (
                self.used() > before
                or all(is_done(child) for place, child in enumerate(children) if place != share)
            )
        )
        children[share].resume()

    def _replace(self, children: list[Child], share: int) -> None:
        if is_done(children[share]):
            return
        children[share].kill()
        children[share] = self._start(share)

    def _start(self, share: int) -> Child:
        task = self.plan.task(share)
        return self._stack.enter_context(Child(serve_share, self.database.url, share, task))


def is_done(child: Child) -> bool:
    """Whether it has served its share."""
    return "done" in child.output.splitlines()
