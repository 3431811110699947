"""A decision is confirmed first: its question names the object and the consequences, and changes nothing."""

from __future__ import annotations

import re
from html import unescape

import pytest

from fencepost_server.console._role import Role
from tests.integration.console.env import YES, ConsoleEnv
from tests.integration.console.populated_system import PopulatedSystem
from tests.integration.console.watchers import OWNER
from tests.integration.orders.env import BROKER

PRESELECTED = re.compile(r"<option[^>]*selected|<input[^>]*checked|autofocus")


def words_of(page: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).split())


@pytest.fixture
def city(env: ConsoleEnv) -> PopulatedSystem:
    return PopulatedSystem(env.database)


def test_an_order_is_decided_about_after_a_question_that_names_its_terms(
    env: ConsoleEnv, city: PopulatedSystem
) -> None:
    at = f"/console/orders/{city.orders['parked']}/resolve"
    form = {"expected": "parked", "outcome": "sent", "reason": "seen <there>", "broker_order_id": "7"}
    with env.visitor(Role.OPERATOR) as client:
        asked = client.post(at, data=form)
        told = words_of(asked.text)
        assert asked.status_code == 200
        assert "BUY 10,000 S4 at 145.001, becomes sent?" in told
        assert "Because: seen <there>" in told
        assert "No order waits behind it." in told
        assert 'name="broker_order_id" value="7"' in asked.text
        assert not PRESELECTED.search(asked.text.partition('id="question"')[2])
        # A theme that is chosen here leads to a page that can be read.
        assert 'name="back" value="/console"' in asked.text
        assert client.get(f"/api/orders/{city.orders['parked']}").json()["order"]["status"] == "parked"
        assert client.post(at, data={**form, **YES}).status_code == 303
        assert client.get(f"/api/orders/{city.orders['parked']}").json()["order"]["status"] == "sent"


def test_the_page_of_an_order_preselects_no_outcome(env: ConsoleEnv, city: PopulatedSystem) -> None:
    with env.visitor(Role.OPERATOR) as client:
        page = client.get(f"/console/orders/{city.orders['parked']}").text
        assert '<select name="outcome" required><option value="">' in page
        message = client.get(f"/console/outbox/{city.parked}").text
        assert '<select name="outcome" required><option value="">' in message


def test_no_question_changes_anything_or_is_in_the_audit(env: ConsoleEnv, city: PopulatedSystem) -> None:
    asked: dict[str, dict[str, str]] = {
        f"queues/{city.name}/pause": {},
        f"jobs/{city.running}/cancel": {},
        f"jobs/{city.dead[0]}/replay": {},
        f"jobs/{city.dead[0]}/discard": {},
        f"jobs/{city.cancelled}/retry": {},
        "dead/settle": {"how": "discard", "before": "2130-01-01T00:00:00+00:00"},
        "workflows/settle": {"how": "cancel", "up_to": "1000000"},
        f"workflows/{city.workflow}/cancel": {},
        f"workflows/{city.workflow}/emit": {"event": f"approve {city.workflow} mail"},
        f"workflows/{city.dead_workflow}/replay": {},
        f"workflows/{city.dead_workflow}/retry-from": {"step": "price"},
        "schedules/nightly/pause": {},
        "schedules/nightly/remove": {},
        "schedules/nightly/reset": {},
        "webhooks/audit/pause": {},
        "webhooks/audit/rotate": {},
        "webhooks/audit/remove": {},
        f"outbox/{city.parked}/resolve": {"expected": "parked", "outcome": "dead", "note": "asked"},
        f"orders/{city.orders['queued']}/cancel": {"reason": "late"},
        f"orders/{city.orders['unknown']}/cancel-at-broker": {"reason": "late", "key": "k1"},
        f"brokers/{BROKER}/halt": {"reason": "shut"},
        f"brokers/{BROKER}/resume": {"reason": "open"},
        f"flows/{city.flow}/drain": {},
        "workers/drain": {"target": OWNER, "reason": "kernel"},
        "workers/disable": {"target": OWNER, "reason": "kernel"},
        "workers/pin": {"target": OWNER, "reason": "kernel", "queues": "mail"},
        "users/operator/disable": {},
    }
    env.user(Role.OPERATOR)
    with env.visitor(Role.ADMIN) as client:
        before = client.get("/api/audit").json()["entries"]
        for path, form in asked.items():
            answer = client.post(f"/console/{path}", data=form)
            assert (path, answer.status_code) == (path, 200)
            assert 'id="question"' in answer.text, path
            assert 'name="confirmed" value="yes"' in answer.text, path
        assert client.get("/api/audit").json()["entries"] == before


def test_a_program_is_not_asked(env: ConsoleEnv, city: PopulatedSystem) -> None:
    with env.program(Role.OPERATOR) as client:
        assert client.post(f"/api/jobs/{city.dead[0]}/discard").status_code == 200
    assert city.state_of(city.dead[0]) == "cancelled"


def test_the_kill_switch_says_what_stops_and_cancels_what_is_open(
    env: ConsoleEnv, city: PopulatedSystem
) -> None:
    with env.visitor(Role.OPERATOR) as client:
        form = {"reason": "open again"}
        assert client.post(f"/console/brokers/{BROKER}/resume", data={**form, **YES}).status_code == 303
        form = {"reason": "it is shut", "cancel_open": "true", "key": "console-1"}
        told = words_of(client.post(f"/console/brokers/{BROKER}/halt", data=form).text)
        assert f"No order of {BROKER} is sent until it is resumed: 2 orders wait." in told
        assert "4 open orders are cancelled, at the broker too." in told
        halted = client.post(f"/api/brokers/{BROKER}/halt", json={"reason": "shut", "cancel_open": True})
        assert halted.json()["cancelled"]["dead"] == 2
        brokers = client.get("/api/orders").json()["brokers"]
        assert [one["halted_by"] for one in brokers] == ["operator@console"]
        assert client.post("/api/brokers/nobody/halt", json={"reason": "x"}).status_code == 404
    with env.visitor(Role.VIEWER) as client:
        assert client.post(f"/api/brokers/{BROKER}/halt", json={"reason": "x"}).status_code == 403
