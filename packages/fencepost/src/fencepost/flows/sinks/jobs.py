"""Jobs as a sink: a record submits a job, in the commit that has the record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fencepost.flows._errors import GraphRefused
from fencepost.flows.sinks._rejecting import STOP, OnReject, Rejections
from fencepost.flows.sinks._sink import CheckpointId
from fencepost.flows.sinks._sink_types import TransactionalSink
from fencepost.flows.sinks.postgres import sift
from fencepost.jobs._handler import Handler
from fencepost.transaction import Transaction


class JobSink(TransactionalSink):
    """Submits a job for each value: the job, the state and the frontier are one transaction, so it is there
    once.

    `arguments` makes the job's arguments, by name, of a value; without it a value is a mapping of them.
    Options of the jobs are those of the handler: `JobSink(send_receipt.options(priority=1))`. Arguments that
    the handler refuses are rejected.
    """

    def __init__(
        self,
        handler: Handler[...],
        arguments: Callable[[Any], Mapping[str, Any]] = dict,
        *,
        on_reject: OnReject = STOP,
    ) -> None:
        if not isinstance(handler, Handler):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise GraphRefused(
                f"JobSink takes a handler, declared with @fp.job, and got {type(handler).__name__}."
            )
        self._handler = handler
        self._arguments = arguments
        self.on_reject = on_reject

    async def write(self, tx: Transaction, checkpoint: CheckpointId, values: Sequence[Any]) -> Rejections:
        """Submit the jobs within the commit."""
        return await sift(tx.connection, values, lambda part: self._submit(tx, part), self.on_reject)

    async def _submit(self, tx: Transaction, values: Sequence[Any]) -> None:
        await self._handler.submit_many(tx, [self._arguments(value) for value in values])
