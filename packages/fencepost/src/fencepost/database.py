"""The client, as the runtimes see it: jobs, flows and the outbox stand below the class `Fencepost`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol

from fencepost.kernel.call import Call, CallRunner, SyncCallRunner
from fencepost.metrics import Metrics
from fencepost.settings import Settings
from fencepost.transaction import SyncTransaction, Transaction


class AsyncDatabase(CallRunner, Protocol):
    """One call in a transaction of its own, and transactions."""

    def transaction(
        self, *, first: Call[Any] | None = None, last: Callable[[], Call[Any]] | None = None
    ) -> AbstractAsyncContextManager[Transaction]: ...


class SyncDatabase(SyncCallRunner, Protocol):
    """`AsyncDatabase` without an event loop."""

    def transaction(
        self, *, first: Call[Any] | None = None, last: Callable[[], Call[Any]] | None = None
    ) -> AbstractContextManager[SyncTransaction]: ...


class OpenClient(AsyncDatabase, Protocol):
    """A client that is open, with what it was opened with."""

    @property
    def database_url(self) -> str: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def metrics(self) -> Metrics: ...
    @property
    def owner(self) -> str: ...
