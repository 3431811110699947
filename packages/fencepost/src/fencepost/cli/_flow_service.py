"""One process that runs a flow, from start to shutdown."""

from __future__ import annotations

import asyncio
import importlib
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from types import ModuleType

import psycopg

from fencepost.cli._flow_progress import ProgressBars, progress_bars
from fencepost.cli.exit_codes import ExitCode, UserError
from fencepost.cli.health import HealthPages
from fencepost.cli.shutdown import Shutdown
from fencepost.cli.terminal import answer, answer_json, logs_json, remark
from fencepost.client import Fencepost
from fencepost.errors import ServerUnavailable
from fencepost.flows import Flow
from fencepost.flows import _flow_store as flow_store
from fencepost.flows._progress import progress_of
from fencepost.flows._settings import FlowSettings
from fencepost.flows._units import divide
from fencepost.flows._worker import FlowWorker
from fencepost.gc_tuning import freeze_collected_objects
from fencepost.logs import configure_logging
from fencepost.metrics_server import MetricsServer
from fencepost.tracing import export_traces

LOOK_SECONDS = 0.2


def serve_flow(target: str, *, until_done: bool, as_json: bool) -> None:
    """Run until a stop is requested, or with `until_done` until the sources have ended."""
    flow = find_flow(target)
    fp = Fencepost.from_env()
    configure_logging(level=fp.settings.log_level, form=fp.settings.log_format)
    export_traces("flows")
    ending = Shutdown()
    with ending.listening(), ExitStack() as closing:
        pages = HealthPages.of(fp)
        endpoint = MetricsServer(
            pages.routes, address=fp.settings.metrics_address, port=fp.settings.metrics_port
        )
        endpoint.start()
        closing.callback(endpoint.stop)
        freeze_collected_objects()
        asyncio.run(_serve(fp, flow, ending, endpoint.url, until_done=until_done, as_json=as_json))
    remark("Stopped.")


async def _serve(
    fp: Fencepost, flow: Flow, ending: Shutdown, url: str, *, until_done: bool, as_json: bool
) -> None:
    stop = asyncio.Event()
    async with fp:
        worker = fp.flows.worker(flow, FlowSettings.load())
        units = [unit.resource for unit in divide(worker.program)]
        if as_json or logs_json():
            answer_json({"flow": flow.name, "worker": worker.owner, "url": url, "tasks": units}, indent=None)
        else:
            answer(
                f"{worker.owner} runs {flow.name}: {len(units)} tasks, {flow.promised.words}; metrics "
                f"at {url}/metrics"
            )
        working = asyncio.create_task(worker.run(stop, until_done=until_done))
        with progress_bars() as bars:
            while not working.done() and not ending.wait(0):
                await asyncio.wait([working], timeout=LOOK_SECONDS)
                await _show_progress(fp, worker, bars)
        stop.set()
        await working


async def _show_progress(fp: Fencepost, worker: FlowWorker, bars: ProgressBars) -> None:
    """Show what all workers have committed. Database errors are ignored here: the worker handles them."""
    with suppress(ServerUnavailable, psycopg.Error):
        if bars.are_shown:
            frontiers = await fp.run(flow_store.frontiers(worker.program.flow.name))
            bars.show(progress_of(worker.program, frontiers))


def find_flow(target: str) -> Flow:
    """The flow that `MODULE[:ATTRIBUTE]` names."""
    name, _, attribute = target.partition(":")
    module = _import(name)
    if attribute:
        found = getattr(module, attribute, None)
        if isinstance(found, Flow):
            return found
        raise UserError(f"{target} is no Flow.{_known_in(module)}", ExitCode.USAGE)
    known = [value for value in vars(module).values() if isinstance(value, Flow) and value.sinks]
    if len(known) == 1:
        return known[0]
    raise UserError(f"{name} has {len(known)} flows.{_known_in(module)}", ExitCode.USAGE)


def _import(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise UserError(
            f"There is no module {name} in {here}, nor on Python's path.", ExitCode.USAGE
        ) from None


def _known_in(module: ModuleType) -> str:
    known = [name for name, value in vars(module).items() if isinstance(value, Flow) and value.sinks]
    return f" Write one of {', '.join(f'{module.__name__}:{name}' for name in known)}." if known else ""
