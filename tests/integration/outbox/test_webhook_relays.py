"""A system delivers its channels to their URLs; to ask for a webhook is enough to be told."""

import asyncio
import json
from pathlib import Path

import httpx
import pytest

from fencepost.embedded import Database
from fencepost.embedded._deadline import Deadline
from fencepost.metrics import Metrics
from fencepost.server_addresses import ServerAddresses
from fencepost.settings import Settings
from fencepost_nonces.sending._ethereum import accounts
from fencepost_server._web_service import web_service
from fencepost_server.web._server import WebServer
from tests.integration.outbox.receiver import receiving

KEY = bytes.fromhex("22" * 32)
PASSWORD = "correct horse battery"
TRANSACTION = {
    "chain_id": 31337,
    # Of that key. Not asked for here: to load who tells takes every worker that collects this a second.
    "signer": "0x1563915e194D8CfBA1943570603F7606A3115508",
    "to": "0x" + "ab" * 20,
    "value": "5",
    # Estimated otherwise, which needs a chain that answers.
    "gas": 21_000,
    "webhook": "shop",
}


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A signer, and a chain without a server: what is accepted waits."""
    key_file = accounts().encrypt(KEY, PASSWORD, kdf="pbkdf2", iterations=10)
    (tmp_path / "key.json").write_text(json.dumps(key_file))
    monkeypatch.setenv("NONCES_KEYSTORE", str(tmp_path))
    monkeypatch.setenv("NONCES_KEYSTORE_PASSWORD", PASSWORD)
    monkeypatch.setenv("NONCES_CHAINS", "31337=http://127.0.0.1:9")
    return monkeypatch


def web_server(database: Database) -> WebServer:
    """As `fencepost serve --services nonces --with webhooks` has it."""
    place = ServerAddresses("a test", "", database.admin_url, database.url, database.viewer_url, None)
    server = web_service(Settings(), place, Metrics(), only=["nonces"], roles=["webhooks"])
    server.start()
    return server


async def test_the_end_of_a_transaction_arrives_and_comes_again_under_its_key_when_the_answer_is_lost(
    database: Database, environment: pytest.MonkeyPatch
) -> None:
    async with receiving(0) as receiver:
        environment.setenv("OUTBOX_WEBHOOKS", f"shop={receiver.url}")
        environment.setenv("OUTBOX_WEBHOOK_TOKEN", "sesame")
        environment.setenv("OUTBOX_BACKOFF_BASE_SEC", "0.01")
        server = await asyncio.to_thread(web_server, database)
        try:
            async with httpx.AsyncClient(base_url=server.url, timeout=30) as client:
                taken = await client.post(
                    "/transactions", json=TRANSACTION, headers={"Idempotency-Key": "pay-7"}
                )
                await client.post(f"/transactions/{taken.json()['transaction_id']}/cancel")
                await asyncio.to_thread(Deadline(60, "a repeat").wait, lambda: len(receiver.got) == 2)
        finally:
            await asyncio.to_thread(server.stop)

    assert [body["event"] for _, body in receiver.got] == ["transaction.cancelled"] * 2
    assert len({key for key, _ in receiver.got}) == 1
    assert receiver.authorized == ["Bearer sesame"] * 2
