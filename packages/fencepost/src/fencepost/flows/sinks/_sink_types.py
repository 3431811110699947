"""The types of sinks that users write, each with the guarantee that it can keep."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from fencepost.crashpoints import crash_point
from fencepost.errors import InvalidInput
from fencepost.flows._errors import StartRefused
from fencepost.flows._guarantee import AT_LEAST_ONCE, EXACTLY_ONCE, Promise
from fencepost.flows.sinks._rejecting import STOP, OnReject, Rejected, Rejection, Rejections, rejection
from fencepost.flows.sinks._sink import CheckpointId, Prepared, Sink
from fencepost.kernel.call import Json, document
from fencepost.transaction import Transaction

T = TypeVar("T")
Txn = TypeVar("Txn")


class TransactionalSink(Sink):
    """Writes to the database that also holds the frontier, in the same transaction."""

    promise = Promise(EXACTLY_ONCE, "values, state and frontier are one transaction")

    @abstractmethod
    async def write(self, tx: Transaction, checkpoint: CheckpointId, values: Sequence[Any]) -> Rejections: ...


class StagedSink(Sink):
    """Delivers values that are stored with the checkpoint first, so that a repeat delivers the same ones.

    `deliver` may be called again for the last checkpoint, with the same values in the same order; it must
    then change nothing, and return the same rejections. `as_record(value, checkpoint, place)` gives each
    value an id that stays the same.
    """

    staged = True

    @abstractmethod
    async def deliver(self, checkpoint: CheckpointId, values: Sequence[Any]) -> Rejections:
        """Deliver the values of a committed checkpoint; may be called again for the same one."""

    async def finish(self, checkpoint: CheckpointId, handle: Json, values: Sequence[Any]) -> Rejections:
        if values or self.numbered:
            return await self.deliver(checkpoint, values)
        return None


class TwoPhaseCommitSink(Sink, Generic[T, Txn]):
    """A sink with its own transactions. `Txn` is a JSON-serialisable handle; it is stored in the checkpoint.

    After a crash `recover_and_commit` is called for the handle in the newest durable checkpoint, and
    `recover_and_abort` for those of checkpoints that never became durable. Either may be called again,
    also after `commit` or `abort` has already happened: then it must detect that and do nothing.
    """

    two_phase = True
    promise = Promise(
        EXACTLY_ONCE, "the sink's transaction is committed when, and only when, the checkpoint is durable"
    )

    @abstractmethod
    async def begin_transaction(self, checkpoint: CheckpointId) -> Txn:
        """Begin a transaction of the external system, for one checkpoint."""

    @abstractmethod
    async def invoke(self, value: T, txn: Txn) -> None:
        """Write one value inside the transaction."""

    @abstractmethod
    async def pre_commit(self, txn: Txn) -> None:
        """Make the transaction durable, so that a later commit cannot fail."""

    @abstractmethod
    async def commit(self, txn: Txn) -> None:
        """Commit the transaction; a repeat does nothing."""

    @abstractmethod
    async def abort(self, txn: Txn) -> None:
        """Roll the transaction back; a repeat does nothing."""

    async def recover_and_commit(self, txn: Txn) -> None:
        """Commit a transaction of a process that is gone, after its checkpoint committed."""
        await self.commit(txn)

    async def recover_and_abort(self, txn: Txn) -> None:
        """Roll back a transaction of a process that is gone, whose checkpoint did not commit."""
        await self.abort(txn)

    async def invoke_many(self, values: Sequence[T], txn: Txn) -> Rejections:
        """Override this where many values at once are cheaper. `invoke` may raise Rejected for its value."""
        rejected: list[Rejection] = []
        for value in values:
            try:
                await self.invoke(value, txn)
            except Rejected as error:
                rejected.append(rejection(value, error))
        return rejected

    async def rehearse(self, resource: str) -> None:
        """Raise for a handle that no checkpoint could hold, before the first record."""
        checkpoint = CheckpointId(f"{resource}/rehearsal", 0, 0)
        txn = await self.begin_transaction(checkpoint)
        try:
            document("handle", txn)
        except InvalidInput as error:
            raise StartRefused(
                f"{type(self).__name__}.begin_transaction answers {type(txn).__name__}, which the checkpoint "
                f"cannot hold: {error} Answer plain data: text, numbers, lists, dicts."
            ) from None
        finally:
            await self.abort(txn)

    async def begin(self, checkpoint: CheckpointId) -> Json:
        return await self.begin_transaction(checkpoint)

    async def prepare(self, checkpoint: CheckpointId, handle: Json, values: Sequence[Any]) -> Prepared:
        rejected = await self.invoke_many(values, handle)
        crash_point("flows.commit.after_invoke")
        await self.pre_commit(handle)
        return Prepared(handle, rejected or ())

    async def finish(self, checkpoint: CheckpointId, handle: Json, values: Sequence[Any]) -> Rejections:
        await self.commit(handle)
        return None

    async def recover(self, checkpoint: CheckpointId, handle: Json, values: Sequence[Any]) -> Rejections:
        await self.recover_and_commit(handle)
        return None

    async def cancel(self, checkpoint: CheckpointId, handle: Json) -> None:
        await self.recover_and_abort(handle)


class CheckpointAwareSink(Sink, Generic[T]):
    """Hooks around a checkpoint, for a sink that holds its effects back until the checkpoint is complete.

    `on_checkpoint_complete` may be called twice with the same values. That is exactly once if the sink
    declares `idempotent`: a value that was delivered before changes nothing.
    """

    staged = True
    idempotent: ClassVar[bool] = False

    def __init__(self) -> None:
        if self.idempotent:
            self.promise = Promise(EXACTLY_ONCE, "the sink recognises what it has taken before")
        else:
            self.promise = Promise(
                AT_LEAST_ONCE,
                "on_checkpoint_complete is repeated after a crash",
                ("set idempotent = True if a repeated value changes nothing", "a TwoPhaseCommitSink"),
            )

    async def on_checkpoint_start(self, checkpoint: CheckpointId) -> None:
        """A checkpoint begins."""

    @abstractmethod
    async def on_checkpoint_complete(self, checkpoint: CheckpointId, values: Sequence[T]) -> Rejections:
        """Take the values of a checkpoint that is committed; may be called again for the same one."""

    async def on_checkpoint_abort(self, checkpoint: CheckpointId) -> None:
        """The checkpoint never became durable; its records are processed again."""

    async def on_checkpoint_restore(self, resource: str, number: int) -> None:
        """A task continues from this checkpoint."""

    async def begin(self, checkpoint: CheckpointId) -> Json:
        await self.on_checkpoint_start(checkpoint)
        return None

    async def finish(self, checkpoint: CheckpointId, handle: Json, values: Sequence[Any]) -> Rejections:
        return await self.on_checkpoint_complete(checkpoint, values)

    async def cancel(self, checkpoint: CheckpointId, handle: Json) -> None:
        await self.on_checkpoint_abort(checkpoint)

    async def restored(self, resource: str, number: int) -> None:
        await self.on_checkpoint_restore(resource, number)


class CallSink(StagedSink):
    """Calls a function with the values of each commit. After a crash in between it is called again.

    A function that returns a list of `Rejection`s has taken the other values.
    """

    promise = Promise(
        AT_LEAST_ONCE,
        "the function is called again after a crash, and nothing tells it so",
        (
            "PostgresRows or another TransactionalSink",
            "the outbox (OutboxSink)",
            "a CheckpointAwareSink that is idempotent",
        ),
    )

    def __init__(self, function: Callable[[Sequence[Any]], Any], *, on_reject: OnReject = STOP) -> None:
        self._function = function
        self.on_reject = on_reject

    async def deliver(self, checkpoint: CheckpointId, values: Sequence[Any]) -> Rejections:
        """Call the function with the committed values."""
        answer = self._function(values)
        if hasattr(answer, "__await__"):
            answer = await answer
        return _rejections_in(answer)


def _rejections_in(answer: Any) -> list[Rejection]:
    """The rejections in a function's result; any other result is ignored."""
    return [each for each in answer if isinstance(each, Rejection)] if type(answer) is list else []  # pyright: ignore[reportUnknownVariableType]


class TableSink(TransactionalSink):
    """Keeps values in memory, by key, for tests. A task writes to it in place of a transaction."""

    keyed = True

    async def write(self, tx: Transaction, checkpoint: CheckpointId, values: Sequence[Any]) -> Rejections:
        """Does nothing: no value leaves the process."""
        return None


class ListSink(TransactionalSink):
    """Keeps values in memory, in order, for tests."""

    async def write(self, tx: Transaction, checkpoint: CheckpointId, values: Sequence[Any]) -> Rejections:
        """Does nothing: no value leaves the process."""
        return None
