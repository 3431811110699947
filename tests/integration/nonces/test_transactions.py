"""Transactions over HTTP and by command, without a chain: what is taken in, and what is refused."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from fencepost.cli._app import run
from fencepost.cli.exit_codes import ExitCode
from fencepost.embedded import Database
from fencepost_nonces._settings import NoncesSettings
from fencepost_nonces.sending._ethereum import accounts
from tests.integration.nonces.test_http import served

KEY = bytes.fromhex("22" * 32)
# Of that key. Not asked for here: to load who tells takes every worker that collects this a second.
ADDRESS = "0x1563915e194D8CfBA1943570603F7606A3115508"
PASSWORD = "correct horse battery"
TO = "0x" + "ab" * 20
# Nobody listens there: what is taken in stays in the queue.
CHAINS = "31337=http://127.0.0.1:9"


@pytest.fixture
def keystore(tmp_path: Path) -> Path:
    (tmp_path / "key.json").write_text(
        json.dumps(accounts().encrypt(KEY, PASSWORD, kdf="pbkdf2", iterations=10))
    )
    return tmp_path


@pytest.fixture
def client(database: Database, keystore: Path) -> Iterator[httpx.Client]:
    settings = NoncesSettings(chains=CHAINS, keystore=keystore, keystore_password=PASSWORD)
    with served(database, settings) as client:
        yield client


def body(**more: object) -> dict[str, object]:
    return {"chain_id": 31337, "signer": ADDRESS, "to": TO, "value": "5", "gas": 21_000, **more}


def submit(client: httpx.Client, key: str | None, sent: dict[str, object]) -> httpx.Response:
    return client.post("/transactions", json=sent, headers={} if key is None else {"Idempotency-Key": key})


def test_a_transaction_is_taken_in_once_and_can_be_cancelled(client: httpx.Client) -> None:
    first = submit(client, "pay-7", body())
    again = submit(client, "pay-7", body())

    assert (first.status_code, first.json()["state"]) == (202, "QUEUED")
    assert (again.status_code, again.json()["transaction_id"]) == (200, first.json()["transaction_id"])
    assert submit(client, "pay-7", body(value="6")).json()["code"] == "mismatch"
    number = first.json()["transaction_id"]
    assert [one["transaction_id"] for one in client.get("/transactions").json()] == [number]
    assert client.post(f"/transactions/{number}/cancel").json()["state"] == "CANCELLED"
    assert client.get(f"/transactions/{number}").json()["state"] == "CANCELLED"


BAD: list[tuple[str | None, dict[str, object], str]] = [
    (None, {}, "Idempotency-Key"),
    ("fill:signer:31337:a:0:1", {}, "idempotency_key"),
    ("k", {"chain_id": 1}, "chain_id"),
    ("k", {"signer": TO}, "signer"),
    ("k", {"signer": ADDRESS[:-1] + ("0" if ADDRESS[-1] != "0" else "1")}, "signer"),
    ("k", {"to": "0x12"}, "to"),
    ("k", {"to": None}, "to"),
    ("k", {"value": str(2**256)}, "value"),
    ("k", {"value": "-1"}, "value"),
    ("k", {"value": "1.5"}, "value"),
    ("k", {"value": 5}, "value"),
    ("k", {"gas": 20_999}, "gas"),
    ("k", {"gas": 15_000_001}, "gas"),
    ("k", {"data": "0xabc"}, "data"),
    ("k", {"nonce": 7}, "nonce"),
    ("k", {"webhook": "orders:acme"}, "webhook"),
]


def test_bad_input_is_400_names_the_field_and_reserves_nothing(client: httpx.Client) -> None:
    for key, more, field in BAD:
        answer = submit(client, key, body(**more))
        assert (answer.status_code, answer.json()["field"]) == (400, field), (more, answer.text)
    assert client.get("/transactions").json() == []
    assert client.get("/nonces/signers").json() == []


def test_no_answer_shows_a_key_or_the_password(client: httpx.Client) -> None:
    submit(client, "pay-7", body())
    for path in ("/transactions", "/transactions/1", "/nonces/signers", "/openapi.json"):
        shown = client.get(path).text
        assert KEY.hex() not in shown
        assert PASSWORD not in shown


def test_an_unknown_transaction_is_404(client: httpx.Client) -> None:
    assert client.get("/transactions/999").status_code == 404
    assert client.post("/transactions/999/cancel").status_code == 404


def test_the_command_takes_in_shows_and_cancels(
    database: Database, keystore: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DATABASE_URL", database.url)
    monkeypatch.setenv("NONCES_CHAINS", CHAINS)
    monkeypatch.setenv("NONCES_KEYSTORE", str(keystore))
    monkeypatch.setenv("NONCES_KEYSTORE_PASSWORD", PASSWORD)
    sending = [
        "tx",
        "send",
        "--key",
        "pay-7",
        "--chain",
        "31337",
        "--signer",
        ADDRESS,
        "--to",
        TO,
        "--gas",
        "21000",
        "--value",
        "5",
    ]

    assert run([*sending, "--json"]) == ExitCode.OK
    number = json.loads(capsys.readouterr().out)["transaction_id"]
    assert run(sending) == ExitCode.OK
    assert "(again)" in capsys.readouterr().out
    assert run(["tx", "show", str(number), "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["value"] == "5"
    assert run(["tx", "cancel", str(number)]) == ExitCode.OK
    assert run(["tx", "list", "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out.partition("CANCELLED\n")[2])[0]["state"] == "CANCELLED"
    assert run(["tx", "keys"]) == ExitCode.OK
    assert capsys.readouterr().out.strip() == ADDRESS
    assert run(["tx", "show", "999"]) == ExitCode.NOT_FOUND
    assert run(["tx", "send", "--key", "k", "--chain", "1", "--signer", ADDRESS]) == ExitCode.SETTINGS
    assert run([*sending[:-1], "much"]) == ExitCode.USAGE
