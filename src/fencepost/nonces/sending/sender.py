"""Moves the transactions of the signers that this node holds. Remembers nothing between two turns."""

from __future__ import annotations

import asyncio

from fencepost.client import Fencepost
from fencepost.errors import Refusal
from fencepost.logs import get_logger
from fencepost.loop import Loop
from fencepost.nonces.errors import ChainUnavailable, SignerElsewhere, SigningFailed
from fencepost.nonces.metrics import NonceMetrics
from fencepost.nonces.node import Node
from fencepost.nonces.sending import transaction as tx_calls
from fencepost.nonces.sending.keys import Keys
from fencepost.nonces.sending.line import Line
from fencepost.nonces.sending.rpc import Chains, RpcError
from fencepost.nonces.signer import Signer

_log = get_logger(__name__)
AT_ONCE = 8


class Sender:
    """One for a node. `wake` after a submission; otherwise it looks every NONCES_POLL_SEC."""

    def __init__(self, fp: Fencepost, node: Node, chains: Chains, keys: Keys, metrics: NonceMetrics) -> None:
        self._fp = fp
        self._node = node
        self._chains = chains
        self._keys = keys
        self._metrics = metrics
        self._settings = node.settings
        self._loop = Loop("transactions", self.tick, metrics.loop_errors)
        self._turns = asyncio.Semaphore(AT_ONCE)

    def start(self) -> None:
        self._loop.start()

    def wake(self) -> None:
        self._loop.wake()

    async def stop(self) -> None:
        await self._loop.stop()

    async def tick(self) -> float:
        ours = await self._keys.addresses()
        mine = [
            signer
            for signer in await self._fp.run(tx_calls.signers())
            if signer.name in ours and self._chains.get(signer.chain_id) is not None
        ]
        # All of them come to their end: a turn must not meet what is left of the last one.
        ended = await asyncio.gather(*(self._guarded(signer) for signer in mine), return_exceptions=True)
        waits = [_unharmed(one) for one in ended]
        self._metrics.stuck_seconds.set(max(waits, default=0.0))
        return self._settings.poll_seconds

    async def _guarded(self, signer: Signer) -> float:
        """One signer's trouble is not another's. Answers the age of its oldest that is sent and not mined."""
        chain = self._chains.get(signer.chain_id)
        assert chain is not None
        async with self._turns:
            try:
                return await Line(self._fp, self._node, chain, self._keys, self._metrics, signer).advance()
            except SignerElsewhere:
                return 0.0
            except (ChainUnavailable, SigningFailed, RpcError, Refusal) as error:
                _log.warning("transactions_wait", signer=signer.resource, error=str(error))
                self._metrics.loop_errors.labels(loop="transactions").inc()
                return 0.0


def _unharmed(ended: float | BaseException) -> float:
    if isinstance(ended, BaseException):
        raise ended
    return ended
