"""One run: from the first process to the verdict."""

from __future__ import annotations

import math
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, LiteralString

from fencepost.embedded._deadline import Deadline
from fencepost.testing import Breach
from fencepost_torture._cpu_time import CpuTime
from fencepost_torture._disk import Disk
from fencepost_torture._environment import Environment
from fencepost_torture._fault_executor import TICK_SECONDS, FaultExecutor
from fencepost_torture._faults import FaultInjector
from fencepost_torture._load_generator import LoadGenerator
from fencepost_torture._plan import RunPlan, allowed_seconds
from fencepost_torture._process_pool import ProcessPool, SystemProcess
from fencepost_torture._schedule import FAMILIES, NODE_CLOCK, POSTGRES_CLOCK, abreast, schedule
from fencepost_torture._system_environment import ProcessTask
from fencepost_torture._system_run import SystemRun, tokens_grew, watch_tokens
from fencepost_torture._tally import Tally
from fencepost_torture._verdict import Hardness, RunVerdict, Verdict, judge
from fencepost_torture._wall_clocks import environment as clock_environment
from fencepost_torture._wall_clocks import put
from fencepost_torture.systems import system_of

FIRST_EFFECT_SECONDS = 120.0
FAREWELL_SECONDS = 60.0
MOMENTS_MAX = 1000
LOG_BYTES = 20_000
TRIES_CHARGED: LiteralString = """
    select detail || jsonb_build_object('at', at) from fencepost.event
    where noun = 'job' and event = 'lost' and (detail ->> 'charged')::boolean order by event_id
"""
PROCESS_ENDS = {"kill", "crash"}
THROUGH_A_WIRE = {*FAMILIES["network"], *FAMILIES["backup"]}


@dataclass(frozen=True)
class RunMoment:
    """The state of the run at one time, for the screen and for the chart."""

    at: float
    effects: Mapping[str, int]
    hits: int
    refusals: Mapping[str, int]
    phase: str = "faults"
    verdict: Verdict = "void"
    """The verdict if the run ended now, and everything not checked yet were right."""


@dataclass
class RunResult:
    """Everything that the report contains."""

    plan: RunPlan
    seconds: float
    tally: Tally
    effects: Mapping[str, int]
    refusals: Mapping[str, int]
    hardness: Hardness
    restarts: int
    ended_by_themselves: int
    tries_charged: Sequence[Mapping[str, Any]]
    """The losses of workers that were charged to a job, as the database recorded them."""
    settled_after: float
    judgement: RunVerdict
    moments: Sequence[RunMoment]
    log: str = ""


@dataclass
class TortureRun:
    """A run, with its parts. `watch` is called about twice a second with the state of the run."""

    plan: RunPlan
    disk: Disk | None = None
    faketime: Path | None = None
    """The libfaketime library that makes wall clocks jump."""
    watch: Callable[[RunMoment, Tally], None] = lambda moment, tally: None
    moments: list[RunMoment] = field(default_factory=list[RunMoment])

    def run(self) -> RunResult:
        plan = self.plan
        with ExitStack() as stack:
            environment = stack.enter_context(
                Environment(
                    plan.systems,
                    seed=plan.seed,
                    lease_seconds=plan.lease_seconds,
                    server_settings=plan.server_settings,
                    disk=self.disk,
                    wired=not THROUGH_A_WIRE.isdisjoint(plan.kinds),
                    clustered=not set(FAMILIES["cluster"]).isdisjoint(plan.kinds),
                    # A server that reads a file at each clock call is slow: only where its clock may jump.
                    faketime=self.faketime if self._servers_clock_jumps() else None,
                )
            )
            parts = stack.enter_context(self._opened(environment))
            process_pool = stack.enter_context(
                ProcessPool(
                    environment.directory / "processes.log",
                    plan.systems,
                    prepare=plan.prepare,
                    prepare_arguments=plan.prepare_arguments,
                    environment=self._clocks(environment, parts),
                )
            )
            return _Run(self, environment, process_pool, parts).through()

    def _servers_clock_jumps(self) -> bool:
        all_bear_it = all(system_of(name).bears_clock_jumps for name in self.plan.systems)
        return POSTGRES_CLOCK in self.plan.kinds and all_bear_it

    def _clocks(self, environment: Environment, parts: Sequence[SystemRun]) -> Mapping[str, str]:
        """A wall clock for each place, where they can jump, and the environment variables for them."""
        if self.faketime is None or NODE_CLOCK not in self.plan.kinds:
            return {}
        right = environment.directory / "right-clock"
        put(right, 0)
        for part in parts:
            for place in range(part.system.processes):
                put(part.env.clock_of(place), 0)
        return clock_environment(self.faketime, right)

    @contextmanager
    def _opened(self, environment: Environment) -> Generator[list[SystemRun]]:
        with ExitStack() as stack:
            parts: list[SystemRun] = []
            pace = self.plan.pace
            for name in self.plan.systems:
                system, env = system_of(name), environment.envs[name]
                system.processes *= pace.crowds.get(name, pace.crowd)
                more = stack.enter_context(system.open(env))
                watch_tokens(env)
                self.plan.before(env)
                open_max = int(getattr(system, "open_max", pace.open_max))
                often = pace.helpings_per_second.get(name, math.inf)
                load_generator = LoadGenerator(system, env, open_max=open_max, helpings_per_second=often)
                parts.append(SystemRun(system, env, more, load_generator))
            yield parts


