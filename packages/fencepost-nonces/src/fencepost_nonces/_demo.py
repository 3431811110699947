"""Signers: on a chain of the demo's own, if anvil is installed, and by name without a chain."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from fencepost.cli.demo import DemoContext, DemoPart
from fencepost.settings import Settings
from fencepost_nonces._http_service import first_nonce_of
from fencepost_nonces._metrics import NonceMetrics
from fencepost_nonces._settings import NoncesSettings
from fencepost_nonces.node import Node
from fencepost_nonces.sending._acceptance import Acceptance
from fencepost_nonces.sending._ethereum import accounts
from fencepost_nonces.sending._keys import Keystore
from fencepost_nonces.sending._rpc import Chains
from fencepost_nonces.sending._sender import TransactionSender
from fencepost_nonces.sending._transaction_calls import TransactionRequest
from fencepost_nonces.signer import Signer
from fencepost_nonces.testing.anvil import found_anvil, recipient, running_anvil

CHAIN_ID = 31_415_926
"""The mark of the demo: addresses cannot carry another."""
NAMED = 2
SIGNERS = 3
GAS = 21_000
RECYCLED = 0.2
_SETTINGS = NoncesSettings(confirmations=1, stuck_seconds=5, poll_seconds=0.5)


async def _run(context: DemoContext) -> None:
    home, metrics = Settings.load().data_directory / "npm", NonceMetrics.on(context.fp.metrics)
    if await asyncio.to_thread(found_anvil, home) is None:
        context.say("There is no chain: anvil is not on the PATH. Signers reserve nonces without one.")
        await _reserve_names(context, metrics)
    else:
        async with asyncio.TaskGroup() as group:
            group.create_task(_reserve_names(context, metrics))
            group.create_task(_send_transactions(context, metrics, home))


async def _reserve_names(context: DemoContext, metrics: NonceMetrics) -> None:
    """Callers that sign for themselves: most use their nonce, some give it back."""
    node = Node(context.fp, _SETTINGS, metrics, member=False)
    await node.start()
    try:
        number = 0
        while True:
            number += 1
            name = f"demo-{context.run}-{context.chance.randrange(NAMED)}"
            signer = Signer.of(CHAIN_ID, name)
            [held] = await node.reserve(signer, [f"demo-{context.run}-{number}"])
            await context.pause(0.2, 1.0)
            if context.chance.random() < RECYCLED:
                await node.mark_recyclable(signer, held.nonce, held.hold)
            else:
                await node.mark_used(signer, held.nonce, held.hold)
    finally:
        await node.stop()


async def _send_transactions(context: DemoContext, metrics: NonceMetrics, home: Path) -> None:
    # Keys of this run alone: a new chain has counted nothing, and the rows of an earlier run have.
    keys = {account.address.lower(): account for account in (accounts().create() for _ in range(SIGNERS))}
    async with AsyncExitStack() as closing:
        options = ("--block-time", "1", "--chain-id", str(CHAIN_ID))
        anvil = closing.enter_context(running_anvil(*options, home=home))
        for address in keys:
            await asyncio.to_thread(anvil.fund, address)
        fp, chains, keystore = context.fp, Chains({CHAIN_ID: (anvil.url,)}), Keystore(keys)
        closing.push_async_callback(chains.close)
        node = Node(fp, _SETTINGS, metrics, first_nonce=first_nonce_of(fp, chains), member=False)
        await node.start()
        closing.push_async_callback(node.stop)
        sender = TransactionSender(fp, node, chains, keystore, metrics)
        sender.start()
        closing.push_async_callback(sender.stop)
        acceptance = Acceptance(fp, chains, keystore, sender, metrics=metrics, settings=_SETTINGS, hooks=())
        context.say(f"A chain of its own (anvil, id {CHAIN_ID}) mines a block each second.")
        number = 0
        while True:
            number += 1
            signer = Signer.of(CHAIN_ID, context.chance.choice(sorted(keys)))
            payment = TransactionRequest(
                recipient(context.chance.randrange(10)), context.chance.randrange(1, 10**6), b"", GAS
            )
            await acceptance.submit(signer, f"demo-{context.run}-{number}", payment)
            await context.pause(0.3, 1.5)


PART = DemoPart(
    name="nonces",
    about="signers that reserve nonces, and send transactions to a chain if anvil is installed",
    path="/console/nonces",
    run=_run,
    counts="""
        select 'signers' as name, count(*) from fencepost.nonce_signers where chain_id = 31415926
        union all select 'nonces', count(*) from fencepost.signer_nonce_allocation where chain_id = 31415926
        union all select 'transactions', count(*) from fencepost.managed_transaction where chain_id = 31415926
        union all select 'confirmed', count(*) from fencepost.managed_transaction
          where chain_id = 31415926 and state = 'CONFIRMED'""",
    others="select exists (select 1 from fencepost.nonce_signers where chain_id <> 31415926)",
    clean=Path(__file__).parent / "demo.sql",
)
