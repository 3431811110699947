"""One worker process, from start to shutdown."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import typer

from fencepost.cli._app_loader import find_application
from fencepost.cli._durations import span
from fencepost.cli._parent_watch import VARIABLE as PARENT_PIPE
from fencepost.cli._parent_watch import hold
from fencepost.cli._supervisor import RAN_ITS_JOBS, worker_arguments, worker_command
from fencepost.cli.health import HealthPages
from fencepost.cli.shutdown import Shutdown
from fencepost.cli.terminal import answer, answer_json, logs_json, remark
from fencepost.client import Fencepost
from fencepost.gc_tuning import freeze_collected_objects
from fencepost.jobs._handler import Handlers
from fencepost.jobs._scheduler import Schedules
from fencepost.jobs._suspects import OnlySuspects, SpareCommand
from fencepost.jobs.settings import JobSettings
from fencepost.logs import configure_logging
from fencepost.metrics_server import MetricsServer
from fencepost.tracing import export_traces

LOOK_SECONDS = 0.2


def work(
    target: str,
    *,
    queues: Sequence[str],
    concurrency: int | None,
    jobs_max: int | None,
    as_json: bool,
    only_suspects: str | None = None,
) -> None:
    """Work until a stop is requested; then drain. A second request exits at once.

    With the owner `only_suspects` it is the spare process of a worker, and ends when no suspects are left.
    """
    fp = find_application(target)
    configure_logging(level=fp.settings.log_level, form=fp.settings.log_format)
    export_traces("worker")
    changes = {"concurrency": concurrency, "max_jobs_per_process": jobs_max}
    given = {name: value for name, value in changes.items() if value is not None}
    settings = fp.job_settings.model_copy(update=given)
    handlers = fp.handlers.of(queues) if queues else fp.handlers
    ending = Shutdown()
    with ending.listening(), ExitStack() as closing:
        hold(os.environ)
        pages = HealthPages.of(fp)
        endpoint = MetricsServer(
            pages.routes, address=fp.settings.metrics_address, port=fp.settings.metrics_port
        )
        endpoint.start()
        closing.callback(endpoint.stop)
        suspects = (
            OnlySuspects(only_suspects)
            if only_suspects is not None
            else closing.enter_context(spare_command(target, queues, concurrency))
        )
        service = WorkerProcess(fp, settings, handlers, endpoint.url, suspects)
        freeze_collected_objects()
        ran_its_jobs = asyncio.run(service.run(ending, as_json=as_json))
    remark("Stopped.")
    if ran_its_jobs and only_suspects is None and PARENT_PIPE in os.environ:
        raise typer.Exit(RAN_ITS_JOBS)


@contextmanager
def spare_command(target: str, queues: Sequence[str], concurrency: int | None) -> Generator[SpareCommand]:
    """How to start a spare process of this worker. It drains and ends when this process ends."""
    arguments = worker_arguments(target, queues, concurrency)
    watched, grip = os.pipe()
    try:
        yield SpareCommand(
            lambda owner: [*worker_command(arguments), "--only-suspects", owner],
            # The port is taken by this process.
            {**os.environ, PARENT_PIPE: str(watched), "METRICS_PORT": ""},
            [watched],
        )
    finally:
        os.close(grip)
        os.close(watched)


class WorkerProcess:
    """A worker, and the announcement of what it serves."""

    def __init__(
        self,
        fp: Fencepost,
        settings: JobSettings,
        handlers: Handlers,
        url: str,
        suspects: OnlySuspects | SpareCommand,
    ) -> None:
        self._fp = fp
        self._settings = settings
        self._handlers = handlers
        self._url = url
        self._suspects = suspects

    async def run(self, ending: Shutdown, *, as_json: bool) -> bool:
        """Work until a stop is requested. True if it ended before, because it has run its jobs."""
        async with self._fp:
            worker = self._fp.jobs.worker(
                self._settings, queues=self._handlers.queues, suspects=self._suspects
            )
            working = asyncio.create_task(worker.run())
            self._announce(worker.owner, as_json=as_json)
            while not working.done() and not ending.wait(0):
                await asyncio.wait([working], timeout=LOOK_SECONDS)
            ran_its_jobs = working.done() and self._settings.max_jobs_per_process is not None
            if ran_its_jobs:
                remark(f"This process has run its {self._settings.max_jobs_per_process} jobs.")
            if not working.done():
                remark(f"Draining: running jobs may continue for {span(self._settings.drain_seconds)}.")
                worker.stop()
            await working
            return ran_its_jobs

    def _announce(self, owner: str, *, as_json: bool) -> None:
        if as_json or logs_json():
            answer_json(self.as_json(owner), indent=None)
            return
        answer("\n".join(self.as_lines(owner)))
        remark("Ctrl-C or SIGTERM drains; a second one stops immediately.")

    def as_json(self, owner: str) -> dict[str, Any]:
        return {
            "worker": owner,
            "pid": os.getpid(),
            "url": self._url,
            "concurrency": self._settings.concurrency,
            "queues": self._handlers.queues,
            "kinds": [handler.kind for handler in self._handlers],
            "schedules": [schedule.name for schedule in self._schedules],
        }

    def as_lines(self, owner: str) -> list[str]:
        lines = [f"{owner} serves {', '.join(self._handlers.queues)}; metrics at {self._url}/metrics"]
        width = max(len(handler.kind) for handler in self._handlers)
        lines += [
            f"  {handler.kind:<{width}}  {handler.queue}  in a {handler.place}"
            f"  lease {span(handler.declared.lease_seconds)}  {handler.declared.tries} tries"
            for handler in self._handlers
        ]
        lines += [
            f"  {schedule.name}: {schedule.expression} ({schedule.zone}) runs {schedule.handler.kind}"
            for schedule in self._schedules
        ]
        return lines

    @property
    def _schedules(self) -> Schedules:
        return self._fp.schedules.declared.of(handler.kind for handler in self._handlers)
