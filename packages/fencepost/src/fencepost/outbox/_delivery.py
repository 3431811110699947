"""The two interfaces of a relay: where messages come from, and where they go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from fencepost.kernel import outbox
from fencepost.kernel.call import CallRunner

M = TypeVar("M", bound="TakenMessage")
M_contra = TypeVar("M_contra", bound="TakenMessage", contravariant=True)
S_contra = TypeVar("S_contra", contravariant=True)
S_co = TypeVar("S_co", covariant=True)


class TakenMessage(Protocol):
    """A message that was taken: its id, and the fence of this delivery."""

    @property
    def id(self) -> int: ...
    @property
    def take(self) -> int: ...


class MessageSource(Protocol[M, S_contra]):
    """A channel of the outbox. Every method is one statement, and is fenced by the database."""

    @property
    def topic(self) -> str:
        """The topic that is notified when a message is put."""
        ...

    async def take(self, owner: str, lease_seconds: float, limit: int) -> Sequence[M]: ...
    async def settle(self, owner: str, settlements: Sequence[S_contra]) -> Sequence[str | None]:
        """Settle deliveries; returns a refusal, or None, for each in the order given."""
        ...

    async def renew(self, owner: str, lease_seconds: float, messages: Sequence[M]) -> None: ...
    async def expire(self, limit: int) -> int:
        """Free the deliveries of silent takers; returns how many."""
        ...


class Destination(Protocol[M_contra, S_co]):
    """Where messages go. Must not raise for expected failures; an exception it raises nevertheless is settled
    by `failed`, which does not know how far the delivery came."""

    async def deliver(self, message: M_contra) -> S_co: ...
    def failed(self, message: M_contra, error: BaseException) -> S_co: ...


class Channel:
    """A channel of the kernel's outbox: delivered at least once, in order for each key."""

    def __init__(self, database: CallRunner, channel: str) -> None:
        self._database = database
        self._channel = channel

    @property
    def topic(self) -> str:
        return f"outbox:{self._channel}"

    async def take(self, owner: str, lease_seconds: float, limit: int) -> Sequence[outbox.Message]:
        return await self._database.run(outbox.take(self._channel, owner, lease_seconds, limit))

    async def settle(self, owner: str, settlements: Sequence[outbox.Settlement]) -> Sequence[str | None]:
        answers = await self._database.run(outbox.settle_many(settlements, owner))
        refusals = {answer.id: answer.refusal for answer in answers}
        return [refusals[settlement.id] for settlement in settlements]

    async def renew(self, owner: str, lease_seconds: float, messages: Sequence[outbox.Message]) -> None:
        await self._database.run(outbox.renew(messages, owner, lease_seconds))

    async def expire(self, limit: int) -> int:
        expired = await self._database.run(outbox.expire(self._channel, "queued", limit))
        return len(expired)
