"""Accepts transactions: every error that can be detected is raised before anything is reserved."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from fencepost.client import Fencepost
from fencepost.errors import InvalidInput, NotFound
from fencepost_nonces._metrics import NonceMetrics
from fencepost_nonces.sending import _transaction_calls as tx_calls
from fencepost_nonces.sending._keys import Keys
from fencepost_nonces.sending._rpc import Chains
from fencepost_nonces.sending._sender import TransactionSender
from fencepost_nonces.sending._transaction_calls import Submitted, TransactionRequest
from fencepost_nonces.signer import Signer


class Acceptance:
    """Any node accepts any transaction; the owner of its signer will send it."""

    def __init__(
        self,
        fp: Fencepost,
        chains: Chains,
        keys: Keys,
        sender: TransactionSender,
        *,
        metrics: NonceMetrics,
        gas_max: int,
        hooks: Collection[str],
    ) -> None:
        """Only names in `hooks` are accepted as webhooks: a caller must not write to arbitrary channels."""
        self._fp = fp
        self._chains = chains
        self._keys = keys
        self._sender = sender
        self._metrics = metrics
        self._gas_max = gas_max
        self._hooks = hooks

    async def submit(
        self, signer: Signer, key: str, order: TransactionRequest, *, webhook: str | None = None
    ) -> Submitted:
        """The same key again returns the same transaction; different content under it is a mismatch."""
        order.check(self._gas_max)
        if webhook is not None and webhook not in self._hooks:
            known = ", ".join(sorted(self._hooks)) or "none"
            raise InvalidInput(f"webhook is not a channel of OUTBOX_WEBHOOKS ({known}).", field="webhook")
        if self._chains.get(signer.chain_id) is None:
            known = ", ".join(map(str, self._chains.ids)) or "none"
            raise InvalidInput(
                f"chain_id {signer.chain_id} is not one of NONCES_CHAINS ({known}).", field="chain_id"
            )
        if signer.name not in await self._keys.addresses():
            raise InvalidInput(f"There is no key for the signer {signer.name} here.", field="signer")
        submitted = await self._fp.run(tx_calls.submit(signer, key, order, webhook=webhook))
        self._sender.wake()
        return submitted

    async def show(self, transaction_id: int) -> dict[str, Any]:
        found = await self._fp.run(tx_calls.find(transaction_id))
        if not found:
            raise NotFound(
                f"There is no transaction {transaction_id}.", noun="transaction", subject=str(transaction_id)
            )
        return found[0]

    async def newest(self, limit: int, below: int | None) -> list[dict[str, Any]]:
        return await self._fp.run(tx_calls.newest(limit, below))

    async def cancel(self, transaction_id: int) -> dict[str, Any]:
        """Cancel at once if queued; otherwise its owner replaces it with a no-op, and the chain decides."""
        before = (await self.show(transaction_id))["state"]
        state = await self._fp.run(tx_calls.cancel(transaction_id))
        if state == "CANCELLED" and before != state:
            self._metrics.transactions.labels(state=state).inc()
        self._sender.wake()
        return await self.show(transaction_id)
