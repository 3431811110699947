"""Processes for handlers that compute.

A thread cannot be ended from outside, a process can: when it times out, its lease is lost or its job is
cancelled, it is killed, and the database refuses any later write.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from fencepost.errors import REFUSALS, Refusal, ServerUnavailable
from fencepost.jobs._failure_text import process_end_text
from fencepost.jobs.process_pool_main import BEGUN, HandlerCall, serve
from fencepost.jobs.retry_policy import Bury, Cancel, Retry, Snooze, Verdict
from fencepost.settings import Settings
from fencepost.signals import announce

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

    from fencepost.jobs._handler import Handler
    from fencepost.jobs.job import Job
    from fencepost.kernel.job import Running

GOODBYE_SECONDS = 5.0
BEGIN_SECONDS = 60.0


class FailedInProcess(Exception):
    """A handler failed in its process. Its policy has already judged the error there, where it has the
    exception."""

    def __init__(self, text: str, traceback: str, verdict: Verdict) -> None:
        super().__init__(text)
        self.text = text
        self.traceback = traceback
        self.verdict = verdict


class ProcessDied(Exception):
    """A handler's process ended before it answered: it crashed, or the system killed it for its memory."""


class ProcessPool:
    """Runs handlers in processes, at most `count` at once, and reuses idle ones. Starts one only on
    demand."""

    def __init__(
        self, count: int, database_url: str, settings: Settings, *, jobs_max: int | None = None
    ) -> None:
        """A process that has run `jobs_max` jobs is replaced: what its code leaks goes with it."""
        self._places = asyncio.Semaphore(count)
        self._jobs_max = jobs_max
        self._database_url = database_url
        self._settings = settings
        self._idle: list[_Child] = []
        self._busy: set[_Child] = set()

    async def call(self, handler: Handler[...], running: Running, job: Job) -> Any:
        """What the handler returns or raises. When the caller stops waiting, the process is killed."""
        async with self._places:
            child = self._idle.pop() if self._idle else await self._start()
            self._busy.add(child)
            try:
                answer = await child.ask(
                    HandlerCall.of(handler, running, job.owner), handler.declared.timeout_seconds
                )
            except BaseException:
                child.kill()
                announce("process.killed")
                raise
            finally:
                self._busy.discard(child)
            child.jobs += 1
            if self._jobs_max is not None and child.jobs >= self._jobs_max:
                child.kill()
                announce("process.replaced")
            else:
                self._idle.append(child)
        return _read(answer, job)

    def close(self) -> None:
        for child in (*self._idle, *self._busy):
            child.kill()
        self._idle.clear()

    async def _start(self) -> _Child:
        # In a thread: starting a process takes a while, and must not block the loop.
        starting = asyncio.create_task(asyncio.to_thread(_Child, self._database_url, self._settings))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(lambda task: task.result().kill())
            raise


class _Child:
    """One process and the pipe to it. JSON in both directions."""

    def __init__(self, database_url: str, settings: Settings) -> None:
        self.jobs = 0
        """How many jobs it has run."""
        # Not forked: a fork would copy the locks of our threads and our connections.
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process: SpawnProcess = context.Process(
            target=serve, args=(theirs, database_url, settings), name="fencepost-handler", daemon=True
        )
        self._process.start()
        # Now only the child has that end, so reading our end detects its death.
        theirs.close()

    async def ask(self, call: HandlerCall, seconds: float | None) -> Mapping[str, Any]:
        """The answer to the call. Its time runs from the start of the handler, not while Python starts."""
        try:
            self._pipe.send_bytes(json.dumps(call.as_json()).encode())
            told = await self._hear(BEGIN_SECONDS, "start")
            if BEGUN in told:
                told = await self._hear(seconds, "finish")
        except (EOFError, ConnectionError):
            self._process.join(GOODBYE_SECONDS)
            raise ProcessDied(process_end_text(self._process.exitcode or 0)) from None
        return told

    async def _hear(self, seconds: float | None, what: str) -> Mapping[str, Any]:
        try:
            async with asyncio.timeout(seconds):
                await _readable(self._pipe)
        except TimeoutError:
            raise TimeoutError(f"the handler did not {what} within {seconds:g} s") from None
        return dict(json.loads(self._pipe.recv_bytes()))

    def kill(self) -> None:
        with suppress(ValueError):  # It is closed already.
            self._process.kill()
            self._process.join(GOODBYE_SECONDS)
            self._process.close()
        self._pipe.close()


async def _readable(pipe: Connection[Any, Any]) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(pipe.fileno(), ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(pipe.fileno())


def _read(answer: Mapping[str, Any], job: Job) -> Any:
    job.finished = bool(answer["finished"])
    if "refusal" in answer:
        raise _refusal(answer["refusal"])
    if "snooze_seconds" in answer:
        raise Snooze(answer["snooze_seconds"])
    if "cancel" in answer:
        raise Cancel(answer["cancel"])
    if "unavailable" in answer:
        raise ServerUnavailable(answer["unavailable"])
    if "error" in answer:
        raise FailedInProcess(answer["error"], answer["traceback"], _verdict(answer["retry_seconds"]))
    return answer["result"]


def _verdict(retry_seconds: float | None) -> Verdict:
    return Bury() if retry_seconds is None else Retry(retry_seconds)


def _refusal(told: Mapping[str, Any]) -> Refusal:
    return REFUSALS[told["reason"]](
        told["message"],
        noun=told["noun"],
        subject=told["subject"],
        attempted=told["attempted"],
        seen=told["seen"],
    )
