"""Accepts transactions: every error that can be detected is raised before anything is reserved."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from fencepost.client import Fencepost
from fencepost.errors import FencepostError, InvalidInput, NotFound
from fencepost_nonces._metrics import NonceMetrics
from fencepost_nonces._settings import NoncesSettings
from fencepost_nonces.sending import _transaction_calls as tx_calls
from fencepost_nonces.sending._gas import estimated
from fencepost_nonces.sending._keys import Keys
from fencepost_nonces.sending._rpc import Chain, Chains
from fencepost_nonces.sending._sender import TransactionSender
from fencepost_nonces.sending._transaction_calls import (
    ALL,
    USUAL,
    FeePolicy,
    Filters,
    Submission,
    Submitted,
    SubmittedItem,
    TransactionRequest,
)
from fencepost_nonces.signer import Signer

# How many transactions of a batch are simulated at the same time.
SIMULATED_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class BatchAnswer:
    """What became of one transaction of a batch: accepted, or an error that stops no other."""

    key: str
    item: SubmittedItem | None
    error: FencepostError | None = None


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
        settings: NoncesSettings,
        hooks: Collection[str],
    ) -> None:
        """Only names in `hooks` are accepted as webhooks: a caller must not write to arbitrary channels."""
        self._fp = fp
        self._chains = chains
        self._keys = keys
        self._sender = sender
        self._metrics = metrics
        self._settings = settings
        self._hooks = hooks

    async def submit(
        self,
        signer: Signer,
        key: str,
        order: TransactionRequest,
        *,
        policy: FeePolicy = USUAL,
        webhook: str | None = None,
    ) -> Submitted:
        """The same key again returns the same transaction; different content under it is a mismatch."""
        asked = Submission(signer, key, order, policy, webhook)
        chain = self._check(asked, await self._keys.addresses())
        gas = await accepted_gas(asked, await _known(self._fp, [asked]), chain, self._settings)
        submitted = await self._fp.run(
            tx_calls.submit(signer, key, order, policy=policy, webhook=webhook, gas=gas)
        )
        self._sender.wake()
        return submitted

    async def submit_many(self, batch: Sequence[Submission]) -> list[BatchAnswer]:
        """Accept a batch in one transaction of the database; an answer for each, in their order.

        What is wrong with one, and a simulation that fails, stops no other. The batch is as idempotent as its
        transactions: each has its key.
        """
        addresses, known = await self._keys.addresses(), await _known(self._fp, batch)
        slots = asyncio.Semaphore(SIMULATED_AT_ONCE)

        async def gas_of(asked: Submission) -> int | FencepostError | None:
            try:
                chain = self._check(asked, addresses)
                async with slots:
                    return await accepted_gas(asked, known, chain, self._settings)
            except FencepostError as error:
                return error

        found = await asyncio.gather(*map(gas_of, batch))
        good = [
            (asked, gas)
            for asked, gas in zip(batch, found, strict=True)
            if not isinstance(gas, FencepostError)
        ]
        taken: list[SubmittedItem] = await self._fp.run(tx_calls.submit_many(good)) if good else []
        items = iter(taken)
        self._sender.wake()
        return [
            BatchAnswer(asked.key, None, gas)
            if isinstance(gas, FencepostError)
            else BatchAnswer(asked.key, next(items))
            for asked, gas in zip(batch, found, strict=True)
        ]

    def _check(self, asked: Submission, addresses: Collection[str]) -> Chain:
        tx_calls.check_key(asked.key)
        asked.order.check(self._settings.gas_max)
        asked.policy.check()
        signer, webhook = asked.signer, asked.webhook
        if webhook is not None and webhook not in self._hooks:
            known = ", ".join(sorted(self._hooks)) or "none"
            raise InvalidInput(f"webhook is not a channel of OUTBOX_WEBHOOKS ({known}).", field="webhook")
        chain = self._chains.get(signer.chain_id)
        if chain is None:
            known = ", ".join(map(str, self._chains.ids)) or "none"
            raise InvalidInput(
                f"chain_id {signer.chain_id} is not one of NONCES_CHAINS ({known}).", field="chain_id"
            )
        if signer.name not in addresses:
            raise InvalidInput(f"There is no key for the signer {signer.name} here.", field="signer")
        return chain

    async def show(self, transaction_id: int) -> dict[str, Any]:
        found = await self._fp.run(tx_calls.find(transaction_id))
        if not found:
            raise NotFound(
                f"There is no transaction {transaction_id}.", noun="transaction", subject=str(transaction_id)
            )
        return found[0]

    async def show_many(self, transaction_ids: Sequence[int]) -> Mapping[int, dict[str, Any]]:
        found = await self._fp.run(tx_calls.find_many(transaction_ids))
        return {facts["transaction_id"]: facts for facts in found}

    async def newest(self, limit: int, below: int | None, filters: Filters = ALL) -> list[dict[str, Any]]:
        return await self._fp.run(tx_calls.newest(limit, below, filters))

    async def cancel(self, transaction_id: int) -> dict[str, Any]:
        """Cancel at once if queued; otherwise its owner replaces it with a no-op, and the chain decides."""
        before = (await self.show(transaction_id))["state"]
        state = await self._fp.run(tx_calls.cancel(transaction_id))
        if state == "CANCELLED" and before != state:
            self._metrics.transactions.labels(state=state).inc()
        self._sender.wake()
        return await self.show(transaction_id)


async def _known(fp: Fencepost, batch: Sequence[Submission]) -> Mapping[str, int]:
    """The gas of those that were accepted already; read only where something depends on it."""
    asked = [one.key for one in batch if one.order.gas is None or one.policy.deadline is not None]
    if not asked:
        return {}
    return await fp.run(tx_calls.gas_of_keys(asked))


async def accepted_gas(
    asked: Submission, known: Mapping[str, int], chain: Chain, settings: NoncesSettings
) -> int | None:
    """The gas to accept it with: as the caller says, else by a simulation. A repeat keeps its first gas, and
    is answered also while the chain is away. Raises InvalidInput when the simulation fails or the deadline
    has passed, and ChainUnavailable when no endpoint answers: then nothing is accepted."""
    if asked.key in known:
        return known[asked.key]
    if asked.policy.deadline is not None and asked.policy.deadline <= datetime.now(UTC):
        raise InvalidInput("deadline has passed already.", field="deadline")
    if asked.order.gas is not None:
        return asked.order.gas
    return await estimated(
        chain,
        asked.signer.name,
        asked.order,
        margin_percent=settings.gas_margin_percent,
        gas_max=settings.gas_max,
    )
