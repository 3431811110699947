"""What an operator decides about a signer: on a node that lives for the one decision, under its own fence."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fencepost.client import Fencepost
from fencepost.metrics import Metrics
from fencepost_nonces import _nonce_calls as nonce_calls
from fencepost_nonces._metrics import NonceMetrics
from fencepost_nonces._nonce_calls import Resumed
from fencepost_nonces._settings import NoncesSettings
from fencepost_nonces._signer_leases import FirstNonce
from fencepost_nonces.node import Node
from fencepost_nonces.sending import _transaction_calls as tx_calls
from fencepost_nonces.signer import Signer


@asynccontextmanager
async def short_lived_node(
    fp: Fencepost, settings: NoncesSettings, *, first_nonce: FirstNonce | None = None
) -> AsyncGenerator[Node]:
    """A node that asks the owner to hand over, and writes under its own fence.

    It does not join as a member: signers would be assigned to it, and no other node could reach it.
    """
    alone = settings.model_copy(update={"mode": "basic", "node_address": None})
    # Its counters are its own: the process may serve nonces already, and a registry has each name once.
    metrics = NonceMetrics.on(Metrics())
    node = Node(fp, alone, metrics, first_nonce=first_nonce, member=False)
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


async def resume(fp: Fencepost, signer: Signer, next_nonce: int) -> Resumed:
    """A recovered signer goes on at `next_nonce`, or where its sequence is if that is higher."""
    async with short_lived_node(fp, NoncesSettings.load()) as node:
        return await node.write(signer, lambda lease: nonce_calls.resume(signer, lease, 0, next_nonce))


async def vouch(fp: Fencepost, signer: Signer, transaction_id: int) -> None:
    """None of its versions was mined: it is sent again."""
    async with short_lived_node(fp, NoncesSettings.load()) as node:
        await node.write(signer, lambda lease: tx_calls.vouch(signer, lease, transaction_id))


async def settle(
    fp: Fencepost, signer: Signer, nonce: int, hold: int, *, is_used: bool, tx_hash: str | None = None
) -> None:
    """A reservation whose caller did not report: the nonce was used, or nothing was signed with it."""
    async with short_lived_node(fp, NoncesSettings.load()) as node:
        if is_used:
            await node.mark_used(signer, nonce, hold, tx_hash)
        else:
            await node.mark_recyclable(signer, nonce, hold)
