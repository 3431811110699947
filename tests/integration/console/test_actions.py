"""What an operator does is done by the kernel's functions, and recorded with the operator's name."""

from __future__ import annotations

from contextlib import closing
from urllib.parse import unquote_plus

from fencepost_orders import _change_source as change_source
from fencepost_server.console._role import Role
from tests.integration.console.env import YES, ConsoleEnv
from tests.integration.console.watchers import Watchers
from tests.integration.orders.env import RESULT, OrdersEnv


def test_jobs_are_run_again_cancelled_and_given_up(env: ConsoleEnv) -> None:
    crowd = Watchers(env.database)
    with env.visitor(Role.OPERATOR) as client:
        assert client.post(f"/console/jobs/{crowd.dead[0]}/replay", data=YES).status_code == 303
        assert client.post(f"/console/jobs/{crowd.dead[1]}/discard", data=YES).status_code == 303
        assert client.post(f"/console/jobs/{crowd.dead[2]}/retry", data=YES).status_code == 303
        assert client.post(f"/console/jobs/{crowd.waiting}/cancel", data=YES).status_code == 303
        assert [crowd.state_of(job) for job in (*crowd.dead, crowd.waiting)] == [
            "pending",
            "cancelled",
            "pending",
            "cancelled",
        ]
        told = client.get(f"/console/jobs/{crowd.waiting}").text
        assert f"Job {crowd.waiting} is cancelled." in told
        life = client.get(f"/api/jobs/{crowd.waiting}").json()["life"]
        assert "operator@console" in [moment["actor"] for moment in life]


def test_a_refused_action_says_why_and_is_written_down(env: ConsoleEnv) -> None:
    crowd = Watchers(env.database)
    with env.visitor(Role.ADMIN) as client:
        refused = client.post(f"/console/jobs/{crowd.finished}/cancel", data=YES)
        assert refused.status_code == 409
        assert "already_finished" in refused.text
        assert client.post(f"/api/jobs/{crowd.finished}/cancel").json()["code"] == "already_finished"
        audit_entries = client.get("/api/audit", params={"actor": "admin"}).json()["entries"]
        assert (audit_entries[0]["action"], audit_entries[0]["outcome"], audit_entries[0]["subject"]) == (
            "job.cancel",
            "refused: already_finished",
            str(crowd.finished),
        )


def test_dead_letters_of_one_cause_are_previewed_and_replayed_once(env: ConsoleEnv) -> None:
    crowd = Watchers(env.database)
    with env.visitor(Role.OPERATOR) as client:
        meant = {"queue": "mail", "cause": "ValueError"}
        preview = client.get("/api/dead/preview", params=meant).json()
        assert (preview["count"], len(preview["sample"])) == (3, 3)
        order = {"how": "replay", **meant, "before": preview["before"], "limit": 2}
        assert client.post("/api/dead/settle", json=order).json()["remaining"] == 1
        assert client.post("/api/dead/settle", json=order).json()["remaining"] == 0
        assert client.post("/api/dead/settle", json=order).json()["settled"] == 0
        assert {crowd.state_of(job) for job in crowd.dead} == {"pending"}


def test_a_parked_message_is_decided_about_by_the_state_that_was_seen(env: ConsoleEnv) -> None:
    crowd = Watchers(env.database)
    parked = crowd.park()
    with env.visitor(Role.OPERATOR) as client:
        assert client.get("/api/outbox").json()["held_keys"][0]["id"] == parked
        decision = {"expected": "unknown", "outcome": "dead", "note": "asked them"}
        assert client.post(f"/api/outbox/{parked}/resolve", json=decision).json()["code"] == "mismatch"
        form = {"expected": "parked", "outcome": "dead", "note": "asked them"}
        assert client.post(f"/console/outbox/{parked}/resolve", data={**form, **YES}).status_code == 303
        assert client.get(f"/api/outbox/{parked}").json()["message"]["state"] == "dead"


