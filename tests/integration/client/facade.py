"""The client's two faces behind one shape, so that one test serves both.

The async one brings an event loop that runs for the length of each question.
"""

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, LiteralString, Protocol, TypeVar

from fencepost import Call, Claim, Fencepost, SyncFencepost, SyncTransaction, Transaction
from fencepost.metrics import Metrics
from tests.integration.drivers.port import Loop

T = TypeVar("T")


class FacadeTransaction(Protocol):
    """What a test asks of an open transaction."""

    def execute(self, query: LiteralString, params: tuple[Any, ...] = ()) -> None: ...
    def run(self, call: Call[T]) -> T: ...
    def claim(self, scope: str, key: str, **options: Any) -> Claim: ...
    def savepoint(self) -> AbstractContextManager[object]: ...


class Facade(Protocol):
    """What a test asks of the client."""

    @property
    def metrics(self) -> Metrics: ...
    @property
    def owner(self) -> str: ...
    def open(self) -> None: ...
    def close(self) -> None: ...
    def run(self, call: Call[T]) -> T: ...
    def transaction(self, **calls: Any) -> AbstractContextManager[FacadeTransaction]: ...


class SyncFacade:
    def __init__(self, client: Fencepost) -> None:
        self._client: SyncFencepost = client.sync()
        self.metrics = client.metrics
        self.owner = client.owner

    def open(self) -> None:
        self._client.open()

    def close(self) -> None:
        self._client.close()

    def run(self, call: Call[T]) -> T:
        return self._client.run(call)

    @contextmanager
    def transaction(self, **calls: Any) -> Generator[FacadeTransaction]:
        with self._client.transaction(**calls) as tx:
            yield _SyncFacadeTransaction(tx)


class AsyncFacade:
    def __init__(self, client: Fencepost) -> None:
        self._client = client
        self._loop = Loop()
        self.metrics = client.metrics
        self.owner = client.owner

    def open(self) -> None:
        self._loop.wait(self._client.open())

    def close(self) -> None:
        self._loop.wait(self._client.close())
        self._loop.close()

    def run(self, call: Call[T]) -> T:
        return self._loop.wait(self._client.run(call))

    @contextmanager
    def transaction(self, **calls: Any) -> Generator[FacadeTransaction]:
        with self._loop.inside(self._client.transaction(**calls)) as tx:
            yield _AsyncFacadeTransaction(tx, self._loop)


class _SyncFacadeTransaction:
    def __init__(self, tx: SyncTransaction) -> None:
        self._tx = tx

    def execute(self, query: LiteralString, params: tuple[Any, ...] = ()) -> None:
        self._tx.execute(query, params)

    def run(self, call: Call[T]) -> T:
        return self._tx.run(call)

    def claim(self, scope: str, key: str, **options: Any) -> Claim:
        return self._tx.claim(scope, key, **options)

    def savepoint(self) -> AbstractContextManager[object]:
        return self._tx.savepoint()


class _AsyncFacadeTransaction:
    def __init__(self, tx: Transaction, loop: Loop) -> None:
        self._tx = tx
        self._loop = loop

    def execute(self, query: LiteralString, params: tuple[Any, ...] = ()) -> None:
        self._loop.wait(self._tx.execute(query, params))

    def run(self, call: Call[T]) -> T:
        return self._loop.wait(self._tx.run(call))

    def claim(self, scope: str, key: str, **options: Any) -> Claim:
        return self._loop.wait(self._tx.claim(scope, key, **options))

    def savepoint(self) -> AbstractContextManager[object]:
        return self._loop.inside(self._tx.savepoint())
