"""`fp.leases`: one owner at a time for a resource, under a token that only grows."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import Any

from fencepost._connections import Connections
from fencepost._durations import Duration, positive_seconds_of
from fencepost._sync_form import Form, Operations, context, operation
from fencepost.errors import Refusal
from fencepost.kernel import lease as kernel_lease
from fencepost.kernel.call import Call
from fencepost.kernel.lease import Acquisition, Lease, Release, Renewal
from fencepost.transaction import in_transaction


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
    async def hold(self, resource: str, *, ttl: Duration, owner: str | None = None) -> AsyncGenerator[Lease]:
        """Acquire for the block, and release at its end. Renew it inside if the block may outlast `ttl`.

        Each block is an owner of its own, so two blocks of one process exclude each other too. A block that
        outlasts its lease does no harm if its writes are fenced: `fence` refuses them.
        """
        owner = owner or f"{self._connections.owner}/{secrets.token_hex(4)}"
        seconds = positive_seconds_of("ttl", ttl)
        lease = await self._connections.run(kernel_lease.acquire(resource, owner, seconds))
        try:
            yield lease
        finally:
            # A lease that was lost meanwhile belongs to another owner: there is nothing to release.
            with suppress(Refusal):
                await self._connections.run(kernel_lease.release(lease))

    @in_transaction
    def fence(self, lease: Lease) -> Call[None]:
        """From here to the end of the transaction nobody takes the resource over. Raises if it is lost."""
        return kernel_lease.fence(lease.resource, lease.token)
