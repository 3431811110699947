"""How each fault of the schedule is injected, and when it is over.

A fault that does not find its victim (a process that is dead already, a COMMIT that never came) has not hit,
and is not counted: only faults that happened make a run hard.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import psycopg

from fencepost.embedded import EmbeddedError
from fencepost.embedded._deadline import Deadline
from fencepost.testing import DropRule, Proxy
from fencepost_torture._backup import back_up, restore
from fencepost_torture._environment import Environment
from fencepost_torture._failovers import Failovers
from fencepost_torture._process_pool import ProcessPool, SystemProcess
from fencepost_torture._schedule import FAMILIES, Fault
from fencepost_torture._system_environment import SystemEnvironment
from fencepost_torture._tally import Tally
from fencepost_torture._wall_clocks import put

DELAY_SECONDS = 0.2
ASTRAY_SECONDS = 3600.0
"""How far the clock of a node goes wrong for each lease period of its fault: by hours, as wrong clocks do."""
REORDER_SECONDS = 0.3
HEAL_AGAIN_SECONDS = 0.5
HEAL_SECONDS_MAX = 180.0
CUTS = ("primary-cut", "standbys-cut", "clients-cut")
TROUBLE = (EmbeddedError, OSError, TimeoutError, psycopg.OperationalError)
ORDER_LEASES = 3
"""How long a process has to reach the crash point where it was told to end; then it may get another order."""
AHEAD_MAX = 2.0
"""How far the hits of one system's points may be above the mean, where all points are to be hit often."""
RARE = 3
"""One is chosen from this many points that were hit least, where all points are to be hit often."""


@dataclass
class ActiveFault:
    """A fault with an end: it is healed then, or when the fault phase ends."""

    heals_at: float
    heal: Callable[[], object]


