"""A sender on a real chain, stepped by the test: one turn at a time."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fencepost import Fencepost
from fencepost.embedded import Database
from fencepost_nonces._http_service import first_nonce_of
from fencepost_nonces._maintenance import Maintenance
from fencepost_nonces._metrics import NonceMetrics
from fencepost_nonces._settings import NoncesSettings
from fencepost_nonces.node import Node
from fencepost_nonces.sending._acceptance import Acceptance
from fencepost_nonces.sending._keys import Keys, Keystore
from fencepost_nonces.sending._rpc import Chains
from fencepost_nonces.sending._sender import TransactionSender
from fencepost_nonces.sending._transaction_calls import TransactionRequest
from fencepost_nonces.signer import Signer, checksummed
from fencepost_nonces.testing.anvil import CHAIN_ID, Anvil, new_account, recipient

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount

__all__ = ["SETTINGS", "Exchange", "new_account", "opened", "recipient"]

SETTINGS: dict[str, Any] = {
    "lease_seconds": 15.0,
    "idle_seconds": 300.0,
    "confirmations": 2,
    "stuck_seconds": 86_000.0,
    # Long enough for a machine that stands still.
    "wait_seconds": 60.0,
}


@dataclass
class Exchange:
    """One node with its sender; the chain mines when the test says so."""

    fp: Fencepost
    node: Node
    sender: TransactionSender
    maintenance: Maintenance
    acceptance: Acceptance
    anvil: Anvil
    signer: Signer
    account: "LocalAccount"
    sent: int = field(default=0)

    async def pay(self, key: str, to: str, value: int = 1, **more: Any) -> int:
        order = TransactionRequest(to, value, more.pop("data", b""), more.pop("gas", 21_000))
        return (await self.acceptance.submit(self.signer, key, order, **more)).transaction_id

    async def turn(self, times: int = 1) -> None:
        for _ in range(times):
            await self.sender.tick()

    async def mine_and_turn(self, times: int = 1) -> None:
        for _ in range(times):
            self.anvil.mine()
            await self.turn()

    async def mine_until_confirmed(self, transaction_id: int) -> None:
        """Three blocks are enough; four when the first was made before the transaction was in its pool."""
        await self.mine_and_turn(3)
        if (await self.state(transaction_id))[0] == "MINED":
            await self.mine_and_turn()

    async def sample(self, name: str) -> float | None:
        """A figure of the metrics, after a look at the database."""
        await self.maintenance.measure()
        return self.fp.metrics.registry.get_sample_value(f"fencepost_nonces_{name}")

    def sign_elsewhere(self, nonce: int, to: str, value: int) -> str:
        """A wallet with the same key sends a transaction of its own, in the place of ours; its hash."""
        fields: dict[str, Any] = {
            "type": 2,
            "chainId": CHAIN_ID,
            "nonce": nonce,
            "gas": 21_000,
            "maxFeePerGas": 10**11,
            "maxPriorityFeePerGas": 10**10,
            "to": checksummed(to),
            "value": value,
            "data": "0x",
        }
        raw = bytes(self.account.sign_transaction(fields).raw_transaction)
        self.anvil.rpc("anvil_dropAllTransactions")
        return str(self.anvil.rpc("eth_sendRawTransaction", "0x" + raw.hex()))

    async def state(self, transaction_id: int) -> tuple[str, str | None]:
        facts = await self.acceptance.show(transaction_id)
        return facts["state"], facts["nonce_status"]


@asynccontextmanager
async def opened(
    database: Database,
    anvil: Anvil,
    *,
    account: "LocalAccount | None" = None,
    keys: Keys | None = None,
    **settings: Any,
) -> AsyncGenerator[Exchange]:
    account = account or new_account(0)
    chosen = NoncesSettings.model_validate(
        {**SETTINGS, "chains": f"{CHAIN_ID}={settings.pop('urls', anvil.url)}", **settings}
    )
    anvil.fund(account.address)
    chains = Chains(dict(chosen.endpoints))
    async with Fencepost(database.url) as fp:
        metrics = NonceMetrics.on(fp.metrics)
        node = Node(fp, chosen, metrics, first_nonce=first_nonce_of(fp, chains))
        keys = keys or Keystore({account.address.lower(): account})
        sender = TransactionSender(fp, node, chains, keys, metrics)
        acceptance = Acceptance(
            fp, chains, keys, sender, metrics=metrics, settings=chosen, hooks=("webhook",)
        )
        await node.start()
        try:
            signer = Signer.of(CHAIN_ID, account.address)
            yield Exchange(
                fp, node, sender, Maintenance(fp, node, chains, metrics), acceptance, anvil, signer, account
            )
        finally:
            await node.stop()
            await chains.close()
