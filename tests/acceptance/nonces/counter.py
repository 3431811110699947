"""What a process of the chain's tests runs: a node with a sender, until it is killed."""

import asyncio
from typing import Any

from fencepost import Fencepost
from fencepost.nonces.metrics import NonceMetrics
from fencepost.nonces.node import Node
from fencepost.nonces.part import first_nonce_of
from fencepost.nonces.sending.keys import Keystore
from fencepost.nonces.sending.rpc import Chains
from fencepost.nonces.sending.sender import Sender
from fencepost.nonces.settings import NoncesSettings
from tests.acceptance.nonces.exchange import new_account


async def run_counter(url: str, settings: dict[str, Any], accounts: int) -> None:
    chosen = NoncesSettings.model_validate(settings)
    chains = Chains(dict(chosen.endpoints))
    keys = Keystore({account.address.lower(): account for account in map(new_account, range(accounts))})
    async with Fencepost(url) as fp:
        metrics = NonceMetrics.on(fp.metrics)
        node = Node(fp, chosen, metrics, first_nonce=first_nonce_of(fp, chains))
        await node.start()
        Sender(fp, node, chains, keys, metrics).start()
        print("serving", flush=True)  # noqa: T201 - The test reads it.
        await asyncio.Event().wait()
