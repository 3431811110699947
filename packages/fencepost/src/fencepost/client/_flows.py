"""`fp.flows`: workers of flows, and what an operator does with a flow."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import cached_property
from typing import TYPE_CHECKING

from fencepost._durations import Duration, seconds_of
from fencepost.database import OpenClient

if TYPE_CHECKING:
    from fencepost.flows._graph import Flow
    from fencepost.flows._metrics import FlowMetrics
    from fencepost.flows._settings import FlowSettings
    from fencepost.flows._worker import FlowWorker

# Most programs have no flow: the code that reads and writes streams is loaded by the first use.


class Flows:
    """The flows of one database."""

    def __init__(
        self, fp: OpenClient, redis_url: str | None, beside: Callable[[], AbstractAsyncContextManager[None]]
    ) -> None:
        self._fp = fp
        self._redis_url = redis_url
        self._beside = beside

    def worker(self, flow: Flow, settings: FlowSettings | None = None) -> FlowWorker:
        """A worker of a flow; `run` it while the client is open. Any number of them share the flow's tasks.

        await fp.flows.worker(totals).run(stop)
        """
        from fencepost.flows._worker import FlowWorker  # noqa: PLC0415

        return FlowWorker(
            self._fp,
            flow,
            redis_url=self._redis_url,
            settings=settings,
            metrics=self._metrics,
            beside=self._beside,
        )

    async def savepoint(self, flow: str, name: str, *, within: Duration = 60) -> int:
        """Keep a commit of every task under a name; answers the number of tasks.

        Raises InFlight, and keeps nothing, if a task that is held makes no commit in time. With `within=0`
        the newest commits that there are are kept.
        """
        from fencepost.flows import _savepoint_request as savepoint_request  # noqa: PLC0415

        seconds = seconds_of("within", within)
        return await savepoint_request.save(self._fp, flow, name, within_seconds=seconds)

    async def restore(self, flow: str, name: str) -> int:
        """Put a flow that no worker holds back to a savepoint; answers the number of checkpoints restored."""
        from fencepost.flows import _flow_store as flow_store  # noqa: PLC0415

        return await self._fp.run(flow_store.restore(flow, name))

    async def regroup(self, flow: str, name: str, groups: int) -> int:
        """Begin a flow that no worker holds again from a savepoint, in another number of key groups."""
        from fencepost.flows import _savepoint_request as savepoint_request  # noqa: PLC0415

        return await savepoint_request.regroup(self._fp, flow, name, groups)

    async def drain(self, flow: str) -> None:
        """Let the workers commit and give up the flow's tasks."""
        from fencepost.flows import _flow_store as flow_store  # noqa: PLC0415

        await self._fp.run(flow_store.drain(flow, draining=True))

    async def resume(self, flow: str) -> None:
        """Let workers take the tasks of a drained flow again."""
        from fencepost.flows import _flow_store as flow_store  # noqa: PLC0415

        await self._fp.run(flow_store.drain(flow, draining=False))

    @cached_property
    def _metrics(self) -> FlowMetrics:
        """Made once: a registry refuses a second metric of the same name."""
        from fencepost.flows._metrics import FlowMetrics  # noqa: PLC0415

        return FlowMetrics.on(self._fp.metrics)
