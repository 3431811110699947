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
# No server is there: what is accepted stays in the queue.
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


def batch(*items: dict[str, object]) -> dict[str, object]:
    return {"transactions": list(items)}


def test_a_batch_answers_for_each_and_each_is_accepted_once(client: httpx.Client) -> None:
    sent = batch(
        body(idempotency_key="z-1"),
        body(idempotency_key="wrong", to="0x12"),
        body(idempotency_key="fill:x"),
        body(idempotency_key="a-2", value="6", speed="fast", fee_cap="9000000000"),
        body(idempotency_key="z-1", value="7"),
        body(idempotency_key="stranger", chain_id=5),
        body(idempotency_key="away", gas=None),
    )

    first = client.post("/transactions/batch", json=sent)
    again = client.post("/transactions/batch", json=sent)

    assert (first.status_code, again.status_code) == (200, 200)
    answers = first.json()["transactions"]
    assert [one["idempotency_key"] for one in answers] == [
        "z-1", "wrong", "fill:x", "a-2", "z-1", "stranger", "away",
    ]  # fmt: skip
    assert [one.get("error", {}).get("code") for one in answers] == [
        None, "invalid_input", "invalid_input", None, "mismatch", "invalid_input", "unavailable",
    ]  # fmt: skip
    assert [answers[place]["error"]["field"] for place in (1, 2, 5)] == ["to", "idempotency_key", "chain_id"]
    taken = [answers[0]["transaction"], answers[3]["transaction"]]
    assert taken[0]["transaction_id"] < taken[1]["transaction_id"], "the order of the batch"
    assert (taken[1]["speed"], taken[1]["fee_cap"], taken[1]["state"]) == ("fast", "9000000000", "QUEUED")
    repeats = again.json()["transactions"]
    assert [repeats[place]["repeated"] for place in (0, 3)] == [True, True]
    assert [repeats[place]["transaction"]["transaction_id"] for place in (0, 3)] == [
        one["transaction_id"] for one in taken
    ]
    assert len(client.get("/transactions").json()) == 2


def test_five_hundred_are_one_call_and_one_more_is_refused(client: httpx.Client) -> None:
    items = [body(idempotency_key=f"pay-{number}") for number in range(501)]

    assert client.post("/transactions/batch", json=batch(*items)).json()["field"] == "transactions"
    answers = client.post("/transactions/batch", json=batch(*items[:500])).json()["transactions"]

    ids = [one["transaction"]["transaction_id"] for one in answers]
    assert ids == sorted(ids)
    assert len(set(ids)) == 500
    assert client.post("/transactions/batch", json=batch()).status_code == 400


def test_a_list_is_filtered(client: httpx.Client) -> None:
    ids = [submit(client, f"pay-{number}", body()).json()["transaction_id"] for number in range(3)]
    client.post(f"/transactions/{ids[1]}/cancel")
    created = client.get(f"/transactions/{ids[1]}").json()["created_at"]

    def listed(**filters: str | int | list[str]) -> list[int]:
        answer = client.get("/transactions", params=filters)
        assert answer.status_code == 200, answer.text
        return [one["transaction_id"] for one in answer.json()]

    assert listed() == ids[::-1]
    assert listed(state="CANCELLED") == [ids[1]]
    assert listed(state=["CANCELLED", "QUEUED"], limit=2) == [ids[2], ids[1]]
    assert listed(chain_id=31337, signer=ADDRESS, state="QUEUED", below=ids[2]) == [ids[0]]
    assert listed(created_from=created) == [ids[2], ids[1]]
    assert listed(created_until=created) == [ids[0]]
    for wrong, field in (
        ({"signer": ADDRESS}, "chain_id"),
        ({"chain_id": 1}, "signer"),
        ({"state": "GONE"}, "state.0"),
        ({"created_from": "2026-01-01T00:00:00"}, "created_from"),
    ):
        assert client.get("/transactions", params=wrong).json()["field"] == field


def test_the_command_lists_by_state_and_signer(
    client: httpx.Client,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("DATABASE_URL", database.url)
    first, second = (submit(client, key, body()).json()["transaction_id"] for key in ("a", "b"))
    client.post(f"/transactions/{first}/cancel")

    def listed(*options: str) -> list[int]:
        assert run(["tx", "list", "--json", *options]) == ExitCode.OK
        return [one["transaction_id"] for one in json.loads(capsys.readouterr().out)]

    assert listed() == [second, first]
    assert listed("--state", "CANCELLED") == [first]
    assert listed("--chain", "31337", "--signer", ADDRESS, "--state", "QUEUED") == [second]
    assert listed("--from", "2200-01-01") == []
    assert run(["tx", "list", "--from", "soon"]) == ExitCode.USAGE
    assert run(["tx", "list", "--state", "GONE"]) == ExitCode.USAGE
    assert "allowed: QUEUED" in capsys.readouterr().err


def test_without_gas_and_without_a_chain_it_is_503_and_nothing_is_accepted(client: httpx.Client) -> None:
    answer = submit(client, "k", body(gas=None))

    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert answer.headers["Retry-After"]
    assert client.get("/transactions").json() == []
