"""The boxes of one judge: at most one run for each slot, by agents first, by a command when an agent
fails."""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from fencepost.errors import InvalidInput
from fencepost.logs import get_logger
from fencepost.signals import announce
from fencepost_judge._metrics import JudgeMetrics
from fencepost_judge._protocol import ProtocolError, RunOutcome, Verdict, parse, sandbox_failure
from fencepost_judge.sandbox import _box_binary as box_binary
from fencepost_judge.sandbox._agent import Agent, AgentFailed
from fencepost_judge.sandbox._box_files import BoxFiles
from fencepost_judge.sandbox._bubblewrap import run_in_bubblewrap
from fencepost_judge.sandbox._command import Bounds, run_once
from fencepost_judge.sandbox._run_spec import RunSpec, Site

_log = get_logger(__name__)
Attend = Callable[[asyncio.Task[RunOutcome], asyncio.Task[RunOutcome]], Awaitable[None]]
"""Returns when both have ended."""
TRIES = 3
"""How often a run with a sandbox error is tried before the error is reported."""


class SandboxPool:
    """Executes runs. Use as a context manager; at its end nothing of any run is left."""

    def __init__(
        self,
        site: Site,
        metrics: JudgeMetrics,
        *,
        slots: int = 2,
        agents: bool = True,
        bounds: Bounds | None = None,
        box_program: Path | None = None,
        bubblewrap: Path | None = None,
        cores: Sequence[int] = (),
    ) -> None:
        """With `bubblewrap` every run uses it: it is for machines without fencepost-box. Boxes run on `cores`
        in turn; without any wherever the kernel puts them."""
        self._cores = cores
        self.site = site
        self._metrics = metrics
        self._slots = slots
        self._use_agents = agents
        self._bounds = bounds or Bounds()
        self._bubblewrap = bubblewrap
        self._program = box_program or (Path() if bubblewrap else box_binary.find())
        self._idle: asyncio.LifoQueue[Agent] = asyncio.LifoQueue()
        self._agents: Sequence[Agent] = ()
        self._getting = asyncio.Lock()

    @property
    def busy(self) -> int:
        """How many boxes are in use."""
        return len(self._agents) - self._idle.qsize()

    async def __aenter__(self) -> SandboxPool:
        await self._sweep()
        self._agents = [Agent(self._program, self.site) for _ in range(self._slots)]
        if 0 < len(self._cores) < self._slots:
            _log.warning("judge_boxes_share_cores", boxes=self._slots, cores=len(self._cores))
        for agent in self._agents:
            self._idle.put_nowait(agent)
        return self

    async def __aexit__(self, *error: object) -> None:
        await asyncio.gather(*(agent.close() for agent in self._agents))
        await self._sweep()

    async def run(self, order: RunSpec, files: BoxFiles) -> RunOutcome:
        """One run, as the attempt that the order names. A sandbox error is returned after retries."""
        async with self._getting:
            agent = await self._idle.get()
        return await self._run_in(agent, order, files)

    async def run_pair(
        self, first: tuple[RunSpec, BoxFiles], second: tuple[RunSpec, BoxFiles], attend: Attend
    ) -> tuple[RunOutcome, RunOutcome]:
        """Runs two connected programs. Takes both boxes or none, or two pairs could wait with one box
        each. `attend` runs beside them."""
        if self._slots < 2:
            raise InvalidInput("Programs that talk to each other need two slots.", field="JUDGE_SLOTS")
        async with self._getting:
            one = await self._idle.get()
            try:
                two = await self._idle.get()
            except asyncio.CancelledError:
                self._idle.put_nowait(one)
                raise
        running = [
            asyncio.create_task(self._run_in(one, *first)),
            asyncio.create_task(self._run_in(two, *second)),
        ]
        try:
            await attend(*running)
            return running[0].result(), running[1].result()
        finally:
            for run in running:
                run.cancel()
            # Each run returns its box, whatever has happened.
            await asyncio.gather(*running, return_exceptions=True)

    async def _run_in(self, agent: Agent, order: RunSpec, files: BoxFiles) -> RunOutcome:
        if self._cores:
            order = replace(order, core=self._cores[self._agents.index(agent) % len(self._cores)])
        try:
            outcome = sandbox_failure("never_run")
            for left in reversed(range(TRIES)):
                outcome = await self._counted(agent, order, files)
                if outcome.verdict is Verdict.SE:
                    # A resident root shows the machine as it was: a library that was upgraded since is
                    # missing from it.
                    await agent.close()
                # What the program wrote to a pipe cannot be taken back: such a run is not repeated.
                if outcome.verdict is not Verdict.SE or not left or files.pipes:
                    break
                _rewind(files)
                self._metrics.sandbox_retries.inc()
                _log.warning("sandbox_error", reason=outcome.sandbox_error)
            return outcome
        finally:
            files.hand_over()
            self._idle.put_nowait(agent)

    async def _counted(self, agent: Agent, order: RunSpec, files: BoxFiles) -> RunOutcome:
        began = time.perf_counter()
        self._metrics.runs_in_progress.inc()
        try:
            outcome = await self._attempt(agent, order, files)
        except ProtocolError as error:
            self._metrics.protocol_errors.labels(reason=error.reason).inc()
            _log.error("protocol_error", reason=error.reason, error=str(error))
            # After an invalid answer the state of the connection is unknown.
            await agent.close()
            outcome = sandbox_failure(f"protocol: {error.reason}")
        finally:
            self._metrics.runs_in_progress.dec()
        result = {Verdict.OK: "ok", Verdict.SE: "error", Verdict.TLE: "timeout"}.get(
            outcome.verdict, "reject"
        )
        self._metrics.runs.labels(result=result).inc()
        self._metrics.run_seconds.labels(result=result).observe(time.perf_counter() - began)
        return self._of_this_attempt(order, outcome)

    async def _attempt(self, agent: Agent, order: RunSpec, files: BoxFiles) -> RunOutcome:
        if self._bubblewrap is not None:
            return await run_in_bubblewrap(self._bubblewrap, self.site, order, files)
        if self._use_agents:
            try:
                if not agent.is_open:
                    await agent.start()
                return await agent.run(order, files)
            except (AgentFailed, OSError) as error:
                reason = error.reason if isinstance(error, AgentFailed) else "no_start"
                self._metrics.agent_failures.labels(reason=reason).inc()
                _log.warning("agent_failed", reason=reason, error=str(error))
                announce("judge.agent_failed")
                if files.pipes:
                    return sandbox_failure(f"agent: {reason}")
                _rewind(files)
        said = await run_once(self._program, self.site, order, files, self._bounds)
        # Before it is parsed: a cut answer cannot be.
        for stream in said.truncated:
            self._metrics.output_truncated.labels(stream=stream).inc()
        return parse(said.stdout)

    def _of_this_attempt(self, order: RunSpec, outcome: RunOutcome) -> RunOutcome:
        """Always records the claimed attempt, whatever the answer says."""
        if (outcome.job_id, outcome.attempt_id) != (order.job_id, order.attempt_id) and (
            outcome.verdict is not Verdict.SE
        ):
            self._metrics.foreign_attempts.inc()
            _log.error(
                "foreign_attempt",
                asked=[order.job_id, order.attempt_id],
                answered=[outcome.job_id, outcome.attempt_id],
            )
        return outcome.of(order.job_id, order.attempt_id)

    async def _sweep(self) -> None:
        """Remove what a killed judge left in the cgroup tree."""
        if self._bubblewrap is not None:
            return
        with suppress(OSError):
            process = await asyncio.create_subprocess_exec(self._program, "sweep", env={})
            await process.wait()


def _rewind(files: BoxFiles) -> None:
    """Rewinds the files: a run that was cut off has read some of its input and written some output."""
    for descriptor in files.all():
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.lseek(descriptor, 0, os.SEEK_SET)
    for descriptor in (files.stdout, files.stderr):
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.ftruncate(descriptor, 0)
