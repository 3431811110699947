"""The interface between a sink and the runtime: a guarantee, and hooks around a commit.

One commit of one task calls them in this order. Every hook may be repeated after a crash.

    begin      a two-phase sink names its transaction; the handle is recorded
    prepare    it receives the values and prepares them
    write      inside the transaction of PostgreSQL that stores state, frontier and handles
    finish     after that transaction is durable, also in recovery
    cancel     for a transaction that was begun and never became durable

A hook that takes values may return those that the sink will never take (`rejecting.Rejection`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from fencepost.database import OpenClient
from fencepost.flows._guarantee import Promise
from fencepost.flows._record import Offset
from fencepost.flows.sinks._rejecting import STOP, OnReject, Rejection, Rejections
from fencepost.kernel.call import Json
from fencepost.kernel.lease import Lease
from fencepost.transaction import Transaction


@dataclass(frozen=True, slots=True)
class CheckpointId:
    """Names one checkpoint of one task permanently: the token distinguishes a zombie's checkpoint from its
    successor's."""

    resource: str
    token: int
    number: int
    reached: Mapping[str, Offset | None] = field(default_factory=dict[str, "Offset | None"], compare=False)
    """The offset that the checkpoint reaches in each sender, where that is known."""

    @property
    def text(self) -> str:
        """The id as one text, which no other checkpoint has."""
        return f"{self.resource}#{self.number}.{self.token}"


class Prepared(NamedTuple):
    """The handle of a transaction that holds the values, except those that were rejected."""

    handle: Json
    rejections: Sequence[Rejection] = ()


@dataclass(frozen=True, slots=True)
class FlowContext:
    """What sources and sinks are opened with."""

    fp: OpenClient
    flow: str
    redis_url: str | None
    replay_seconds_max: float
    """The maximum age of a record that can be delivered again: lease, interval and drain."""
    interval_seconds: float
    drain_seconds: float
    lease: Lease | None = None
    """The lease of the unit that a source is opened for."""
    tasks: int = 1
    """How many tasks of the flow commit: a worker that is alone has all of them."""
    bounded: bool = False
    """Whether the flow runs until its sources have ended: then a source that waits for operators ends too."""


class Sink:
    """A sink. Subclass one of the classes in `sink_types`, not this."""

    promise: Promise
    keyed: ClassVar[bool] = False
    """Whether a later value of a key replaces an earlier one, so that only the last must be written."""
    staged: ClassVar[bool] = False
    """Whether the values themselves must be stored with the checkpoint until `finish` has delivered them."""
    two_phase: ClassVar[bool] = False
    numbered: ClassVar[bool] = False
    """Whether the sink stores the number of the last checkpoint that it took, and skips those that are not
    newer."""
    on_reject: OnReject = STOP
    """What happens to a value that the sink will never take."""

    async def open(self, context: FlowContext) -> None:
        """Connect; raise StartRefused, with the remedy, for a configuration that cannot work."""

    async def close(self) -> None:
        """Release connections."""

    async def begin(self, checkpoint: CheckpointId) -> Json:
        """Begin what one checkpoint writes; returns a handle that is stored with the checkpoint."""
        return None

    async def prepare(self, checkpoint: CheckpointId, handle: Json, values: Sequence[Any]) -> Prepared:
        """Write the values so that `finish` can make them visible, or a restart can drop them."""
        return Prepared(handle)

    async def write(self, tx: Transaction, checkpoint: CheckpointId, values: Sequence[Any]) -> Rejections:
        """Write within the commit transaction."""
        return None

    async def finish(self, checkpoint: CheckpointId, handle: Json, values: Sequence[Any]) -> Rejections:
        """The checkpoint is durable: make its effects visible. A repeat changes nothing, and returns the
        same rejections unless the sink now decides otherwise."""
        return None

    async def recover(self, checkpoint: CheckpointId, handle: Json, values: Sequence[Any]) -> Rejections:
        """As `finish`, in a task that has only what the checkpoint holds."""
        return await self.finish(checkpoint, handle, values)

    async def cancel(self, checkpoint: CheckpointId, handle: Json) -> None:
        """The checkpoint never became durable: undo what was prepared. A repeat changes nothing."""

    async def restored(self, resource: str, number: int) -> None:
        """A task was restored to this checkpoint, and everything up to it is finished."""

    async def position(self, resource: str) -> int | None:
        """The newest checkpoint that a numbered sink has taken; None when it has never taken one."""
        return None
