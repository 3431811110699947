"""Advances the transactions of the signers that this node holds or may take. Keeps no state between turns.

In queue mode these are the signers whose home is here. If no node has held a signer for the length of a lease
although it has transactions to advance, its home cannot serve it: the key or the chain is missing there. Then
any node that can does it.
"""

from __future__ import annotations

import asyncio

from fencepost.client import Fencepost
from fencepost.errors import Refusal
from fencepost.logs import get_logger
from fencepost.loop import Loop
from fencepost_nonces._errors import ChainUnavailable, ContradictingAnswers, SignerElsewhere, SigningFailed
from fencepost_nonces._metrics import NonceMetrics
from fencepost_nonces.node import Node
from fencepost_nonces.sending import _transaction_calls as tx_calls
from fencepost_nonces.sending._keys import Keys
from fencepost_nonces.sending._rpc import Chains, RpcError
from fencepost_nonces.sending._signer_pipeline import SignerPipeline
from fencepost_nonces.signer import Signer

_log = get_logger(__name__)
AT_ONCE = 8


class TransactionSender:
    """One for a node. `wake` it after a submission; otherwise it polls every NONCES_POLL_SEC."""

    def __init__(self, fp: Fencepost, node: Node, chains: Chains, keys: Keys, metrics: NonceMetrics) -> None:
        self._fp = fp
        self._node = node
        self._chains = chains
        self._keys = keys
        self._metrics = metrics
        self._settings = node.settings
        self._loop = Loop("transactions", self.tick, metrics.loop_errors)
        self._slots = asyncio.Semaphore(AT_ONCE)

    def start(self) -> None:
        self._loop.start()

    def wake(self) -> None:
        self._loop.wake()

    async def stop(self) -> None:
        await self._loop.stop()

    async def tick(self) -> float:
        ours = await self._keys.addresses()
        mine = [
            waiting.signer
            for waiting in await self._fp.run(tx_calls.signers())
            if waiting.signer.name in ours
            and self._chains.get(waiting.signer.chain_id) is not None
            and (self._is_home(waiting.signer) or waiting.free_seconds >= self._settings.lease_seconds)
        ]
        # All of them finish: a turn must not overlap with tasks of the last one.
        ended = await asyncio.gather(*(self._guarded(signer) for signer in mine), return_exceptions=True)
        for error in ended:
            if error is not None:
                raise error
        return self._settings.poll_seconds

    async def _guarded(self, signer: Signer) -> None:
        """An error of one signer does not affect the others."""
        chain = self._chains.get(signer.chain_id)
        assert chain is not None
        away = not self._is_home(signer)
        async with self._slots:
            try:
                await SignerPipeline(
                    self._fp, self._node, chain, self._keys, self._metrics, signer, away=away
                ).advance()
            except SignerElsewhere:
                return
            except ContradictingAnswers as error:
                # A lagging endpoint is not an error of this node: the next turn asks again.
                _log.warning("chain_contradicts_itself", signer=signer.resource, error=str(error))
                self._metrics.contradictions.inc()
            except (ChainUnavailable, SigningFailed, RpcError, Refusal) as error:
                _log.warning("transactions_wait", signer=signer.resource, error=str(error))
                self._metrics.loop_errors.labels(loop="transactions").inc()

    def _is_home(self, signer: Signer) -> bool:
        return self._node.home(signer) is None
