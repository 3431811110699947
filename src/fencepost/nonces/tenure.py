"""The signers that this node holds: acquired when needed, renewed at a third, handed over when idle or asked.

Nothing here keeps a late writer out: the database does, in every statement. What is kept here is a belief,
and a refusal ends it. So a pause, a jump of the clock or a bug costs a retry.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from fencepost.client import Fencepost
from fencepost.errors import FencepostError, Refusal
from fencepost.kernel import lease as kernel_lease
from fencepost.kernel.lease import Lease
from fencepost.listener import Listener
from fencepost.logs import get_logger
from fencepost.nonces import allocation
from fencepost.nonces.errors import SignerElsewhere
from fencepost.nonces.metrics import NonceMetrics
from fencepost.nonces.settings import NoncesSettings
from fencepost.nonces.signer import Signer

_log = get_logger(__name__)
# Without a notification, so long until somebody who waits looks again.
POLL_SECONDS = 0.1
# Who handed over because another asked does not ask back before the other had time to take it.
COURTESY_SECONDS = 0.02


FirstNonce = Callable[[Signer], Awaitable[int]]


@dataclass
class Tenure:
    """One signer in this node."""

    signer: Signer
    lease: Lease | None = None
    valid_until: float = 0.0
    users: int = 0
    used_at: float = 0.0
    wanted_at: float | None = None
    away_until: float = 0.0
    asking: asyncio.Task[str | None] | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    freed: asyncio.Event = field(default_factory=asyncio.Event)
    unused: asyncio.Event = field(default_factory=asyncio.Event)

    def believed(self, now: float) -> Lease | None:
        """The lease, unless our own clock says that it is over: then asking is quicker than being refused."""
        return self.lease if now < self.valid_until else None

    def turn_is_over(self, now: float, turn_seconds: float) -> bool:
        return self.wanted_at is not None and (self.users == 0 or now - self.wanted_at >= turn_seconds)

    def forget(self) -> None:
        self.lease, self.wanted_at = None, None

    def answered(self, asking: asyncio.Task[str | None]) -> None:
        """The next one asks anew. A failure was told to whoever waited; if nobody did, nobody misses it."""
        self.asking = None
        if not asking.cancelled():
            asking.exception()


class Tenures:
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
        self._tenures: dict[Signer, Tenure] = {}
        self._watched: set[Signer] = set()
        self._known: set[Signer] = set()
        self._listener: Listener | None = None
        self._left = False
        self.on_wanted: Callable[[], None] = lambda: None

    def listen(self, listener: Listener) -> None:
        self._listener = listener

    def held(self) -> Iterator[Tenure]:
        return (tenure for tenure in tuple(self._tenures.values()) if tenure.lease is not None)

    @asynccontextmanager
    async def using(self, signer: Signer, *, patient: bool = True) -> AsyncGenerator[Lease]:
        """Inside the block this node holds the signer, as far as it knows."""
        tenure = self._tenure(signer)
        lease = await self._enter(tenure, patient=patient)
        try:
            yield lease
        except Refusal as refusal:
            self._refused(tenure, lease, refusal)
            raise
        finally:
            tenure.users -= 1
            tenure.used_at = time.monotonic()
            if tenure.users == 0:
                tenure.unused.set()
                if tenure.wanted_at is not None:
                    self.on_wanted()

    async def _enter(self, tenure: Tenure, *, patient: bool) -> Lease:
        lease = tenure.believed(time.monotonic())
        if lease is not None and tenure.wanted_at is None and not tenure.lock.locked():
            # The common case: held, and nobody else wants it. Nothing to wait for, so no lock and no timer.
            tenure.users += 1
            tenure.unused.clear()
            return lease
        seen: list[str | None] = [None]
        try:
            async with asyncio.timeout(self._settings.wait_seconds), tenure.lock:
                now = time.monotonic()
                if tenure.turn_is_over(now, self._settings.turn_seconds):
                    await self._let_go(tenure)
                lease = tenure.believed(time.monotonic()) or await self._try(tenure, seen)
                if lease is None and not patient:
                    raise SignerElsewhere(tenure.signer, seen[0], 1.0)
                lease = lease or await self._take(tenure, seen)
                if self._left:
                    # Nobody would renew it here, nor hear that another wants it.
                    await self._let_go(tenure)
                    raise SignerElsewhere(tenure.signer, None, 1.0)
                tenure.users += 1
                tenure.unused.clear()
                return lease
        except TimeoutError:
            raise SignerElsewhere(tenure.signer, seen[0], 1.0) from None

    async def _take(self, tenure: Tenure, seen: list[str | None]) -> Lease:
        """Acquire, however long it takes; the caller bounds it."""
        asked = False
        while True:
            await asyncio.sleep(max(0.0, tenure.away_until - time.monotonic()))
            tenure.freed.clear()
            lease = await self._try(tenure, seen)
            if lease is not None:
                return lease
            if not asked:
                self._watch(tenure)
                await self._fp.run(allocation.want(tenure.signer))
                asked = True
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await tenure.freed.wait()
            asked = False

    async def _try(self, tenure: Tenure, seen: list[str | None]) -> Lease | None:
        """Ask for the lease. Who gives up waiting leaves the question behind: its answer may be a lease,
        which somebody has to renew and to hand over; and who comes next waits for the same answer."""
        if tenure.asking is None:
            tenure.asking = asyncio.create_task(self._ask(tenure), name=f"ask for {tenure.signer.resource}")
            tenure.asking.add_done_callback(tenure.answered)
        elsewhere = await asyncio.shield(tenure.asking)
        seen[0] = elsewhere or seen[0]
        return None if elsewhere else tenure.lease

    async def _ask(self, tenure: Tenure) -> str | None:
        """Who has it, if another does."""
        asked_at = time.monotonic()
        answer = await self._fp.run(
            allocation.acquire(
                tenure.signer,
                self.owner,
                self._settings.lease_seconds,
                first_nonce=await self._begin(tenure.signer),
            )
        )
        mine = answer.owner == self.owner
        self._metrics.lease_acquire.labels(
            result=answer.outcome if mine else "not_owner", mode=self._settings.mode
        ).inc()
        if not mine:
            return answer.owner
        tenure.lease = answer.lease(tenure.signer)
        tenure.valid_until = asked_at + self._settings.lease_seconds
        tenure.wanted_at = None
        tenure.used_at = asked_at
        self._watch(tenure)
        self._metrics.held_signers.set(sum(1 for _ in self.held()))
        if answer.outcome == "acquired":
            _log.info(
                "signer_acquired",
                signer=tenure.signer.resource,
                owner_node=self.owner,
                fencing_token=answer.token,
                expires_at=answer.expires_at.isoformat(),
                released=answer.released,
                adopted=answer.adopted,
            )
        return None

    async def _begin(self, signer: Signer) -> int:
        """Where a signer's sequence begins: where its chain is, if we know the chain."""
        if self._first_nonce is None or signer in self._known:
            return 0
        first = await self._first_nonce(signer)
        self._known.add(signer)
        return first

    async def _let_go(self, tenure: Tenure) -> None:
        """Hand over under the tenure's lock: nobody enters meanwhile, and who is inside leaves first."""
        while tenure.users > 0:
            tenure.unused.clear()
            await tenure.unused.wait()
        lease, wanted = tenure.lease, tenure.wanted_at is not None
        tenure.forget()
        if lease is None:
            return
        with suppress(Refusal):  # Then it is another's already.
            await self._fp.run(allocation.hand_over(tenure.signer, lease))
            _log.debug("signer_handed_over", signer=tenure.signer.resource, fencing_token=lease.token)
        if wanted:
            tenure.away_until = time.monotonic() + COURTESY_SECONDS
        self._metrics.held_signers.set(sum(1 for _ in self.held()))

    async def renew(self) -> None:
        """Renew every lease that is past a third of its time, with one statement."""
        asked_at = time.monotonic()
        due = [
            (tenure, tenure.lease)
            for tenure in self.held()
            if tenure.lease is not None and tenure.valid_until - asked_at < self._settings.renew_seconds * 2
        ]
        if not due:
            return
        answers = await self._fp.run(
            kernel_lease.renew_many([lease for _, lease in due], self.owner, self._settings.lease_seconds)
        )
        kept = {(answer.resource, answer.token) for answer in answers if answer.refusal is None}
        for tenure, lease in due:
            renewed = (lease.resource, lease.token) in kept
            self._metrics.lease_renew.labels(
                result="renewed" if renewed else "lost", mode=self._settings.mode
            ).inc()
            if tenure.lease is not lease:
                continue
            if renewed:
                tenure.valid_until = asked_at + self._settings.lease_seconds
            else:
                _log.warning("signer_lost", signer=tenure.signer.resource, fencing_token=lease.token)
                tenure.forget()

    async def tidy(self, leaves: Callable[[Tenure, float], bool]) -> None:
        """Hand over what is wanted and not in use, and whatever else `leaves` says."""
        for tenure in tuple(self.held()):
            now = time.monotonic()
            if tenure.users or tenure.lock.locked():
                continue
            if tenure.wanted_at is not None or leaves(tenure, now):
                async with tenure.lock:
                    if tenure.users == 0:
                        await self._let_go(tenure)

    async def leave(self) -> None:
        """Hand everything over: the node goes, and takes nothing any more."""
        self._left = True
        asking = [tenure.asking for tenure in self._tenures.values() if tenure.asking is not None]
        if asking:
            await asyncio.wait(asking, timeout=self._settings.wait_seconds)
        for tenure in tuple(self.held()):
            async with tenure.lock:
                with suppress(TimeoutError, FencepostError):
                    async with asyncio.timeout(self._settings.wait_seconds):
                        await self._let_go(tenure)

    def _refused(self, tenure: Tenure, lease: Lease, refusal: Refusal) -> None:
        if refusal.noun != "lease":
            return
        op = str(refusal.attempted.get("op", "renew"))
        self._metrics.fence_reject.labels(op=op).inc()
        _log.warning(
            "fenced_reject",
            signer=tenure.signer.resource,
            op=op,
            provided_token=lease.token,
            seen_token=refusal.seen.get("token"),
            seen_owner=refusal.seen.get("owner"),
            node=self.owner,
        )
        if tenure.lease is lease:
            tenure.forget()

    def _tenure(self, signer: Signer) -> Tenure:
        tenure = self._tenures.get(signer)
        if tenure is None:
            tenure = self._tenures[signer] = Tenure(signer)
        return tenure

    def _watch(self, tenure: Tenure) -> None:
        """Hear when it is wanted, and when it is free; once for each signer."""
        if self._listener is None or tenure.signer in self._watched:
            return
        self._watched.add(tenure.signer)

        def wanted() -> None:
            if tenure.lease is not None and tenure.wanted_at is None:
                tenure.wanted_at = time.monotonic()
                self.on_wanted()

        # Whoever wants it says so at every poll. In doubt nobody does: else a connection that is lost would
        # have every signer handed over.
        self._listener.on(f"nonces.wanted:{tenure.signer.resource}", wanted, in_doubt=False)
        self._listener.on(f"nonces.free:{tenure.signer.resource}", tenure.freed.set)
