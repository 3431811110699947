"""`fp.testing`: run jobs without a worker, in tests of an application."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fencepost._connections import Connections
from fencepost._sync_form import Form, Operations, context, operation
from fencepost.database import AsyncDatabase, SyncDatabase
from fencepost.errors import InvalidInput
from fencepost.jobs._handler import Handlers

if TYPE_CHECKING:
    from fencepost.jobs._inline_runner import Drained, InlineRunner

TRIES_MAX = 10_000


class Testing(Operations[Form]):
    """Runs jobs in this process, on the real database, one at a time."""

    __test__ = False
    """Not a class of tests, whatever pytest takes it for."""

    def __init__(
        self,
        connections: Connections[Any],
        handlers: Handlers,
        database: AsyncDatabase,
        sync_database: Callable[[], SyncDatabase],
    ) -> None:
        self._connections = connections
        self._handlers = handlers
        self._database = database
        self._sync_database = sync_database
        self.is_blocking = connections.is_blocking

    @operation
    async def drain(
        self, queues: Sequence[str] | None = None, *, later: bool = False, limit: int = TRIES_MAX
    ) -> Drained:
        """Run all jobs that are due, and those that they submit, until none is left.

        With `later` also those that wait for a time: scheduled ones, and failed ones that wait for their next
        try, so that every job ends. Raises InvalidInput after `limit` tries.
        """
        return await self._runner.run_due(queues=queues, later=later, limit=limit)

    @context
    async def inline(
        self, queues: Sequence[str] | None = None, *, limit: int = TRIES_MAX
    ) -> AsyncGenerator[Drained]:
        """While the block runs, every commit of this client runs the jobs that are due before it returns:
        `enqueue`, and the end of `fp.transaction()`. The value has the tries that were run.

        A handler that fails does not make `enqueue` fail, as it would not with a worker: look at the value.
        """
        if self._connections.after_commit is not None:
            raise InvalidInput("This client runs its jobs inline already.", field="inline")
        runner = self._runner
        ran = runner.nothing()

        async def run_due() -> None:
            if not runner.is_running:
                await runner.run_due(ran, queues=queues, limit=limit)

        self._connections.after_commit = run_due
        try:
            yield ran
        finally:
            self._connections.after_commit = None

    @cached_property
    def _runner(self) -> InlineRunner:
        # A process that only submits need not load what runs jobs.
        from fencepost.jobs._inline_runner import InlineRunner  # noqa: PLC0415

        return InlineRunner(self._connections, self._handlers, self._database, self._sync_database)
