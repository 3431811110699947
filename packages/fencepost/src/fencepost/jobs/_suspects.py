"""Runs suspects apart from other work: jobs that came back from a worker that was lost with several.

`functions/job_suspect.sql` decides which jobs are suspects and how many of them a claim takes. The worker
only gives them a process that holds nothing else. There are two ways:

    spare     `fencepost worker` starts a worker process for them, and its own jobs go on
    drained   a worker inside another program claims nothing until its own jobs have ended, and runs them
              itself: nothing but that program can start it a second time
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import psycopg

from fencepost.backoff import Backoff
from fencepost.errors import FencepostError
from fencepost.jobs._executor import HeldJobs
from fencepost.jobs._failure_text import process_end_text
from fencepost.jobs._fetcher import Fetcher
from fencepost.jobs._handler import Handlers
from fencepost.jobs._metrics import JobMetrics
from fencepost.jobs.settings import JobSettings
from fencepost.kernel import job as kernel_job
from fencepost.kernel._job_need import Serves
from fencepost.kernel.call import CallRunner
from fencepost.kernel.lease import owner_name
from fencepost.logs import get_logger
from fencepost.signals import announce

_log = get_logger(__name__)
RESERVE_SECONDS = 30.0
LINGER_SECONDS = 30.0
"""How long a spare process waits for more suspects before it ends."""
SPARES_MAX = 4
RESTARTS = Backoff(1.0, 60.0, jitter=0)
_STDERR = 2


@dataclass(frozen=True, slots=True)
class OnlySuspects:
    """The worker is a spare process: it runs suspects under this owner, and ends when there are none."""

    owner: str


@dataclass(frozen=True, slots=True)
class SpareCommand:
    """How a spare process is started: its command line for an owner, and its environment."""

    line: Callable[[str], Sequence[str]]
    environment: Mapping[str, str]
    inherited: Sequence[int] = ()


@dataclass(slots=True, eq=False)
class _Spare:
    owner: str
    process: asyncio.subprocess.Process
    started_at: float = field(default_factory=time.monotonic)


class SuspectRunner:
    """Looks for suspects, and makes room for them: in a spare process, or in this one once it is empty."""

    def __init__(
        self,
        handlers: Handlers,
        serves: Serves,
        held: HeldJobs,
        fetcher: Fetcher,
        owner: str,
        database: CallRunner,
        metrics: JobMetrics,
        settings: JobSettings,
        spares: SpareCommand | None,
    ) -> None:
        self._queues = handlers.queues
        self._serves = serves
        self._held = held
        self._fetcher = fetcher
        self._owner = owner
        self._database = database
        self._settings = settings
        self._spares = None if spares is None else _SpareProcesses(spares, owner, database, metrics)

    async def tick(self) -> float:
        if self._spares is None:
            await self._run_drained()
        elif self._spares.has_room and await self._reserve():
            await self._spares.start()
        return self._settings.reclaim_interval_seconds

    def on_ended(self, callback: Callable[[], None]) -> None:
        """Called when a spare process has ended and its jobs are put back."""
        if self._spares is not None:
            self._spares.on_ended = callback

    async def run_all(self) -> None:
        """Run suspects until there were none for a while, or the worker stops: for a spare process."""
        idle_since = time.monotonic()
        while not self._fetcher.is_stopping and time.monotonic() - idle_since < LINGER_SECONDS:
            if await self._fetcher.claim_suspects(self._queues):
                await self._held.until_empty()
                idle_since = time.monotonic()
            else:
                await self._fetcher.pause(self._settings.poll_seconds)

    async def stop(self) -> None:
        if self._spares is not None:
            await self._spares.stop(self._settings.drain_seconds)

    async def _run_drained(self) -> None:
        """Drain this worker, run suspects in it, and let it claim again. One worker drains for a group."""
        if not await self._reserve():
            return
        with self._held.apart():
            while not await self._held.until_empty(RESERVE_SECONDS / 3):
                if not await self._reserve():
                    return
            if not self._fetcher.is_stopping:
                announce("worker.apart")
                await self._fetcher.claim_suspects(self._queues)
                await self._held.until_empty()

    async def _reserve(self) -> bool:
        return await self._database.run(
            kernel_job.reserve_suspects(self._queues, self._serves, self._owner, RESERVE_SECONDS)
        )


class _SpareProcesses:
    """Starts spare processes and reports how each ended: the jobs of one that crashed come back at once."""

    def __init__(self, command: SpareCommand, owner: str, database: CallRunner, metrics: JobMetrics) -> None:
        self._command = command
        self._owner = owner
        self._database = database
        self._metrics = metrics
        self._alive: dict[_Spare, asyncio.Task[None]] = {}
        self._failures = 0
        self._again_at = 0.0
        self.on_ended: Callable[[], None] = lambda: None

    @property
    def has_room(self) -> bool:
        """Another one is started when those that run have been busy for a while: the next half of a group
        need not wait for the first."""
        now = time.monotonic()
        youngest = max((spare.started_at for spare in self._alive), default=-RESERVE_SECONDS)
        return now >= self._again_at and len(self._alive) < SPARES_MAX and now - youngest >= RESERVE_SECONDS

    async def start(self) -> None:
        # By the worker's own name, so that what holds the worker holds its spare too.
        owner = owner_name(self._owner.rpartition("@")[0])
        process = await asyncio.create_subprocess_exec(
            *self._command.line(owner),
            env=dict(self._command.environment),
            pass_fds=self._command.inherited,
            stdin=asyncio.subprocess.DEVNULL,
            # A worker's output is not part of this command's answer.
            stdout=_STDERR,
            # Ctrl-C in the terminal reaches only this process, which then drains it.
            start_new_session=True,
        )
        spare = _Spare(owner, process)
        _log.info("spare_process_started", pid=process.pid, owner=owner)
        self._alive[spare] = asyncio.create_task(self._watch(spare))

    async def stop(self, seconds: float) -> None:
        """Let all of them drain. One that takes too long is killed, and its jobs are put back."""
        watching = list(self._alive.values())
        for spare in self._alive:
            with suppress(ProcessLookupError):
                spare.process.send_signal(signal.SIGTERM)
        if watching:
            await asyncio.wait(watching, timeout=seconds)
            for spare in self._alive:
                with suppress(ProcessLookupError):
                    spare.process.kill()
            await asyncio.wait(watching)

    async def _watch(self, spare: _Spare) -> None:
        code = await spare.process.wait()
        reclaimed: list[kernel_job.Reclaimed] = []
        try:
            reclaimed = await self._database.run(
                kernel_job.reclaim_owner(spare.owner, process_end_text(code))
            )
        except (psycopg.Error, FencepostError) as error:
            # The leases end, and any reclaimer puts the jobs back.
            _log.warning("spare_process_not_reported", owner=spare.owner, error=str(error))
        self._metrics.reclaimed(reclaimed)
        for job in reclaimed:
            _log.warning(
                "worker_lost",
                job_id=job.job_id,
                attempt=job.attempt,
                owner=job.owner,
                state=job.state,
                charged=job.charged,
                why=process_end_text(code),
            )
        # A process that ends before it holds a job would end again.
        self._failures = self._failures + 1 if code and not reclaimed else 0
        self._again_at = time.monotonic() + RESTARTS.seconds(self._failures) if self._failures else 0.0
        if self._failures:
            _log.error("spare_process_failed", exit_code=code, failures=self._failures)
        del self._alive[spare]
        self.on_ended()
