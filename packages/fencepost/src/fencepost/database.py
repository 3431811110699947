"""The client, as the runtimes see it: jobs, flows and the outbox stand below the class `Fencepost`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol

from fencepost._connection_line import ConnectionLine
from fencepost.kernel.call import Call, CallRunner, SyncCallRunner
from fencepost.metrics import Metrics
from fencepost.settings import Settings
from fencepost.transaction import SyncTransaction, Transaction


class AsyncDatabase(CallRunner, Protocol):
    """One call in a transaction of its own, and transactions."""

    def transaction(
        self, *, first: Call[Any] | None = None, last: Callable[[], Call[Any]] | None = None
    ) -> AbstractAsyncContextManager[Transaction]:
        """A transaction without a commit after a refusal. `first` is sent with BEGIN, `last` with COMMIT."""
        ...

    def transaction_in(
        self,
        line: ConnectionLine | None,
        /,
        *,
        first: Call[Any],
        last: Callable[[], Call[Any]] | None = None,
    ) -> AbstractAsyncContextManager[Transaction]:
        """A transaction that waits in a line for its connection, and not for the pool."""
        ...


class SyncDatabase(SyncCallRunner, Protocol):
    """`AsyncDatabase` without an event loop."""

    def transaction(
        self, *, first: Call[Any] | None = None, last: Callable[[], Call[Any]] | None = None
    ) -> AbstractContextManager[SyncTransaction]:
        """A transaction without a commit after a refusal. `first` is sent with BEGIN, `last` with COMMIT."""
        ...


class OpenClient(AsyncDatabase, Protocol):
    """A client that is open, with what it was opened with."""

    @property
    def database_url(self) -> str:
        """The URL of the database that this client is connected to."""
        ...

    @property
    def settings(self) -> Settings:
        """The settings that this client was opened with."""
        ...

    @property
    def metrics(self) -> Metrics:
        """The registry that counts what this client does."""
        ...

    @property
    def owner(self) -> str:
        """The name under which this process holds leases and jobs; it has a boot id."""
        ...
