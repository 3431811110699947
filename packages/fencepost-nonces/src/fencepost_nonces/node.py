"""One node: it accepts requests for any signer, and serves the signers that it holds or can acquire.

Basic mode: every request is a statement of its own, and the signer is handed over when another node asks.
Queue mode: every signer has a home among the live nodes, and its home serves all waiting requests with one
statement; a node that is not the home writes nothing.
Both modes make the same writes under the same fence, so nodes of both modes may run beside each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from fencepost.client import Fencepost
from fencepost.errors import IndeterminateCommit, LeaseExpired, NotFound, NotOwner, Refusal
from fencepost.kernel import lease as kernel_lease
from fencepost.kernel.call import Call
from fencepost.kernel.lease import Lease, owner_name
from fencepost.listener import Listener
from fencepost.loop import Loop
from fencepost_nonces import _nonce_calls as nonce_calls
from fencepost_nonces._errors import SignerElsewhere
from fencepost_nonces._metrics import NonceMetrics
from fencepost_nonces._nonce_calls import NodeSeen, NonceAnswer, NonceEnding, Reservation
from fencepost_nonces._queue import SignerQueue
from fencepost_nonces._routing import home_of
from fencepost_nonces._settings import NoncesSettings
from fencepost_nonces._signer_leases import FirstNonce, SignerLease, SignerLeases
from fencepost_nonces.signer import Signer

T = TypeVar("T")
TRIES = 3
# In queue mode a signer stays at its home; after this idle time its lease is handed over and not renewed.
QUEUE_IDLE_SECONDS = 60.0
NODE_PREFIX = "nonces:node:"


class Node:
    """Serves requests after `start`; `stop` hands every signer over."""

    def __init__(
        self,
        fp: Fencepost,
        settings: NoncesSettings | None = None,
        metrics: NonceMetrics | None = None,
        *,
        first_nonce: FirstNonce | None = None,
        member: bool = True,
    ) -> None:
        """`member` is False for a node that lives for a single request: no signer has its home there."""
        self.settings = settings or NoncesSettings()
        self.metrics = metrics or NonceMetrics.on(fp.metrics)
        self.owner = owner_name("nonces")
        self.address = self.settings.node_address or self.owner
        self._fp = fp
        self._signer_leases = SignerLeases(
            fp, self.settings, self.metrics, owner=self.owner, first_nonce=first_nonce
        )
        self._queues: dict[Signer, SignerQueue] = {}
        self._member = member
        self._nodes: list[NodeSeen] = []
        self._self_lease: Lease | None = None
        self._lease_loop = Loop("nonces", self._keep, self.metrics.loop_errors)
        self._signer_leases.on_wanted = self._lease_loop.wake
        self._listening: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Acquire its leases, and keep them until `stop`."""
        listener = Listener(self._fp.settings.listen_url or self._fp.database_url)
        self._signer_leases.start(listener)
        self._listening = asyncio.create_task(listener.run(), name="fencepost-nonces-listener")
        await self._keep()
        self._lease_loop.start()

    async def stop(self) -> None:
        """Release its signers, so that another node need not wait for their leases."""
        await self._lease_loop.stop()
        for queue in self._queues.values():
            await queue.close()
        await self._signer_leases.leave()
        if self._self_lease is not None:
            with suppress(Refusal):
                await self._fp.run(kernel_lease.release(self._self_lease))
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)

    def home(self, signer: Signer) -> str | None:
        """The address of the node that this signer belongs to, or None when it is served here.

        A home must be reachable: a node without an address is the home of no signer, and serves only while no
        node has an address.
        """
        if self.settings.mode == "basic":
            return None
        home = home_of(signer.resource, (node.address for node in self._nodes if node.reachable))
        return None if home in (None, self.address) else home

    async def reserve(self, signer: Signer, request_ids: Sequence[str]) -> list[Reservation]:
        """A nonce for each request, in their order. SignerElsewhere when another node has the signer."""
        for request_id in request_ids:
            nonce_calls.check_request_id(request_id)
        if self.settings.mode == "basic":
            return await self._reserve(signer, request_ids)
        self._refuse_strangers(signer)
        return await self._queue(signer).put(request_ids)

    async def mark_used(self, signer: Signer, nonce: int, hold: int, tx_hash: str | None = None) -> None:
        """Settle a reservation: a transaction with this nonce was sent."""
        await self.write(
            signer, lambda lease: nonce_calls.mark_used(signer, lease, nonce, hold, tx_hash=tx_hash)
        )

    async def mark_recyclable(self, signer: Signer, nonce: int, hold: int) -> None:
        """Settle a reservation: nothing was signed with this nonce, and it may be given again."""
        await self.write(signer, lambda lease: nonce_calls.mark_recyclable(signer, lease, nonce, hold))

    async def mark_many(self, signer: Signer, endings: Sequence[NonceEnding]) -> list[NonceAnswer]:
        """Settle reservations of one signer together; an answer for each."""
        return await self.write(signer, lambda lease: nonce_calls.mark_many(signer, lease, endings))

    async def write(
        self,
        signer: Signer,
        call: Callable[[Lease], Call[T]],
        *,
        patient: bool = True,
        away: bool = False,
    ) -> T:
        """One fenced write. When the fence refuses, it is retried: its ids make the repeat idempotent.

        Raises SignerElsewhere on a node that is not the signer's home, unless `away` says that the home does
        not serve it. The home may change before the next attempt, or during this one: then the fence decides.
        Without `patient`, a signer that another node holds is SignerElsewhere at once, and stays there.
        """

        async def once() -> T:
            if not away:
                self._refuse_strangers(signer)
            async with self._signer_leases.using(signer, patient=patient) as lease:
                return await self._fp.run(call(lease))

        try:
            return await self._again(once)
        except SignerElsewhere as error:
            raise SignerElsewhere(signer, self._addresses(error.owner), error.retry_seconds) from None

    def _refuse_strangers(self, signer: Signer) -> None:
        home = self.home(signer)
        if home is not None:
            raise SignerElsewhere(signer, home, 1.0)

    def _addresses(self, owner: str | None) -> str | None:
        """The address of an owner, if it has one; else its name."""
        return next((node.address for node in self._nodes if node.owner == owner), owner)

    async def _reserve(self, signer: Signer, request_ids: Sequence[str]) -> list[Reservation]:
        rows = await self.write(
            signer,
            lambda lease: nonce_calls.reserve(
                signer, lease, request_ids, locked_seconds=self.settings.hold_seconds
            ),
        )
        self.metrics.reserved.inc(len(rows))
        return rows

    @staticmethod
    async def _again(once: Callable[[], Awaitable[T]]) -> T:
        for attempt in range(1, TRIES + 1):
            try:
                return await once()
            except (NotOwner, LeaseExpired, NotFound) as refusal:
                if refusal.noun != "lease" or attempt == TRIES:
                    raise
            except IndeterminateCommit:
                # It may have committed; its request id or its hold makes the repeat idempotent.
                if attempt == TRIES:
                    raise
        raise AssertionError

    def _queue(self, signer: Signer) -> SignerQueue:
        queue = self._queues.get(signer)
        if queue is None:
            queue = self._queues[signer] = SignerQueue(
                lambda ids: self._reserve(signer, ids),
                self.metrics,
                queue_max=self.settings.queue_max,
                batch_max=self.settings.batch_max,
                wait_seconds=self.settings.wait_seconds,
            )
        return queue

    async def _keep(self) -> float:
        """Stay a member, read the other nodes, and hand over what is not needed."""
        await self._stay()
        await self._signer_leases.tidy(self._leaves)
        return min(self.settings.renew_seconds / 2, self.settings.idle_seconds / 2, 1.0)

    async def _stay(self) -> None:
        """The lease on its own address makes a node a member; that of an earlier boot expires by itself."""
        if not self._member:
            return
        (mine,) = await self._fp.run(
            kernel_lease.acquire_many([NODE_PREFIX + self.address], self.owner, self.settings.lease_seconds)
        )
        if mine.refusal is None:
            self._self_lease = Lease(
                mine.resource, self.owner, mine.token, mine.acquired_at, mine.renewed_at, mine.expires_at
            )
        self._nodes = await self._fp.run(nonce_calls.nodes())
        self.metrics.nodes.set(len(self._nodes))

    def _leaves(self, signer_lease: SignerLease, now: float) -> bool:
        if self.settings.mode == "basic":
            return now - signer_lease.used_at > self.settings.idle_seconds
        return self.home(signer_lease.signer) is not None or now - signer_lease.used_at > QUEUE_IDLE_SECONDS
