"""Faults: workers are killed and frozen, servers crash and lose data, while jobs are submitted.

A fault comes whenever some more jobs have ended, so that faults and work interleave on a fast machine and on
a slow one alike. Which fault, where and to which process is drawn from a seed.
"""

import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import psycopg

from fencepost.embedded import PostgresServer, ValkeyServer
from fencepost.embedded._deadline import Deadline
from fencepost.testing import Child
from tests.acceptance.jobs import worker_processes
from tests.acceptance.jobs.env import JobsEnv

BATCH = 100
PATIENCE_SECONDS = 5.0
"""How long to wait for more jobs to end before the next fault comes anyway."""


@dataclass
class Storm:
    env: JobsEnv
    postgres: PostgresServer
    valkey: ValkeyServer
    points: list[str]
    jobs: int
    workers: int
    faults: int
    seed: int
    count: Counter[str] = field(default_factory=Counter[str])

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)  # noqa: S311 -- repeatable, not secret.
        self.process_pool: list[Child] = []
        self.frozen: list[tuple[Child, float]] = []
        self.asked = 0
        self.started = time.monotonic()
        self.kinds: dict[str, tuple[int, Callable[[], None]]] = {
            "worker killed": (6, self.kill_a_worker),
            "worker frozen past its leases": (4, self.freeze_a_worker),
            "redis flushed": (2, self.flush),
            "redis crashed and came back empty": (2, self.wipe),
            "postgresql crashed": (2, self.crash_postgres),
            "postgresql restarted": (1, self.restart_postgres),
        }

    def rage(self) -> None:
        """The whole storm, from the first job to the last."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._end_all)
            for _ in range(self.faults):
                self.ask_for_more()
                self.man()
                self.wait_for_progress()
                self.strike()
            while self.asked < self.jobs:
                self.ask_for_more()
            self.calm_down()

    def ask_for_more(self) -> None:
        """So many at a time that the last are asked for when the last fault has come."""
        wanted = min(self.jobs, self.asked + max(BATCH, -(-self.jobs // self.faults)))
        while self.asked < wanted:
            kind = worker_processes.KINDS[self.chance.randrange(len(worker_processes.KINDS))]
            keys = [f"{kind}-{n}" for n in range(self.asked, min(wanted, self.asked + BATCH))]
            fail = int(self.chance.random() < 0.1)
            linger = self.chance.choice([0.0, 0.0, 0.0, 0.05])
            self._insist(keys, lambda: self.env.ask(kind, keys, fail=fail, linger=linger))  # noqa: B023
            self.asked += len(keys)

    def man(self) -> None:
        """Replace who died, and wake who was frozen long enough."""
        now = time.monotonic()
        for child, until in [*self.frozen]:
            if until <= now:
                child.resume()
                self.frozen.remove((child, until))
        for child in [*self.process_pool]:
            if not is_alive(child):
                self._bury(child)
        while len(self.process_pool) < self.workers:
            self.process_pool.append(self._start(self._order()))

    def wait_for_progress(self) -> None:
        before = self._ended()
        with contextlib.suppress(TimeoutError):
            Deadline(PATIENCE_SECONDS, "more jobs have ended").wait(
                lambda: self._ended() - before > self.jobs / self.faults * 0.8
            )

    def strike(self) -> None:
        names = list(self.kinds)
        [name] = self.chance.choices(names, weights=[self.kinds[name][0] for name in names])
        self.kinds[name][1]()
        self.count[name] += 1

    def kill_a_worker(self) -> None:
        child = self.chance.choice(self.process_pool)
        self.frozen = [(frozen, until) for frozen, until in self.frozen if frozen is not child]
        child.kill()

    def freeze_a_worker(self) -> None:
        moving = [
            c for c in self.process_pool if is_alive(c) and all(c is not frozen for frozen, _ in self.frozen)
        ]
        if moving:
            child = self.chance.choice(moving)
            with contextlib.suppress(AssertionError):  # It may come to its crash point first.
                child.stop()
                seconds = self.env.lease_seconds * self.chance.uniform(1.2, 3)
                self.frozen.append((child, time.monotonic() + seconds))

    def flush(self) -> None:
        self.valkey.flush()

    def wipe(self) -> None:
        self.valkey.kill()
        self.wait_for_progress()
        self.valkey.start()

    def crash_postgres(self) -> None:
        self.postgres.kill()
        self.postgres.start()

    def restart_postgres(self) -> None:
        self.postgres.restart()

    def calm_down(self) -> None:
        """All are woken, none is ordered to crash any more; what is left must end."""
        for child, _ in self.frozen:
            child.resume()
        self.frozen.clear()
        healthy = [self._start("") for _ in range(2)]
        self.env.nothing_is_left(within=120)
        for child in (*healthy, *self.process_pool):
            if is_alive(child):
                child.say("stop")
        for child in healthy:
            child.succeed(within=60)
            self._bury(child)

    def figures(self) -> dict[str, Any]:
        env = self.env
        refused = Counter(refused.reason for refused in env.refusals())
        return {
            "jobs": self.asked,
            "seconds": round(time.monotonic() - self.started),
            "effects": env.value("select count(*) from effect"),
            "finishing_writes": env.value("select count(*) from finishing"),
            "attempts_beyond_the_first": int(env.value("select sum(attempt - 1) from fencepost.jobs")),
            "faults": dict(sorted(self.count.items())),
            "refusals": dict(sorted(refused.items())),
        }

    def _order(self) -> str:
        """Half of the workers are ordered to crash somewhere, some of them soon."""
        if self.chance.random() < 0.5:
            return ""
        self.count["crash point ordered"] += 1
        return f"{self.chance.choice(self.points)}:kill@{self.chance.choice([1, 2, 5, 20])}"

    def _start(self, order: str) -> Child:
        return self.env.child(
            crash=order,
            concurrency=self.chance.choice([4, 16, 40]),
            # A worker with room for half a batch claims from PostgreSQL, beside those that Redis calls.
            batch=self.chance.choice([10, 50]),
            lease_seconds=self.env.lease_seconds,
        )

    def _bury(self, child: Child) -> None:
        child.__exit__(None, None, None)
        if child in self.process_pool:
            self.process_pool.remove(child)

    def _end_all(self) -> None:
        for child in [*self.process_pool]:
            self._bury(child)

    def _ended(self) -> int:
        with contextlib.suppress(psycopg.Error):
            return int(self.env.value("select count(*) from finishing"))
        return 0

    def _insist(self, keys: list[str], ask: Callable[[], object]) -> None:
        """Ask until it is written. A commit whose answer was lost is looked up before it is repeated."""

        def is_written() -> bool:
            try:
                if not self.env.rows("select 1 from asked where key = %s", (keys[0],)):
                    ask()
            except psycopg.OperationalError:
                return False
            return True

        Deadline(30, "the database has written what was asked").wait(is_written)


def is_alive(child: Child) -> bool:
    return child.is_alive
