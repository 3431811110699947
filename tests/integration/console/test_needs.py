"""What needs a person stands on the overview, and each link leads to where it is decided."""

from __future__ import annotations

from urllib.parse import quote

from fencepost_server.console._role import Role
from tests.integration.console.env import ConsoleEnv
from tests.integration.console.populated_system import PopulatedSystem
from tests.integration.console.watchers import Watchers
from tests.integration.nonces.operator import SIGNER


def test_everything_that_waits_for_a_person_is_told_with_a_way_to_it(env: ConsoleEnv) -> None:
    with env.program(Role.VIEWER) as client:
        assert client.get("/api/overview").json()["needs"] == []
        city = PopulatedSystem(env.database)
        env.context.live_snapshot.forget()
        told = {one["what"]: one for one in client.get("/api/overview").json()["needs"]}
        pages = {what: client.get(one["where"]).text for what, one in told.items()}

    shown = {
        "dead in mail": (3, "ValueError"),
        "parked in mail": (1, f"/console/outbox/{city.parked}"),
        "parked in orders:acme": (1, f"/console/orders/{city.orders['parked']}"),
        "unknown in orders:acme": (1, f"/console/orders/{city.orders['unknown']}"),
        f"failing tasks of the flow {city.flow}": (1, "ConnectionError: the sink is away"),
        f"dead letters of the flow {city.flow}": (1, "ValueError: no number"),
        "signers waiting for recovery": (1, f"/console/nonces/1/{quote(SIGNER)}"),
        "transactions in doubt": (1, "In doubt"),
        "held nonces overdue": (2, "overdue since"),
        "waiting in pages-mail: no worker serves it": (2, "pages-mail"),
        "broker halted: acme": (1, "the market is shut"),
        "waiting in mail: no worker serves it": (1, "mail"),
        "dead in orders/fulfil@1": (1, "orders/fulfil@1"),
        "waiting in orders/fulfil@1: no worker serves it": (1, "orders/fulfil@1"),
        "waiting in of-8: no worker serves it": (1, "of-8"),
        "waiting in undo: no worker serves it": (1, "undo"),
        "schedule nightly fires mail, a kind that no worker of queue mail has": (1, "nightly"),
    }
    assert {what: one["count"] for what, one in told.items()} == {what: n for what, (n, _) in shown.items()}
    for what, (_, words) in shown.items():
        assert words in pages[what], what


def test_a_paused_queue_is_told(env: ConsoleEnv) -> None:
    Watchers(env.database)
    with env.program(Role.OPERATOR) as client:
        client.post("/api/queues/mail/pause")
        needs = client.get("/api/overview").json()["needs"]
    assert ("mail is paused", "/console/queues") in [(one["what"], one["where"]) for one in needs]


def test_a_signer_that_recovers_and_a_transaction_in_doubt_are_said_to_be(env: ConsoleEnv) -> None:
    city = PopulatedSystem(env.database)
    with env.visitor(Role.VIEWER) as client:
        facts = client.get("/api/nonces", params={"state": "recovering"}).json()
        assert [one["signer"] for one in facts["signers"]] == [SIGNER]
        assert [one["state"] for one in facts["doubts"]] == ["QUEUED"]
        assert "Recovering since" in client.get(f"/console/nonces/{city.signer}").text
        assert "in doubt" in client.get(f"/console/nonces/{city.signer}").text
        far = client.get("/api/nonces", params={"chain": 1, "after": SIGNER}).json()
        assert far["signers"] == []


def test_a_transaction_without_proof_of_what_used_its_nonce_is_reported(env: ConsoleEnv) -> None:
    PopulatedSystem(env.database)
    with env.database.connect_admin() as admin:
        admin.execute(
            "update fencepost.nonce_transaction"
            " set in_doubt_since = null, unproved_since = fencepost.clock() - interval '2 minutes'"
        )
    with env.program(Role.VIEWER) as client:
        needs = {one["what"]: one for one in client.get("/api/overview").json()["needs"]}
        assert "transactions in doubt" not in needs
        assert (needs["transactions unproved"]["count"], needs["transactions unproved"]["where"]) == (
            1,
            "/console/nonces#doubt",
        )
        (doubt,) = client.get("/api/nonces").json()["doubts"]
        assert doubt["unproved_since"] is not None
