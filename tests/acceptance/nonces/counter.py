"""What a process of the chain's tests runs: a node with a sender, until it is killed."""

import asyncio
from typing import Any

from fencepost import Fencepost
from fencepost_nonces._http_service import first_nonce_of
from fencepost_nonces._metrics import NonceMetrics
from fencepost_nonces._settings import NoncesSettings
from fencepost_nonces.node import Node
from fencepost_nonces.sending._inquiry import Inquiry
from fencepost_nonces.sending._keys import Keystore
from fencepost_nonces.sending._nonce_use import Block, Finding, Use
from fencepost_nonces.sending._rpc import Chain, Chains
from fencepost_nonces.sending._sender import TransactionSender
from fencepost_nonces.sending._transaction_calls import Open
from tests.acceptance.nonces.exchange import new_account


async def run_counter(url: str, settings: dict[str, Any], accounts: int, planted: bool = False) -> None:
    """`planted`: with the rule that a count and a missing receipt prove a stranger."""
    chosen = NoncesSettings.model_validate(settings)
    chains = Chains(dict(chosen.endpoints))
    keys = Keystore({account.address.lower(): account for account in map(new_account, range(accounts))})
    if planted:
        Inquiry.who_used = _used_by_a_stranger_when_no_receipt_is_known  # type: ignore[method-assign]
    async with Fencepost(url) as fp:
        metrics = NonceMetrics.on(fp.metrics)
        node = Node(fp, chosen, metrics, first_nonce=first_nonce_of(fp, chains))
        await node.start()
        TransactionSender(fp, node, chains, keys, metrics).start()
        print("serving", flush=True)  # noqa: T201 - The test reads it.
        await asyncio.Event().wait()


async def _used_by_a_stranger_when_no_receipt_is_known(self: Inquiry, tx: Open) -> Finding:
    """As it once was: the chain has counted past the nonce, and knows none of its versions."""
    chain: Chain = self._chain  # pyright: ignore[reportPrivateUsage]
    for tx_hash in tx.hashes:
        if await chain.receipt(tx_hash) is not None:
            return Finding(Use.ASK_AGAIN, "there is a receipt")
    nobody = "0x" + "00" * 32
    return Finding(Use.STRANGER, "counted, and no receipt", nobody, Block(0, nobody, nobody))