class _Run:
    """The phases, in order."""

    def __init__(
        self,
        torture_run: TortureRun,
        environment: Environment,
        process_pool: ProcessPool,
        parts: Sequence[SystemRun],
    ) -> None:
        self._torture_run = torture_run
        self._plan = torture_run.plan
        self._environment = environment
        self._process_pool = process_pool
        self._parts = {part.env.name: part for part in parts}
        self._tally = Tally()
        self._breaches: list[tuple[str, Breach]] = []
        self._calm: Mapping[str, int] = {}
        """The effects of each system before the first fault: they prove nothing."""
        self._began = time.monotonic()
        self._phase, self._seconds = "faults", math.inf
        self._tries_charged: list[Mapping[str, Any]] = []
        self._looked = 0.0
        self._look_seconds = 0.5
        self._executors = self._make_executors()
        process_pool.on_crash = self._executors[0].faults.crashed
        process_pool.on_stall = self._executors[0].faults.stalled

    def through(self) -> RunResult:
        self._begin()
        seconds = self._seconds = self._rage()
        self._phase = "settling"
        # Effects made after the faults prove nothing, like those made before them.
        under_faults = self._under_faults()
        for executor in self._executors:
            executor.faults.heal_all()
        self._process_pool.disarm()
        for part in self._parts.values():
            part.load_generator.stop()
        settled_after = self._settle(seconds)
        self._tidy()
        self._leave()
        self._judge()
        effects = self._done()
        tally = self._tally
        hardness = Hardness(seconds, under_faults, tally.hit.total(), self._ambiguous())
        judgement = judge(self._breaches, hardness, self._plan.floors)
        return RunResult(
            self._plan,
            seconds,
            tally,
            effects,
            self._refusals(),
            hardness,
            self._process_pool.restarts,
            self._process_pool.ended_by_themselves,
            self._tries_charged,
            settled_after,
            judgement,
            self._torture_run.moments,
            self._log() if judgement.breaches else "",
        )

    def _begin(self) -> None:
        for part in self._parts.values():
            for place in range(part.system.processes):
                self._process_pool.start(part.task(place))
            part.load_generator.start()
        # No fault before every system is at work: a run is not spent on starting up.
        Deadline(FIRST_EFFECT_SECONDS, "every system has made an effect").wait(
            lambda: all(
                part.load_generator.account.done or part.load_generator.failure
                for part in self._parts.values()
            )
        )

    def _make_executors(self) -> list[FaultExecutor]:
        plan, parts = self._plan, self._parts.values()
        roles = [part.role(plan.points) for part in parts]
        points = {role.name: role.points for role in roles if role.points}
        rare = points if plan.pace.evenly else {}
        return [
            FaultExecutor(
                FaultInjector(self._environment, self._process_pool, self._tally, rare),
                schedule(
                    plan.seed,
                    kinds,
                    roles,
                    gap_seconds=plan.gap_seconds,
                    weights=plan.pace.weights,
                    shares=plan.pace.shares_of(points),
                ),
                self._done if plan.pace.rests else None,
            )
            for kinds in (abreast(plan.kinds) if plan.pace.abreast else [plan.kinds])
        ]

    def _rage(self) -> float:
        plan, over = self._plan, threading.Event()
        self._calm = self._done()
        self._began = time.monotonic()
        main, *beside = self._executors
        for executor in self._executors:
            executor.begin()
        with ThreadPoolExecutor(1 + len(beside), "torture-faults") as threads:
            turning = [threads.submit(executor.keep_turning, over) for executor in beside]
            try:
                while time.monotonic() < self._began + plan.seconds:
                    if plan.enough(self._tally, self._under_faults()):
                        break
                    self._require_askers()
                    main.turn()
                    self._tend()
                    self._process_pool.news.wait(main.seconds_left)
                    self._process_pool.news.clear()
            finally:
                over.set()
            for turned in turning:
                turned.result()
        return time.monotonic() - self._began

    def _done(self) -> Mapping[str, int]:
        return {name: part.load_generator.account.done for name, part in self._parts.items()}

    def _settle(self, seconds: float) -> float:
        """Everything is done within five lease periods, plus the time of the work at the run's pace."""
        clock, began = CpuTime(), time.monotonic()
        allowed = 0.0
        late_since: float | None = None
        while True:
            # Read before the accounts: a batch that is asked for after the look is not in them.
            asking = any(part.load_generator.is_asking for part in self._parts.values())
            for part in self._parts.values():
                part.load_generator.look()
            accounts = {name: part.load_generator.account for name, part in self._parts.items()}
            left = {name: account.open for name, account in accounts.items() if account.open}
            # From what was open when the faults ended: work done since does not shorten it.
            allowed = max(allowed, allowed_seconds(self._plan, seconds, accounts.values()))
            # A system that is late has broken its guarantee: the rest of the wait is in wall-clock time.
            if (not left and not asking) or (
                late_since and time.monotonic() > late_since + self._plan.patience_seconds
            ):
                break
            if clock.seconds > allowed and late_since is None:
                late_since = time.monotonic()
                for name, count in left.items():
                    what = f"had {count} open {clock.seconds:.1f} s after the last fault"
                    self._breaches.append((name, Breach("liveness", name, what)))
            self._tend()
            clock.sleep(TICK_SECONDS * 5)
        for part in self._parts.values():
            part.load_generator.join()
        self._require_askers()
        return time.monotonic() - began

    def _require_askers(self) -> None:
        """A run whose load generator failed proves nothing: it ends at once, with the reason."""
        for name, part in self._parts.items():
            if part.load_generator.failure is not None:
                raise RuntimeError(f"The asker of {name} failed:\n{part.load_generator.failure}")

    def _tidy(self) -> None:
        """What running processes must clear away: entries of dead consumers, handles, requests in flight."""
        for name, part in self._parts.items():
            remains = self._still_there(part.remains)
            self._breaches += [(name, breach) for breach in remains]

    def _leave(self) -> None:
        for process in self._process_pool.end(within=FAREWELL_SECONDS):
            what = f"process {process.pid} did not end when it was asked to"
            self._breaches.append((process.task.system, Breach("left behind", "process", what)))
        for name, part in self._parts.items():
            remains = self._still_there(part.left_behind)
            self._breaches += [(name, breach) for breach in remains]
        remains = self._still_there(self._environment.left_behind)
        self._breaches += [("redis", breach) for breach in remains]

    def _still_there(self, look: Callable[[], Sequence[Breach]]) -> Sequence[Breach]:
        """What is there even after the time in which a dead holder's lease expires."""
        clock = CpuTime()
        # Where something is broken already, there is no wait for the rest.
        allowed = 0.0 if self._breaches else self._plan.liveness_leases * self._plan.lease_seconds
        while (remains := look()) and clock.seconds < allowed:
            self._tend()
            clock.sleep(TICK_SECONDS * 5)
        return remains

    def _judge(self) -> None:
        for name, part in self._parts.items():
            part.load_generator.look()
            part.load_generator.look_at_refusals()
            found = [*part.system.judge(part.env), *tokens_grew(part.env)]
            self._breaches += [(name, breach) for breach in found]
            self._tries_charged += [detail for (detail,) in part.env.rows(TRIES_CHARGED)]
            self._plan.after(part.env)
        # Where no fault ends a process, one that ends needs a restart that it does not get in production.
        ended = max(self._process_pool.restarts, self._process_pool.ended_by_themselves)
        if ended and not PROCESS_ENDS & set(self._plan.kinds):
            self._breaches.append(("processes", Breach("no restart", "processes", f"{ended} ended")))

    def _tend(self) -> None:
        self._process_pool.resume_due()
        if not self._process_pool.is_over:
            self._process_pool.replace_the_dead(self._task_of)
        now = time.monotonic()
        if now - self._looked > self._look_seconds:
            self._looked = now
            moment = self._moment(now - self._began)
            self._torture_run.moments.append(moment)
            self._torture_run.watch(moment, self._tally)
        if len(self._torture_run.moments) > MOMENTS_MAX:
            # The chart of a run of hours has as many points, further apart.
            del self._torture_run.moments[::2]
            self._look_seconds *= 2

    def _moment(self, at: float) -> RunMoment:
        hits, done = self._tally.hit.total(), self._done()
        # Ambiguous calls are counted from the whole operation log, which is not read twice a second.
        floors = replace(self._plan.floors, ambiguous_per_second=0.0)
        hardness = Hardness(min(at, self._seconds), self._under_faults(), hits, 0)
        verdict = judge(self._breaches, hardness, floors).verdict
        return RunMoment(at, done, hits, self._refusals(), self._phase, verdict)

    def _under_faults(self) -> Mapping[str, int]:
        return {name: done - self._calm[name] for name, done in self._done().items()}

    def _task_of(self, process: SystemProcess) -> ProcessTask:
        return self._parts[process.task.system].task(process.task.place)

    def _refusals(self) -> Mapping[str, int]:
        """By reason, over all systems, as last read."""
        counts: Counter[str] = Counter()
        for part in self._parts.values():
            counts.update(part.load_generator.refusals)
        return dict(sorted(counts.items()))

    def _ambiguous(self) -> int:
        """Calls whose callers could not know their outcome."""
        unknown = sum(
            operation.is_unknown
            for part in self._parts.values()
            for operation in part.env.operation_log.operations()
        )
        lost = sum(self._tally.hit[kind] for kind in ("net-lost-reply", "net-lost-commit", "crash"))
        return unknown + lost + sum(part.env.ambiguous for part in self._parts.values())

    def _log(self) -> str:
        path: Path = self._environment.directory / "processes.log"
        with path.open("rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - LOG_BYTES))
            return log.read().decode(errors="replace")
