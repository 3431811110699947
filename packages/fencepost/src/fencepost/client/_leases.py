"""`fp.leases`: one owner at a time for a resource, under a token that only grows."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from fencepost._connections import Connections
from fencepost._durations import Duration, positive_seconds_of
from fencepost._sync_form import Form, Operations, context, operation
from fencepost.errors import REFUSALS, LeaseExpired, Refusal
from fencepost.kernel import lease as kernel_lease
from fencepost.kernel.call import Call
from fencepost.kernel.lease import Acquisition, Lease, Release, Renewal
from fencepost.transaction import in_transaction

if TYPE_CHECKING:
    from fencepost.lease_keeper import KeptLease


BEATS = 3
"""Renewals within one ttl, so that a renewal that fails loses no lease."""


class HeldLease:
    """A lease that is renewed as long as its block runs."""

    def __init__(self, kept: KeptLease) -> None:
        self._kept = kept

    @property
    def lease(self) -> Lease:
        """The lease as it was acquired, with its token."""
        return self._kept.lease

    @property
    def is_valid(self) -> bool:
        """Whether the lease is held, by this process's clock. A write asks `fence`: the database decides."""
        return self._kept.is_valid

    @in_transaction
    def fence(self) -> Call[None]:
        """Until the transaction ends, no other owner can take the resource. Raises if it is lost."""
        return kernel_lease.fence(self.lease.resource, self.lease.token)


class Leases(Operations[Form]):
    """Leases of this client. Its owner is this process, unless another name is given."""

    def __init__(self, connections: Connections[Any]) -> None:
        self._connections = connections
        self.is_blocking = connections.is_blocking

    @operation
    async def acquire(self, resource: str, *, ttl: Duration, owner: str | None = None) -> Lease:
        """Acquire the resource, or renew it if its owner holds it. Raises NotOwner while another one does."""
        return await self._connections.run(
            kernel_lease.acquire(resource, owner or self._connections.owner, positive_seconds_of("ttl", ttl))
        )

    @operation
    async def acquire_many(
        self, resources: Sequence[str], *, ttl: Duration, owner: str | None = None
    ) -> list[Acquisition]:
        """Acquire what can be had of many resources, with one statement; an outcome for each."""
        owner, seconds = owner or self._connections.owner, positive_seconds_of("ttl", ttl)
        return await self._connections.run(kernel_lease.acquire_many(resources, owner, seconds))

    @operation
    async def renew(self, lease: Lease, *, ttl: Duration) -> Lease:
        """Renew under the token. Raises LeaseExpired or NotOwner when the lease is lost."""
        return await self._connections.run(kernel_lease.renew(lease, positive_seconds_of("ttl", ttl)))

    @operation
    async def renew_many(
        self, leases: Sequence[Lease], *, ttl: Duration, owner: str | None = None
    ) -> list[Renewal]:
        """Renew all leases of one owner with one statement; an outcome for each."""
        owner, seconds = owner or self._connections.owner, positive_seconds_of("ttl", ttl)
        return await self._connections.run(kernel_lease.renew_many(leases, owner, seconds))

    @operation
    async def release(self, lease: Lease) -> None:
        """Release the resource. The token is never issued again."""
        await self._connections.run(kernel_lease.release(lease))

    @operation
    async def release_many(self, leases: Sequence[Lease], *, owner: str | None = None) -> list[Release]:
        """Release all leases of one owner with one statement; an outcome for each."""
        return await self._connections.run(
            kernel_lease.release_many(leases, owner or self._connections.owner)
        )

    @context
    async def hold(
        self, resource: str, *, ttl: Duration, owner: str | None = None
    ) -> AsyncGenerator[HeldLease]:
        """Hold the resource for the block: a thread renews the lease, and it is released at the end.

        Each block is an owner of its own, so two blocks of one process exclude each other too. When the lease
        is lost, an `async with` block is cancelled and raises LeaseExpired or NotOwner; a `with` block asks
        `held.is_valid`. Either way `held.fence` refuses later writes.
        """
        # A process that holds no lease need not load what logs.
        from fencepost.lease_keeper import LeaseKeeper  # noqa: PLC0415

        owner = owner or f"{self._connections.owner}/{secrets.token_hex(4)}"
        seconds, asked_at = positive_seconds_of("ttl", ttl), time.monotonic()
        lease = await self._connections.run(kernel_lease.acquire(resource, owner, seconds))
        watch = None if self.is_blocking else _LossWatch(asyncio.get_running_loop())
        keeper = LeaseKeeper(
            self._connections.database_url,
            owner,
            name="lease",
            ttl_seconds=seconds,
            beat_seconds=seconds / BEATS,
            on_lost=lambda _: watch.wake() if watch else None,
        )
        kept = keeper.keep(lease, asked_at)
        held = HeldLease(kept)
        keeper.start()
        try:
            if watch is None:
                yield held
            else:
                async with watch.over(kept):
                    yield held
        finally:
            keeper.forget(kept)
            try:
                # A lease that was lost meanwhile belongs to another owner: there is nothing to release.
                if kept.is_valid:
                    with suppress(Refusal):
                        await self._connections.run(kernel_lease.release(lease))
            finally:
                await self._connections.in_thread(keeper.stop)

    @in_transaction
    def fence(self, lease: Lease) -> Call[None]:
        """Until the transaction ends, no other owner can take the resource. Raises if it is lost."""
        return kernel_lease.fence(lease.resource, lease.token)


class _LossWatch:
    """Cancels a block when its lease is lost: told by the thread that renews it, or because the time is over
    and the thread still waits for an answer."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._told = asyncio.Event()

    def wake(self) -> None:
        """Called by the thread."""
        with suppress(RuntimeError):  # The loop may be closed by now.
            self._loop.call_soon_threadsafe(self._told.set)

    @asynccontextmanager
    async def over(self, kept: KeptLease) -> AsyncGenerator[None]:
        block = asyncio.current_task()
        assert block is not None
        earlier_cancels = block.cancelling()
        watching = self._loop.create_task(self._cancel_when_lost(kept, block))
        try:
            yield
        except asyncio.CancelledError as cancelled:
            # Unless another task has cancelled the block as well.
            if _has_cancelled(watching) and block.uncancel() <= earlier_cancels:
                raise _loss(kept) from cancelled
            raise
        except BaseException:
            if _has_cancelled(watching):
                block.uncancel()
            raise
        else:
            if _has_cancelled(watching):
                # The block has caught the cancel.
                block.uncancel()
                raise _loss(kept)
        finally:
            watching.cancel()

    async def _cancel_when_lost(self, kept: KeptLease, block: asyncio.Task[Any]) -> None:
        while kept.is_valid:
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, kept.valid_until - time.monotonic())):
                    await self._told.wait()
        block.cancel()


def _has_cancelled(watching: asyncio.Task[None]) -> bool:
    return watching.done() and not watching.cancelled()


def _loss(kept: KeptLease) -> Refusal:
    lease, reason = kept.lease, kept.refusal or LeaseExpired.reason
    return REFUSALS[reason](
        f"The lease on {lease.resource} was lost ({reason}), so its block was cancelled. Its fenced writes "
        "that had not committed are refused; acquire the lease again to go on.",
        noun="lease",
        subject=lease.resource,
        attempted={"owner": lease.owner, "token": lease.token, "op": "renew"},
    )
