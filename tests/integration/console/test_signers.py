"""Signers: held nonces that are overdue need attention, and an operator decides after a question."""

from __future__ import annotations

from contextlib import closing

from fencepost_server.console._role import Role
from tests.integration.console.env import YES, ConsoleEnv
from tests.integration.console.populated_system import SUBMIT
from tests.integration.kernel.caller import Caller
from tests.integration.nonces.operator import CHAIN, LONG, SIGNER, NonceOperator

HAND_OVER = "select fencepost.nonce_hand_over(%s, %s, %s, %s)"
AT = f"{CHAIN}/{SIGNER}"


def test_an_overdue_nonce_needs_attention_and_is_settled_after_a_question(env: ConsoleEnv) -> None:
    caller = Caller(env.database.url)
    with closing(caller.connection):
        node = NonceOperator(caller, "nonces@gone#1", ttl=LONG)
        node.acquire()
        first, second = node.reserve("n1", "n2", locked="1 millisecond")
        caller.execute(HAND_OVER, CHAIN, SIGNER, node.owner, node.token)
    with env.visitor(Role.OPERATOR) as client:
        needs = {need["what"]: need for need in client.get("/api/overview").json()["needs"]}
        assert needs["held nonces overdue"]["count"] == 2
        assert needs["held nonces overdue"]["where"] == "/console/nonces#overdue"
        overdue = client.get("/api/nonces").json()["overdue"]
        assert [one["nonce"] for one in overdue] == [first, second]
        form = {"nonce": str(first), "hold": str(overdue[0]["hold"]), "outcome": "released"}
        asked = client.post(f"/console/nonces/{AT}/settle", data=form).text
        assert f"Nonce {first} of {SIGNER} on chain {CHAIN} was released?" in asked
        assert "was reserved by request n1." in asked
        assert len(client.get("/api/nonces").json()["overdue"]) == 2
        assert client.post(f"/console/nonces/{AT}/settle", data={**form, **YES}).status_code == 303
        used = {"nonce": second, "hold": overdue[1]["hold"], "outcome": "used", "tx_hash": "0x" + "12" * 32}
        assert client.post(f"/api/nonces/{AT}/settle", json=used).status_code == 200
        assert client.get("/api/nonces").json()["overdue"] == []
        strip = client.get(f"/api/nonces/{AT}").json()["strip"]
        assert {one["nonce"]: one["status"] for one in strip} == {first: "RELEASED", second: "CONSUMED"}
    with env.visitor(Role.VIEWER) as client:
        assert client.post(f"/api/nonces/{AT}/settle", json=used).status_code == 403


def test_a_recovered_signer_is_resumed_and_its_transactions_are_decided_about(env: ConsoleEnv) -> None:
    caller = Caller(env.database.url)
    with closing(caller.connection):
        node = NonceOperator(caller, "nonces@gone#1", ttl=LONG)
        node.acquire()
        node.reserve("n1")
        caller.execute(HAND_OVER, CHAIN, SIGNER, node.owner, node.token)
        caller.execute(SUBMIT, CHAIN, SIGNER, "t1", "0x" + "cd" * 20)
    with env.database.connect_admin() as connection:
        connection.execute("select fencepost._recover_nonces('anna')")
    with env.visitor(Role.OPERATOR) as client:
        (doubt,) = client.get("/api/nonces").json()["doubts"]
        told = client.post(f"/console/nonces/{AT}/resume", data={"next_nonce": "3"}).text
        assert "It goes on at 3." in told
        assert "2 nonces below that are held" in told
        resumed = client.post(f"/api/nonces/{AT}/resume", json={"next_nonce": 3})
        assert resumed.json()["next_nonce"] == 3
        assert client.get(f"/api/nonces/{AT}").json()["signer"]["recovering_since"] is None
        at = f"transactions/{doubt['transaction_id']}"
        asked = client.post(f"/console/{at}/vouch").text
        assert "If a version of it was mined after all, the value is sent twice." in asked
        assert client.post(f"/console/{at}/vouch", data=YES).status_code == 303
        assert client.get("/api/nonces").json()["doubts"] == []
        assert client.post(f"/api/{at}/cancel").json()["state"] == "CANCELLED"
        assert client.post(f"/api/{at}/vouch").status_code in (409, 422)
        assert client.post("/api/transactions/999/cancel").status_code == 404
