"""Rows that are selected in a list: a count before the decision, one after, and refusals in between."""

from __future__ import annotations

import re
from urllib.parse import quote

from fencepost.kernel import queue
from fencepost.webhooks import calls
from fencepost_server.console._role import ACCOUNTS, Role
from tests.integration.console.env import YES, ConsoleEnv

ODD = "a, b/c%"


def test_queues_are_paused_together_after_a_count(env: ConsoleEnv) -> None:
    with env.database.connect() as connection:
        for name in ("mail", "maps", ODD):
            connection.execute("select fencepost.job_submit(%s, 'k', '{}')", (name,))
    env.call(queue.pause("maps", "test"))
    with env.visitor(Role.OPERATOR) as client:
        page = client.get("/console/queues").text
        assert f'value="{quote(ODD, safe="")}"' in page
        form = {"how": "pause", "ids": ",".join(quote(name, safe="") for name in ("mail", "maps", ODD))}
        asked = client.post("/console/selected/queues", data=form).text
        assert "Pause 2 queues?" in asked
        assert "Selected are 3 queues: 2 open, 1 paused." in asked
        assert "1 queue of them cannot be" in asked
        before = {one["queue"]: one["paused"] for one in client.get("/api/queues").json()["queues"]}
        assert before == {"mail": False, "maps": True, ODD: False}, "a question changes nothing"
        told = client.post("/console/selected/queues", data={**form, **YES}, follow_redirects=True).text
        assert "2 queues paused, 1 refused." in told
        queues = {one["queue"]: one["paused"] for one in client.get("/api/queues").json()["queues"]}
        assert queues == {"mail": True, "maps": True, ODD: True}
        api = client.post("/api/selected/queues", json={"how": "resume", "ids": ["mail", ODD]}).json()
        assert (api["settled"], api["refused"]) == (2, 0)


def test_messages_are_decided_with_the_state_that_was_seen(env: ConsoleEnv) -> None:
    with env.database.connect() as connection:
        row = connection.execute("select fencepost.outbox_put('letters', null, '{}')").fetchone()
    assert row is not None
    with env.visitor(Role.OPERATOR) as client:
        assert f'value="{row[0]}:queued"' in client.get("/console/outbox").text

        def settled(ids: list[str], how: str = "dead") -> tuple[int, int]:
            body = {"how": how, "ids": ids, "reason": "test"}
            facts = client.post("/api/selected/messages", json=body).json()
            return facts["settled"], facts["refused"]

        assert settled([f"{row[0]}:parked"]) == (0, 1)
        assert settled([f"{row[0]}:queued"]) == (1, 0)
        assert settled([f"{row[0]}:queued"]) == (0, 1)
        body = {"how": "dead", "ids": ["x"], "reason": "test"}
        assert client.post("/api/selected/messages", json=body).status_code == 400
        assert (
            client.post("/api/selected/messages", json={"how": "dead", "ids": ["1:queued"]}).status_code
            == 400
        )


def test_webhooks_accounts_and_tokens_have_the_same_form(env: ConsoleEnv) -> None:
    env.call(calls.add("audit", "https://audit.example/in", [], "test"))
    env.call(ACCOUNTS.set_user("anna", Role.VIEWER, None, "test", by_service=False))
    with env.visitor(Role.ADMIN) as client:
        told = client.post("/api/selected/webhooks", json={"how": "pause", "ids": ["audit", "nobody"]}).json()
        assert (told["settled"], told["refused"]) == (1, 1)
        told = client.post("/api/selected/users", json={"how": "disable", "ids": ["anna", "admin"]}).json()
        assert (told["settled"], told["refused"]) == (1, 1)
        client.post("/console/account/tokens", data={"label": "x", "role": "viewer", "days": "1"})
        (token,) = re.findall(r'name="ids" value="(\d+)"', client.get("/console/account").text)
        form = {"how": "revoke", "ids": token}
        assert "Revoke 1 token?" in client.post("/console/selected/tokens", data=form).text
        told = client.post("/console/selected/tokens", data={**form, **YES}, follow_redirects=True).text
        assert "1 token revoked, 0 refused." in told
