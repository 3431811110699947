"""Background work of a node: asks the chain about overdue nonces, measures, and deletes old data."""

from __future__ import annotations

import itertools
import time

from fencepost.client import Fencepost
from fencepost.logs import get_logger
from fencepost.loop import Loop
from fencepost.retention import BATCH, until_short
from fencepost_nonces import _nonce_calls as nonce_calls
from fencepost_nonces import _queries as queries
from fencepost_nonces._errors import ChainUnavailable, ContradictingAnswers, SignerElsewhere
from fencepost_nonces._metrics import NonceMetrics
from fencepost_nonces.node import Node
from fencepost_nonces.sending._rpc import Chain, Chains, RpcError
from fencepost_nonces.signer import Signer

_log = get_logger(__name__)
TICK_SECONDS = 10.0
DAY_SECONDS = 86_400.0
# How often a chain is asked about signers whose callers have not reported, and about how many at a time.
ASK_SECONDS = 30.0
ASKED_AT_ONCE = 20
# How often balances are read, and of how many signers: each is a series of the metrics.
BALANCE_SECONDS = 60.0
BALANCES_MAX = 100
ACCOUNTS_MAX = 10_000
WEI = 10**18


class Maintenance:
    """One for a node. The next nonce depends on none of it, so all of it may be late."""

    def __init__(self, fp: Fencepost, node: Node, chains: Chains, metrics: NonceMetrics) -> None:
        self._fp = fp
        self._node = node
        self._chains = chains
        self._metrics = metrics
        self._asked_at = float("-inf")
        self._balances_at = float("-inf")
        self._loop = Loop("nonces_maintenance", self.tick, metrics.loop_errors)

    def start(self) -> None:
        self._loop.start()

    async def stop(self) -> None:
        await self._loop.stop()

    async def tick(self) -> float:
        await self.measure()
        now = time.monotonic()
        if now >= self._asked_at + ASK_SECONDS:
            self._asked_at = now
            await self.ask_the_chains()
        if now >= self._balances_at + BALANCE_SECONDS:
            self._balances_at = now
            await self.read_balances()
        keep_seconds = self._node.settings.keep_days * DAY_SECONDS
        done = await until_short(self._fp, nonce_calls.prune(keep_seconds, BATCH))
        return TICK_SECONDS if done else 0.0

    async def measure(self) -> None:
        """Read from the database, for all signers: includes those that no node holds, and stuck ones."""
        seen, metrics = await self._fp.run(queries.measures()), self._metrics
        metrics.gaps.set(seen.gaps)
        metrics.jamming_gaps.set(seen.jamming)
        metrics.overdue.set(seen.overdue)
        metrics.recovering.set(seen.recovering)
        metrics.in_doubt.set(seen.in_doubt)
        metrics.unproved.set(seen.unproved)
        metrics.stuck_seconds.set(seen.stuck_seconds)
        metrics.waiting_seconds.set(seen.waiting_seconds)

    async def ask_the_chains(self) -> None:
        """For callers that sign themselves and have not reported: the chain's final count proves use."""
        silent = await self._fp.run(queries.unanswered(self._chains.ids, ASKED_AT_ONCE))
        silent.sort()
        for chain_id, ones in itertools.groupby(silent, key=lambda one: one[0].chain_id):
            chain = self._chains.get(chain_id)
            assert chain is not None
            try:
                for signer, nonce in ones:
                    await self._ask(chain, signer, nonce)
            except ContradictingAnswers as error:
                _log.warning("chain_contradicts_itself", chain_id=chain_id, error=str(error))
                self._metrics.contradictions.inc()
            except (ChainUnavailable, RpcError) as error:
                _log.warning("chain_not_asked", chain_id=chain_id, error=str(error))
                self._metrics.loop_errors.labels(loop="nonces_maintenance").inc()

    async def read_balances(self) -> None:
        """Each at the newest block of its chain. One that cannot be read keeps its last value."""
        found = await self._fp.run(queries.accounts(self._chains.ids, ACCOUNTS_MAX))
        self._metrics.unwatched_balances.set(max(0, len(found) - BALANCES_MAX))
        for chain_id, least in self._node.settings.least_balances.items():
            self._metrics.balance_min.labels(chain=str(chain_id)).set(least)
        for chain_id, ones in itertools.groupby(found[:BALANCES_MAX], key=lambda one: one.chain_id):
            chain = self._chains.get(chain_id)
            assert chain is not None
            try:
                for one in ones:
                    wei = await chain.balance(one.name)
                    self._metrics.balance.labels(chain=str(chain_id), signer=one.name).set(wei / WEI)
            except (ChainUnavailable, RpcError) as error:
                _log.warning("balances_not_read", chain_id=chain_id, error=str(error))
                self._metrics.loop_errors.labels(loop="nonces_maintenance").inc()

    async def _ask(self, chain: Chain, signer: Signer, nonce: int) -> None:
        """Nothing is written, and no lease is taken, before the chain proves something."""
        counts = await chain.counts(signer.name, self._node.settings.confirmations)
        if counts.final <= nonce:
            return
        try:
            settled = await self._node.write(
                signer,
                lambda lease: nonce_calls.floor(signer, lease, counts.final, counts.latest),
                patient=False,
            )
        except SignerElsewhere:
            return  # The node that holds the signer asks the chain itself.
        _log.info(
            "chain_has_counted", signer=signer.resource, counted=counts.final, consumed=settled.consumed
        )
