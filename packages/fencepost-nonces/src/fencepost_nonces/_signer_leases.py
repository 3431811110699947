"""The signers that this node holds: acquired when needed, handed over when idle or asked.

Nothing here keeps a late writer out: the database does, in every statement. A lease in this module is only
assumed to be valid, until a statement is refused. So a pause, a jump of the clock or a bug costs a retry.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from fencepost.client import Fencepost
from fencepost.errors import FencepostError, Refusal
from fencepost.kernel.lease import Lease
from fencepost.lease_keeper import KeptLease, LeaseKeeper
from fencepost.listener import Listener
from fencepost.logs import get_logger
from fencepost_nonces import _nonce_calls as nonce_calls
from fencepost_nonces._errors import SignerElsewhere
from fencepost_nonces._metrics import NonceMetrics
from fencepost_nonces._settings import NoncesSettings
from fencepost_nonces.signer import Signer

_log = get_logger(__name__)
# How long a waiter waits for a notification before it polls.
POLL_SECONDS = 0.1
# After a hand-over on request, this node does not ask for the signer before the other had time to acquire it.
COURTESY_SECONDS = 0.02


FirstNonce = Callable[[Signer], Awaitable[int]]


@dataclass
class SignerLease:
    """One signer in this node."""

    signer: Signer
    kept: KeptLease | None = None
    users: int = 0
    used_at: float = 0.0
    wanted_at: float | None = None
    away_until: float = 0.0
    asking: asyncio.Task[str | None] | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    freed: asyncio.Event = field(default_factory=asyncio.Event)
    unused: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def lease(self) -> Lease | None:
        return None if self.kept is None else self.kept.lease

    def believed(self) -> Lease | None:
        """The lease, unless the local clock says it has expired: acquiring is quicker than being refused."""
        return self.kept.lease if self.kept is not None and self.kept.is_valid else None

    def turn_is_over(self, now: float, turn_seconds: float) -> bool:
        return self.wanted_at is not None and (self.users == 0 or now - self.wanted_at >= turn_seconds)

    def answered(self, asking: asyncio.Task[str | None]) -> None:
        """The next caller acquires again. Waiters got the exception; without waiters it is dropped."""
        self.asking = None
        if not asking.cancelled():
            asking.exception()


class SignerLeases:
    """All signers of this node, under its one name."""

    def __init__(
        self,
        fp: Fencepost,
        settings: NoncesSettings,
        metrics: NonceMetrics,
        *,
        owner: str,
        first_nonce: FirstNonce | None = None,
    ) -> None:
        self.owner = owner
        self._fp = fp
        self._settings = settings
        self._metrics = metrics
        self._first_nonce = first_nonce
        self._signer_leases: dict[Signer, SignerLease] = {}
        self._watched: set[Signer] = set()
        self._known: set[Signer] = set()
        self._listener: Listener | None = None
        self._left = False
        self.keeper = LeaseKeeper(
            fp.database_url,
            owner,
            name="nonces",
            ttl_seconds=settings.lease_seconds,
            beat_seconds=settings.renew_seconds,
            on_lost=self._lost,
            on_renewed=lambda lease: self._count_renewal("renewed"),
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self.on_wanted: Callable[[], None] = lambda: None

    def start(self, listener: Listener) -> None:
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self.keeper.start()

    def held(self) -> Iterator[SignerLease]:
        return (
            signer_lease
            for signer_lease in tuple(self._signer_leases.values())
            if signer_lease.lease is not None
        )

    @asynccontextmanager
    async def using(self, signer: Signer, *, patient: bool = True) -> AsyncGenerator[Lease]:
        """Inside the block this node holds the signer, as far as it knows."""
        signer_lease = self._signer_lease(signer)
        lease = await self._enter(signer_lease, patient=patient)
        try:
            yield lease
        except Refusal as refusal:
            self._refused(signer_lease, lease, refusal)
            raise
        finally:
            signer_lease.users -= 1
            signer_lease.used_at = time.monotonic()
            if signer_lease.users == 0:
                signer_lease.unused.set()
                if signer_lease.wanted_at is not None:
                    self.on_wanted()

    async def _enter(self, signer_lease: SignerLease, *, patient: bool) -> Lease:
        lease = signer_lease.believed()
        if lease is not None and signer_lease.wanted_at is None and not signer_lease.lock.locked():
            # The common case: held, and no other node wants it. Nothing to wait for, so no lock and no timer.
            signer_lease.users += 1
            signer_lease.unused.clear()
            return lease
        seen: list[str | None] = [None]
        try:
            async with asyncio.timeout(self._settings.wait_seconds), signer_lease.lock:
                now = time.monotonic()
                if signer_lease.turn_is_over(now, self._settings.turn_seconds):
                    await self._let_go(signer_lease)
                lease = signer_lease.believed() or await self._try(signer_lease, seen)
                if lease is None and not patient:
                    raise SignerElsewhere(signer_lease.signer, seen[0], 1.0)
                lease = lease or await self._take(signer_lease, seen)
                if self._left:
                    # This node has left: it would neither renew the lease nor notice that another wants it.
                    await self._let_go(signer_lease)
                    raise SignerElsewhere(signer_lease.signer, None, 1.0)
                signer_lease.users += 1
                signer_lease.unused.clear()
                return lease
        except TimeoutError:
            raise SignerElsewhere(signer_lease.signer, seen[0], 1.0) from None

    async def _take(self, signer_lease: SignerLease, seen: list[str | None]) -> Lease:
        """Acquire, however long it takes; the caller sets the timeout."""
        asked = False
        while True:
            await asyncio.sleep(max(0.0, signer_lease.away_until - time.monotonic()))
            signer_lease.freed.clear()
            lease = await self._try(signer_lease, seen)
            if lease is not None:
                return lease
            if not asked:
                self._watch(signer_lease)
                await self._fp.run(nonce_calls.want(signer_lease.signer))
                asked = True
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await signer_lease.freed.wait()
            asked = False

    async def _try(self, signer_lease: SignerLease, seen: list[str | None]) -> Lease | None:
        """Try to acquire the lease. A caller that stops waiting does not cancel the attempt: its result may
        be a lease, which must be renewed and handed over; and the next caller waits for the same attempt."""
        if signer_lease.asking is None:
            signer_lease.asking = asyncio.create_task(
                self._ask(signer_lease), name=f"ask for {signer_lease.signer.resource}"
            )
            signer_lease.asking.add_done_callback(signer_lease.answered)
        elsewhere = await asyncio.shield(signer_lease.asking)
        seen[0] = elsewhere or seen[0]
        return None if elsewhere else signer_lease.lease

    async def _ask(self, signer_lease: SignerLease) -> str | None:
        """Acquire once; returns the owner if another node has it."""
        asked_at = time.monotonic()
        answer = await self._fp.run(
            nonce_calls.acquire(
                signer_lease.signer,
                self.owner,
                self._settings.lease_seconds,
                first_nonce=await self._begin(signer_lease.signer),
            )
        )
        mine = answer.owner == self.owner
        self._metrics.lease_acquire.labels(
            result=answer.outcome if mine else "not_owner", mode=self._settings.mode
        ).inc()
        if not mine:
            return answer.owner
        signer_lease.kept = self.keeper.keep(answer.lease(signer_lease.signer), asked_at)
        signer_lease.wanted_at = None
        signer_lease.used_at = asked_at
        self._watch(signer_lease)
        self._metrics.held_signers.set(sum(1 for _ in self.held()))
        if answer.outcome == "acquired":
            _log.info(
                "signer_acquired",
                signer=signer_lease.signer.resource,
                owner_node=self.owner,
                fencing_token=answer.token,
                expires_at=answer.expires_at.isoformat(),
                released=answer.released,
                adopted=answer.adopted,
            )
        return None

    async def _begin(self, signer: Signer) -> int:
        """The first nonce of a signer's sequence: the chain's count, if the chain is configured."""
        if self._first_nonce is None or signer in self._known:
            return 0
        first = await self._first_nonce(signer)
        self._known.add(signer)
        return first

    async def _let_go(self, signer_lease: SignerLease) -> None:
        """Hand over under the SignerLease's lock: no new user enters, and present users finish first."""
        while signer_lease.users > 0:
            signer_lease.unused.clear()
            await signer_lease.unused.wait()
        lease, wanted = signer_lease.lease, signer_lease.wanted_at is not None
        self._forget(signer_lease)
        if lease is None:
            return
        with suppress(Refusal):  # Another node has it already.
            await self._fp.run(nonce_calls.hand_over(signer_lease.signer, lease))
            _log.debug("signer_handed_over", signer=signer_lease.signer.resource, fencing_token=lease.token)
        if wanted:
            signer_lease.away_until = time.monotonic() + COURTESY_SECONDS
        self._metrics.held_signers.set(sum(1 for _ in self.held()))

    def _lost(self, lease: Lease) -> None:
        """Called from the keeper's thread."""
        self._count_renewal("lost")
        _log.warning("signer_lost", signer=lease.resource, fencing_token=lease.token)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._forget_lease, lease)

    def _forget_lease(self, lease: Lease) -> None:
        for signer_lease in self.held():
            if signer_lease.lease is lease:
                self._forget(signer_lease)

    def _forget(self, signer_lease: SignerLease) -> None:
        if signer_lease.kept is not None:
            self.keeper.forget(signer_lease.kept)
        signer_lease.kept, signer_lease.wanted_at = None, None

    def _count_renewal(self, result: str) -> None:
        self._metrics.lease_renew.labels(result=result, mode=self._settings.mode).inc()

    async def tidy(self, leaves: Callable[[SignerLease, float], bool]) -> None:
        """Hand over signers that are wanted and not in use, and those that `leaves` selects."""
        for signer_lease in tuple(self.held()):
            now = time.monotonic()
            if signer_lease.users or signer_lease.lock.locked():
                continue
            if signer_lease.wanted_at is not None or leaves(signer_lease, now):
                async with signer_lease.lock:
                    if signer_lease.users == 0:
                        await self._let_go(signer_lease)

    async def leave(self) -> None:
        """Hand everything over: the node stops, and acquires nothing any more."""
        self._left = True
        asking = [
            signer_lease.asking
            for signer_lease in self._signer_leases.values()
            if signer_lease.asking is not None
        ]
        if asking:
            await asyncio.wait(asking, timeout=self._settings.wait_seconds)
        for signer_lease in tuple(self.held()):
            async with signer_lease.lock:
                with suppress(TimeoutError, FencepostError):
                    async with asyncio.timeout(self._settings.wait_seconds):
                        await self._let_go(signer_lease)
        await self.keeper.close()

    def _refused(self, signer_lease: SignerLease, lease: Lease, refusal: Refusal) -> None:
        if refusal.noun != "lease":
            return
        op = str(refusal.attempted.get("op", "renew"))
        self._metrics.fence_reject.labels(op=op).inc()
        _log.warning(
            "fenced_reject",
            signer=signer_lease.signer.resource,
            op=op,
            provided_token=lease.token,
            seen_token=refusal.seen.get("token"),
            seen_owner=refusal.seen.get("owner"),
            node=self.owner,
        )
        if signer_lease.lease is lease:
            self._forget(signer_lease)

    def _signer_lease(self, signer: Signer) -> SignerLease:
        signer_lease = self._signer_leases.get(signer)
        if signer_lease is None:
            signer_lease = self._signer_leases[signer] = SignerLease(signer)
        return signer_lease

    def _watch(self, signer_lease: SignerLease) -> None:
        """Listen for when it is wanted, and when it is free; once for each signer."""
        if self._listener is None or signer_lease.signer in self._watched:
            return
        self._watched.add(signer_lease.signer)

        def wanted() -> None:
            if signer_lease.lease is not None and signer_lease.wanted_at is None:
                signer_lease.wanted_at = time.monotonic()
                self.on_wanted()

        # A node that wants it repeats this at every poll. In doubt none does: otherwise a lost connection
        # would hand over every signer.
        self._listener.on(f"nonces.wanted:{signer_lease.signer.resource}", wanted, in_doubt=False)
        self._listener.on(f"nonces.free:{signer_lease.signer.resource}", signer_lease.freed.set)