def test_an_order_that_a_person_saw_at_the_broker_keeps_what_they_saw(env: ConsoleEnv) -> None:
    with closing(OrdersEnv(env.database.url)) as market, env.visitor(Role.OPERATOR) as client:
        market.declare(rate_per_second=1e6, burst=1e6)
        parked = market.accepted("order-parked")
        market.settle(market.take_one(), "parked", code="UNKNOWN", detail="no word")
        form = {"expected": "unknown", "outcome": "sent", "reason": "seen", "broker_order_id": "61e69015"}
        assert client.post(f"/console/orders/{parked}/resolve", data={**form, **YES}).status_code == 422
        form["expected"] = "parked"
        assert client.post(f"/console/orders/{parked}/resolve", data={**form, **YES}).status_code == 303
        order = client.get(f"/api/orders/{parked}").json()["order"]
        assert (order["status"], order["broker_order_id"]) == ("sent", "61e69015")
        assert order["result"]["body"] == {"by": "operator@console"}
        ledger = "select result_digest is not null from fencepost.idempo_ledger where order_id = %s"
        with env.database.connect_admin() as connection:
            assert connection.execute(ledger, (parked,)).fetchone() == (True,)


def test_orders_are_sent_again_given_up_and_cancelled(env: ConsoleEnv) -> None:
    with closing(OrdersEnv(env.database.url)) as market, env.program(Role.OPERATOR) as client:
        market.declare(rate_per_second=1e6, burst=1e6)
        for outcome in ("dead", "unknown"):
            order_id = market.accepted(f"order-{outcome}", symbol=outcome.upper())
            market.settle(market.take_one(), "parked", code="UNKNOWN", detail="no word")
            decision = {"expected": "parked", "outcome": outcome, "reason": "asked them"}
            assert client.post(f"/api/orders/{order_id}/resolve", json=decision).status_code == 200
            order = client.get(f"/api/orders/{order_id}").json()["order"]
            assert (order["status"], order["result"]) == (outcome, None)
        queued = market.accepted("order-queued", symbol="Q")
        assert client.post(f"/api/orders/{queued}/cancel", json={"reason": "too late"}).status_code == 200
        facts = client.get(f"/api/orders/{queued}").json()
        assert facts["order"]["status"] == "dead"
        assert facts["history"][-1]["actor"] == "operator@console"


def test_an_order_is_cancelled_at_the_broker_and_the_page_says_so(env: ConsoleEnv) -> None:
    with closing(OrdersEnv(env.database.url)) as market, env.visitor(Role.OPERATOR) as client:
        market.declare(rate_per_second=1e6, burst=1e6)
        market.run(change_source.declare_abilities("acme", can_cancel=True, can_replace=False))
        order_id = market.accepted("open", symbol="O")
        market.settle(market.take_one(), "sent", result={**RESULT, "open": True})
        assert "Cancel at the broker" in client.get(f"/console/orders/{order_id}").text
        form = {"key": "console-1", "reason": "not wanted"}
        for _ in range(2):
            sent = client.post(f"/console/orders/{order_id}/cancel-at-broker", data={**form, **YES})
            assert sent.status_code == 303
        page = client.get(f"/console/orders/{order_id}").text
        assert "is to be cancelled at the broker" in page
        assert 'data-table="changes"' in page
        (change,) = client.get(f"/api/orders/{order_id}").json()["order"]["changes"]
        assert (change["state"], change["actor"]) == ("queued", "operator@console")


def test_an_admin_makes_and_locks_out_users_and_no_password_is_in_the_audit(env: ConsoleEnv) -> None:
    with env.visitor(Role.ADMIN) as client:
        form = {"name": "ada", "role": "operator", "password": "a long enough one"}
        assert client.post("/console/users", data=form).status_code == 303
        assert client.post("/console/users/ada/disable", data=YES).status_code == 303
        assert client.post("/console/users/admin/disable", data=YES).status_code == 400
        users = {user["name"]: user for user in client.get("/api/users").json()["users"]}
        assert users["ada"]["disabled_at"] is not None
        assert "a long enough one" not in client.get("/api/audit").text
        assert "argon2" not in client.get("/api/users").text


def test_going_on_with_a_replay_means_what_was_dead_when_it_began(env: ConsoleEnv) -> None:
    Watchers(env.database)
    with env.visitor(Role.OPERATOR) as client:
        began = client.get("/api/dead/preview").json()["before"]
        form = {"how": "replay", "before": began, "limit": "2"}
        sent = client.post("/console/dead/settle", data={**form, **YES})
        assert began in unquote_plus(sent.headers["location"])
        Watchers(env.database, "later")
        facts = client.get(sent.headers["location"].replace("/console/", "/api/")).json()
        assert (facts["count"], facts["before"]) == (1, began)
