"""One run: from the first process to the judgement."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, LiteralString

from fencepost.embedded.deadline import Deadline
from fencepost.testing import Breach
from fencepost.torture.crew import NURSERY, Crew, Process
from fencepost.torture.disk import Disk
from fencepost.torture.faults import Faults, Tally
from fencepost.torture.feeder import OPEN_MAX, Feeder
from fencepost.torture.ground import Ground
from fencepost.torture.machine_time import MachineTime
from fencepost.torture.schedule import Role, schedule
from fencepost.torture.stage import LEASE_SECONDS, Account, Errand, Stage, System
from fencepost.torture.systems import system_of
from fencepost.torture.verdict import Floors, Hardness, Judgement, judge

TICK_SECONDS = 0.02
FIRST_EFFECT_SECONDS = 120.0
FAREWELL_SECONDS = 60.0


@dataclass(frozen=True)
class Plan:
    """What is run, for how long, and what must be so afterwards."""

    seed: int
    seconds: float
    systems: Sequence[str]
    kinds: Sequence[str]
    points: Sequence[str] = ()
    """The crash points that count; none for all that the systems have."""
    gap_seconds: float = 0.5
    lease_seconds: float = LEASE_SECONDS
    server_settings: Mapping[str, str | int] = field(default_factory=dict[str, str | int])
    floors: Floors = field(default_factory=Floors)
    liveness_leases: float = 5.0
    """So many lease periods after the last fault everything is done, beside the time that the work takes."""
    patience_seconds: float = 60.0
    """How long what is late is waited for, before it is called lost."""
    enough: Callable[[Tally, Mapping[str, int]], bool] = lambda tally, effects: False
    """Ends the faults before their time, by what has hit and by the effects since the first fault, by system:
    neither a goal nor a test lasts longer than what it wants to see."""
    nursery: str = NURSERY
    nursery_arguments: Sequence[str] = ()
    before: Callable[[Stage], None] = lambda stage: None
    """Called with each stage before the first process; tests plant their bugs here."""
    after: Callable[[Stage], None] = lambda stage: None
    """Called with each stage when it is judged, and its database still there; tests take its history here."""


@dataclass(frozen=True)
class Moment:
    """How it stands, for the screen and for the chart."""

    at: float
    effects: Mapping[str, int]
    hits: int
    refusals: Mapping[str, int]


@dataclass
class Outcome:
    """Everything that the report tells."""

    plan: Plan
    seconds: float
    tally: Tally
    effects: Mapping[str, int]
    refusals: Mapping[str, int]
    hardness: Hardness
    restarts: int
    ended_by_themselves: int
    settled_after: float
    judgement: Judgement
    moments: Sequence[Moment]
    log: str = ""


@dataclass
class Ordeal:
    """A run, with its parts. `watch` is called about twice a second with how it stands."""

    plan: Plan
    disk: Disk | None = None
    watch: Callable[[Moment, Tally], None] = lambda moment, tally: None
    moments: list[Moment] = field(default_factory=list[Moment])

    def run(self) -> Outcome:
        plan = self.plan
        with ExitStack() as stack:
            ground = stack.enter_context(
                Ground(
                    plan.systems,
                    seed=plan.seed,
                    lease_seconds=plan.lease_seconds,
                    server_settings=plan.server_settings,
                    disk=self.disk,
                )
            )
            parts = stack.enter_context(self._opened(ground))
            crew = stack.enter_context(
                Crew(
                    ground.directory / "crew.log",
                    plan.systems,
                    nursery=plan.nursery,
                    arguments=plan.nursery_arguments,
                )
            )
            return _Run(self, ground, crew, parts).through()

    @contextmanager
    def _opened(self, ground: Ground) -> Generator[list[Part]]:
        with ExitStack() as stack:
            parts: list[Part] = []
            for name in self.plan.systems:
                system, stage = system_of(name), ground.stages[name]
                more = stack.enter_context(system.open(stage))
                self.plan.before(stage)
                open_max = int(getattr(system, "open_max", OPEN_MAX))
                parts.append(Part(system, stage, more, Feeder(system, stage, open_max=open_max)))
            yield parts


@dataclass
class Part:
    """One system of the run."""

    system: System
    stage: Stage
    more: Mapping[str, Any]
    feeder: Feeder
    boots: int = 0

    def role(self, points: Sequence[str]) -> Role:
        return Role(
            self.stage.name,
            self.system.processes,
            [point for point in self.system.points if not points or point in points],
            self.system.bears_clock_jumps,
            self.system.uses_redis,
            bool(getattr(self.system, "bears_restores", False)),
        )

    def remains(self) -> list[Breach]:
        return list(self.system.remains(self.stage))

    def left_behind(self) -> list[Breach]:
        return left_behind(self.stage)

    def errand(self, place: int) -> Errand:
        self.boots += 1
        return Errand(
            self.stage.name,
            place,
            self.boots,
            self.stage.url,
            self.stage.redis_wire.url,
            str(self.stage.chronicle.path),
            self.stage.lease_seconds,
            self.more,
        )


LEFT_BEHIND: LiteralString = """
    select 'connections', (select count(*) from pg_stat_activity where datname = current_database()
      and pid <> pg_backend_pid() and backend_type = 'client backend')
    union all select 'leases', (select count(*) from fencepost.lease_status where held)
    union all select 'running jobs', (select count(*) from fencepost.job_running)
    union all select 'prepared transactions',
      (select count(*) from pg_prepared_xacts where database = current_database())