class FaultInjector:
    """Injects faults into an environment and a process pool, and heals what is due."""

    def __init__(
        self,
        environment: Environment,
        process_pool: ProcessPool,
        tally: Tally,
        points: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """With `points`, those of each system, every other order is for one of the points that were hit
        least."""
        self.tally = tally
        self._environment = environment
        self._process_pool = process_pool
        self._points = points or {}
        self._pending: dict[tuple[str, int], Fault] = {}
        self._active_faults: list[ActiveFault] = []
        self._drop_rules: list[tuple[str, DropRule]] = []
        self._started = time.monotonic()
        self._harmed: set[Proxy] = set()
        self._postgres_is_away = False
        self._redis_is_away = False
        self._ways: Mapping[str, Callable[[Fault], bool]] = {
            "kill": self._kill,
            "crash": self._order,
            "pause": self._pause,
            "stall": self._order,
            "postgres-kill": self._kill_postgres,
            "postgres-restart": self._restart_postgres,
            "postgres-freeze": self._freeze_postgres,
            "redis-kill": self._kill_redis,
            "redis-restart": self._restart_redis,
            "redis-wipe": self._wipe_redis,
            "redis-freeze": self._freeze_redis,
            "net-delay": self._delay,
            "net-cut": self._cut,
            "net-half-open": self._swallow,
            "net-refuse": self._refuse,
            "net-lost-reply": self._lose_reply,
            "net-lost-commit": self._lose_commit,
            "net-reorder": self._reorder,
            "clock-jump": self._jump,
            "node-clock-jump": self._jump_node,
            "postgres-clock-jump": self._jump_postgres,
            "disk-full": self._fill_disk,
            "power-cut": self._cut_power,
            "restore": self._restore,
            **dict.fromkeys(FAMILIES["cluster"], self._fail_over),
        }

    def begin(self) -> None:
        self._started = time.monotonic()

    def strike(self, fault: Fault) -> None:
        self.tally.strike(fault, time.monotonic() - self._started)
        try:
            hit = self._ways[fault.kind](fault)
        except TROUBLE:
            # The server was down already, or the machine too busy to inject it: it did not hit.
            return
        if hit:
            self.tally.count(fault.kind)

    def heal_due(self) -> None:
        now = time.monotonic()
        due = [active_fault for active_fault in self._active_faults if active_fault.heals_at <= now]
        self._active_faults = [
            active_fault for active_fault in self._active_faults if active_fault.heals_at > now
        ]
        for active_fault in due:
            if not _healed(active_fault):
                self._active_faults.append(ActiveFault(now + HEAL_AGAIN_SECONDS, active_fault.heal))
        self._count_fired()

    def heal_all(self) -> None:
        """End the fault phase: everything works, and no process has an order to crash."""
        # Healing a proxy closes its connections, which would be one more fault where there was none.
        servers: list[Callable[[], object]] = [self._bring_redis_back]
        cluster = self._environment.cluster
        if cluster is None:
            servers.append(self._bring_postgres_back)
        else:
            failovers = Failovers(cluster, self._environment.envs.values())
            servers.append(lambda: failovers.repair(whole=True))
        last = [*servers, *(wire.heal for wire in self._harmed)]
        self._active_faults += [ActiveFault(0.0, heal) for heal in last]
        Deadline(HEAL_SECONDS_MAX, "everything works again").wait(self._heal_each)
        self._harmed.clear()
        self._count_fired()
        self._drop_rules.clear()
        self._pending.clear()

    @property
    def is_over(self) -> bool:
        """Whether every fault that was injected is healed."""
        return not self._active_faults

    def _heal_each(self) -> bool:
        self._active_faults = [
            active_fault for active_fault in self._active_faults if not _healed(active_fault)
        ]
        return not self._active_faults

    # Processes.

    def _kill(self, fault: Fault) -> bool:
        return self._process_pool.kill(self._victim(fault))

    def _order(self, fault: Fault) -> bool:
        """An order to end, or to stop, at a named crash point. It hits when the process gets there.

        A process that still has another order gets this one afterwards, or its successor does.
        """
        self._pending.setdefault((fault.system, fault.place), fault)
        return False

    def give_orders(self) -> None:
        for place, fault in list(self._pending.items()):
            victim, lease_seconds = self._victim(fault), self._env(fault).lease_seconds
            if self._is_ahead(fault.system):
                del self._pending[place]
            elif victim.is_alive and not victim.is_under_orders(ORDER_LEASES * lease_seconds):
                del self._pending[place]
                point, nth = self._aim(fault)
                signum = signal.SIGKILL if fault.kind == "crash" else signal.SIGSTOP
                self._process_pool.order(victim, point, signum, nth, fault.leases * lease_seconds)

    def _is_ahead(self, system: str) -> bool:
        """Whether its crash points were hit more than the mean of all systems, where all are to be hit often:
        a fast system leaves the machine to a slow one."""
        if system not in self._points:
            return False
        everybody = [point for points in self._points.values() for point in points]
        return self._mean_hits(self._points[system]) > self._mean_hits(everybody) + AHEAD_MAX

    def _mean_hits(self, points: Sequence[str]) -> float:
        return sum(self.tally.points[point] for point in points) / len(points)

    def _aim(self, fault: Fault) -> tuple[str, int]:
        """The crash point, and at which pass of it."""
        if fault.system not in self._points or fault.number % 2:
            return fault.point, fault.nth
        rare = sorted(self._points[fault.system], key=lambda point: self.tally.points[point])[:RARE]
        return rare[fault.number // 2 % len(rare)], 1

    def _pause(self, fault: Fault) -> bool:
        return self._process_pool.stop(self._victim(fault), fault.leases * self._env(fault).lease_seconds)

    def crashed(self, _process: SystemProcess, point: str) -> None:
        self.tally.count("crash", point)

    def stalled(self, process: SystemProcess, point: str) -> None:
        """The process stopped where it was told to; it stays stopped for longer than its lease."""
        self.tally.count("stall", point)
        process.resume_at = time.monotonic() + process.stall_seconds

    def _victim(self, fault: Fault) -> SystemProcess:
        return self._process_pool.places[fault.system, fault.place]

    def _env(self, fault: Fault) -> SystemEnvironment:
        return self._environment.envs[fault.system]

    # Servers.

    def _kill_postgres(self, fault: Fault) -> bool:
        self._environment.postgres.kill()
        self._postgres_is_away = True
        self._later(0.2 * fault.leases, self._bring_postgres_back)
        return True

    def _restart_postgres(self, fault: Fault) -> bool:
        if self._postgres_is_away:
            return False
        self._environment.postgres.restart()
        return True

    def _freeze_postgres(self, fault: Fault) -> bool:
        self._environment.postgres.pause()
        self._postgres_is_away = True
        self._later(0.5 * fault.leases, self._bring_postgres_back)
        return True

    def _bring_postgres_back(self) -> None:
        """Make the server run again, and not be frozen, whichever and however many faults hit it."""
        if self._environment.postgres.running:
            self._environment.postgres.resume()
        elif self._environment.disk is not None:
            self._environment.disk.sync()
        self._environment.postgres.start()
        self._postgres_is_away = False

    def _kill_redis(self, fault: Fault) -> bool:
        self._environment.valkey.kill()
        self._redis_is_away = True
        self._later(0.2 * fault.leases, self._bring_redis_back)
        return True

    def _restart_redis(self, fault: Fault) -> bool:
        if self._redis_is_away:
            return False
        self._environment.valkey.restart()
        return True

    def _wipe_redis(self, fault: Fault) -> bool:
        if self._redis_is_away:
            return False
        self._environment.valkey.flush()
        return True

    def _freeze_redis(self, fault: Fault) -> bool:
        self._environment.valkey.pause()
        self._redis_is_away = True
        self._later(0.5 * fault.leases, self._bring_redis_back)
        return True

    def _bring_redis_back(self) -> None:
        if self._environment.valkey.running:
            self._environment.valkey.resume()
        self._environment.valkey.start()
        self._redis_is_away = False

    # The network.

    def _wire(self, fault: Fault) -> Proxy:
        env = self._env(fault)
        wire = env.redis_wire if fault.at_redis else env.postgres_wire
        self._harmed.add(wire)
        return wire

    def _delay(self, fault: Fault) -> bool:
        wire = self._wire(fault)
        wire.delay(DELAY_SECONDS)
        self._later(fault.leases, lambda: wire.delay(0))
        return wire.connections > 0

    def _reorder(self, fault: Fault) -> bool:
        """Reorders at least two connections: one alone cannot be overtaken."""
        wire = self._wire(fault)
        wire.reorder(REORDER_SECONDS)
        self._later(fault.leases, lambda: wire.reorder(0))
        return wire.connections > 1

    def _cut(self, fault: Fault) -> bool:
        wire = self._wire(fault)
        hit = wire.connections > 0
        wire.cut()
        return hit

    def _swallow(self, fault: Fault) -> bool:
        wire = self._wire(fault)
        wire.swallow()
        self._later(0.7 * fault.leases, wire.heal)
        return wire.connections > 0

    def _refuse(self, fault: Fault) -> bool:
        wire = self._wire(fault)
        wire.refuse()
        wire.cut()
        self._later(0.5 * fault.leases, wire.heal)
        return True

    def _lose_reply(self, fault: Fault) -> bool:
        """The reply to a commit is lost after the commit; for Redis, the reply to any command."""
        wire = self._wire(fault)
        lose = wire.lose_reply if fault.at_redis else wire.lose_commit_reply
        self._drop_rules.append((fault.kind, lose(nth=fault.nth)))
        return False

    def _lose_commit(self, fault: Fault) -> bool:
        wire = self._wire(fault)
        self._drop_rules.append((fault.kind, wire.lose_commit(nth=fault.nth)))
        return False

    def _count_fired(self) -> None:
        for kind, drop_rule in self._drop_rules:
            if drop_rule.fired.is_set():
                self.tally.count(kind)
        self._drop_rules = [laid for laid in self._drop_rules if not laid[1].fired.is_set()]

    # Clock and disk.

    def _jump(self, fault: Fault) -> bool:
        """Forward past every lease, or back a little: both by the clock of one system's database."""
        if self._postgres_is_away:
            return False
        self._env(fault).clock.advance(self._leap_seconds(fault))
        return True

    def _jump_postgres(self, fault: Fault) -> bool:
        """The same for the clock of the whole server, including its timeouts and its log."""
        if self._postgres_is_away:
            return False
        env, seconds = self._env(fault), self._leap_seconds(fault)
        before = env.value("select clock_timestamp()")
        self._environment.jump(seconds)
        moved = (env.value("select clock_timestamp()") - before).total_seconds()
        return bool(moved >= seconds if seconds > 0 else moved < 0)

    def _jump_node(self, fault: Fault) -> bool:
        """By hours, and it stays so: nothing that a node does may depend on its own clock."""
        clock = self._env(fault).clock_of(fault.place)
        if not clock.exists():
            return False
        put(clock, fault.leases * (ASTRAY_SECONDS if fault.nth < 5 else -ASTRAY_SECONDS))
        return self._victim(fault).is_alive

    def _leap_seconds(self, fault: Fault) -> float:
        leases = fault.leases if fault.nth < 5 else -0.5 * fault.leases
        return leases * self._env(fault).lease_seconds

    def _fill_disk(self, fault: Fault) -> bool:
        if self._environment.disk is None:
            return False
        self._environment.disk.fill()
        self._postgres_is_away = True
        self._later(0.5 * fault.leases, self._drain_disk)
        return self._environment.has_no_room()

    def _drain_disk(self) -> None:
        assert self._environment.disk is not None
        self._environment.disk.drain()
        # PostgreSQL stops itself when it cannot write its log, and has to be started again from outside.
        self._bring_postgres_back()

    def _cut_power(self, fault: Fault) -> bool:
        """The machine of both servers loses its power: what was not synced is lost."""
        if self._environment.disk is None or not self._environment.postgres.running:
            # The power is off already: nothing was written since.
            return False
        for server in (self._environment.postgres, self._environment.valkey):
            if server.running:
                server.kill()
        self._postgres_is_away = self._redis_is_away = True
        hit = self._environment.disk.cut_power()
        self._later(0.2 * fault.leases, self._bring_postgres_back)
        self._later(0.2 * fault.leases, self._bring_redis_back)
        return hit

    def _restore(self, fault: Fault) -> bool:
        """Make a backup, and the next time restore it: what was committed in between is lost."""
        env = self._env(fault)
        if self._postgres_is_away:
            return False
        if restore(env):
            return True
        back_up(env)
        return False

    # The cluster.

    def _fail_over(self, fault: Fault) -> bool:
        cluster = self._environment.cluster
        if (
            cluster is None
            or (fault.kind in CUTS and not cluster.is_cuttable)
            or (fault.kind == "primary-full" and not cluster.is_fillable)
        ):
            return False
        failovers = Failovers(cluster, self._environment.envs.values())
        try:
            failovers.inject(fault.kind)
        finally:
            self._later(0, failovers.repair)
        self.tally.first_claims += failovers.first_claims
        return True

    def _later(self, leases: float, heal: Callable[[], object]) -> None:
        seconds = leases * next(iter(self._environment.envs.values())).lease_seconds
        self._active_faults.append(ActiveFault(time.monotonic() + seconds, heal))


def _healed(active_fault: ActiveFault) -> bool:
    """False when it must be tried again: a busy machine may take too long to start a server."""
    try:
        active_fault.heal()
    except TROUBLE:
        return False
    return True