"""


def left_behind(stage: Stage) -> list[Breach]:
    """Whatever nobody is there for any more."""
    return [
        Breach("left behind", what, f"{count} are still there")
        for what, count in stage.rows(LEFT_BEHIND)
        if count
    ]


def allowed_seconds(plan: Plan, seconds: float, accounts: Iterable[Account]) -> float:
    """Five lease periods, and as long as the work that is open took while there were faults.

    It was asked for while they lasted, so without them it takes no longer than they did: a system that did
    nothing at all has not all the time in the world.
    """
    paces = [account.open * seconds / max(1, account.done) for account in accounts]
    return plan.liveness_leases * plan.lease_seconds + min(seconds, max(paces))


class _Run:
    """The phases, in order."""

    def __init__(self, ordeal: Ordeal, ground: Ground, crew: Crew, parts: Sequence[Part]) -> None:
        self._ordeal = ordeal
        self._plan = ordeal.plan
        self._ground = ground
        self._crew = crew
        self._parts = {part.stage.name: part for part in parts}
        self._faults = Faults(ground, crew, self._errand_of)
        self._breaches: list[tuple[str, Breach]] = []
        self._calm: dict[str, int] = {}
        """The effects of each system before the first fault: they prove nothing."""
        self._began = time.monotonic()
        self._looked = 0.0

    def through(self) -> Outcome:
        self._begin()
        seconds = self._rage()
        # What is made up for in the calm behind the faults proves nothing, as what was made before them.
        under_faults = self._under_faults()
        self._faults.heal_all()
        for part in self._parts.values():
            part.feeder.stop()
        settled_after = self._settle(seconds)
        self._tidy()
        self._leave()
        self._judge()
        effects = {name: part.feeder.account.done for name, part in self._parts.items()}
        tally = self._faults.tally
        hardness = Hardness(seconds, under_faults, tally.hit.total(), self._ambiguous())
        judgement = judge(self._breaches, hardness, self._plan.floors)
        return Outcome(
            self._plan,
            seconds,
            tally,
            effects,
            self._refusals(),
            hardness,
            self._crew.restarts,
            self._crew.ended_by_themselves,
            settled_after,
            judgement,
            self._ordeal.moments,
            self._log() if judgement.breaches else "",
        )

    def _begin(self) -> None:
        for part in self._parts.values():
            for place in range(part.system.processes):
                self._crew.start(part.errand(place))
            part.feeder.start()
        # No fault before everybody is at work: a run is not spent on starting up.
        Deadline(FIRST_EFFECT_SECONDS, "every system has made an effect").wait(
            lambda: all(part.feeder.account.done or part.feeder.failure for part in self._parts.values())
        )

    def _rage(self) -> float:
        plan = self._plan
        blows = schedule(
            plan.seed,
            plan.kinds,
            [part.role(plan.points) for part in self._parts.values()],
            gap_seconds=plan.gap_seconds,
        )
        self._calm = {name: part.feeder.account.done for name, part in self._parts.items()}
        self._began = time.monotonic()
        self._faults.begin()
        blow = next(blows, None)
        due = self._began + (blow.gap_seconds if blow else 0)
        while (now := time.monotonic()) < self._began + plan.seconds:
            if plan.enough(self._faults.tally, self._under_faults()):
                break
            self._tend()
            if blow is not None and now >= due:
                self._faults.strike(blow)
                blow = next(blows)
                # From the end of the last one: a slow fault is not followed by a heap of others.
                due = time.monotonic() + blow.gap_seconds
            time.sleep(TICK_SECONDS)
        return time.monotonic() - self._began

    def _settle(self, seconds: float) -> float:
        """Everything is done within five lease periods, and what the work itself takes at the run's pace."""
        clock, began = MachineTime(), time.monotonic()
        late_since: float | None = None
        while True:
            for part in self._parts.values():
                part.feeder.look()
            accounts = {name: part.feeder.account for name, part in self._parts.items()}
            left = {name: account.open for name, account in accounts.items() if account.open}
            allowed = allowed_seconds(self._plan, seconds, accounts.values())
            # Who is late has broken its promise: how long we look at it is of the wall's clock.
            if not left or (late_since and time.monotonic() > late_since + self._plan.patience_seconds):
                break
            if clock.seconds > allowed and late_since is None:
                late_since = time.monotonic()
                for name, count in left.items():
                    what = f"had {count} open {clock.seconds:.1f} s after the last fault"
                    self._breaches.append((name, Breach("liveness", name, what)))
            self._tend()
            clock.sleep(TICK_SECONDS * 5)
        for part in self._parts.values():
            part.feeder.join()
            if part.feeder.failure is not None:
                raise RuntimeError(f"The asker of {part.stage.name} failed:\n{part.feeder.failure}")
        return time.monotonic() - began

    def _tidy(self) -> None:
        """What the living clear away: entries of dead consumers, handles, requests under way."""
        for name, part in self._parts.items():
            remains = self._still_there(part.remains)
            self._breaches += [(name, breach) for breach in remains]

    def _leave(self) -> None:
        for process in self._crew.end(within=FAREWELL_SECONDS):
            what = f"process {process.pid} did not end when it was asked to"
            self._breaches.append((process.errand.system, Breach("left behind", "process", what)))
        for name, part in self._parts.items():
            remains = self._still_there(part.left_behind)
            self._breaches += [(name, breach) for breach in remains]

    def _still_there(self, look: Callable[[], Sequence[Breach]]) -> Sequence[Breach]:
        """What is there even after the time in which a dead holder's lease runs out."""
        clock = MachineTime()
        # Where something is broken already, nobody waits for the rest.
        allowed = 0.0 if self._breaches else self._plan.liveness_leases * self._plan.lease_seconds
        while (remains := look()) and clock.seconds < allowed:
            self._tend()
            clock.sleep(TICK_SECONDS * 5)
        return remains

    def _judge(self) -> None:
        for name, part in self._parts.items():
            part.feeder.look()
            part.feeder.look_at_refusals()
            self._breaches += [(name, breach) for breach in part.system.judge(part.stage)]
            self._plan.after(part.stage)

    def _tend(self) -> None:
        self._faults.heal_due()
        if not self._crew.is_over:
            self._crew.replace_the_dead(self._errand_of)
        now = time.monotonic()
        if now - self._looked > 0.5:
            self._looked = now
            effects = {name: part.feeder.account.done for name, part in self._parts.items()}
            moment = Moment(now - self._began, effects, self._faults.tally.hit.total(), self._refusals())
            self._ordeal.moments.append(moment)
            self._ordeal.watch(moment, self._faults.tally)

    def _under_faults(self) -> Mapping[str, int]:
        return {name: part.feeder.account.done - self._calm[name] for name, part in self._parts.items()}

    def _errand_of(self, process: Process) -> Errand:
        return self._parts[process.errand.system].errand(process.errand.place)

    def _refusals(self) -> Mapping[str, int]:
        """By reason, over all systems, as they were seen last."""
        counts: Counter[str] = Counter()
        for part in self._parts.values():
            counts.update(part.feeder.refusals)
        return dict(sorted(counts.items()))

    def _ambiguous(self) -> int:
        """Calls whose callers could not know what had become of them."""
        unknown = sum(
            operation.is_unknown
            for part in self._parts.values()
            for operation in part.stage.chronicle.operations()
        )
        lost = sum(self._faults.tally.hit[kind] for kind in ("net-lost-reply", "net-lost-commit", "crash"))
        return unknown + lost + sum(part.stage.ambiguous for part in self._parts.values())

    def _log(self) -> str:
        path: Path = self._ground.directory / "crew.log"
        return path.read_text(errors="replace")[-20_000:]
