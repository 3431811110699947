"""Schedules in the console: what fires when, what it did, and what an operator decides."""

from __future__ import annotations

from fencepost_server.console._role import Role
from tests.integration.console.env import YES, ConsoleEnv

EXTRA = {"name": "extra tick", "expression": "0 3 * * *", "kind": "report", "queue": "reports"}


def test_an_operator_adds_runs_changes_and_removes_a_schedule(env: ConsoleEnv) -> None:
    with env.visitor(Role.OPERATOR) as client:
        assert (
            client.post("/console/schedules", data={**EXTRA, "arguments": '{"scope": "eu"}'}).status_code
            == 303
        )
        told = client.post("/api/schedules/extra tick/run").json()
        page = client.get("/api/schedules/extra tick").json()
        assert page["schedule"]["payload"] == {"scope": "eu"}
        assert [(one["job_id"], one["actor"]) for one in page["jobs"]] == [
            (told["job_id"], "operator@console")
        ]
        # A form sends every field: only the one that differs is a change.
        form = {"expression": "every 90s", "zone": "UTC", "missed": "once", "arguments": ""}
        assert client.post("/console/schedules/extra%20tick/change", data=form).status_code == 303
        schedule = client.get("/api/schedules/extra tick").json()["schedule"]
        assert (schedule["expression"], schedule["payload"]) == ("every 90s", {"scope": "eu"})
        shown = client.get("/console/schedules/extra tick").text
        assert "every 90s" in shown
        assert "operator@console" in shown
        events = [one["event"] for one in client.get("/api/schedules/extra tick").json()["life"]]
        assert events == ["added", "changed"]
        assert client.post("/console/schedules/extra%20tick/pause", data=YES).status_code == 303
        assert client.post("/console/schedules/extra%20tick/resume").status_code == 303
        assert client.post("/console/schedules/extra%20tick/remove", data=YES).status_code == 303
        assert client.get("/api/schedules/extra tick").status_code == 404


def test_a_retired_schedule_is_shown_and_revived(env: ConsoleEnv) -> None:
    with env.visitor(Role.OPERATOR) as client:
        client.post("/api/schedules", json=EXTRA)
        with env.database.connect_admin() as connection:
            connection.execute("update fencepost.job_schedule set retired_at = now(), release = 'gone'")
        assert "retired" in client.get("/console/schedules").text
        assert "no live worker declares it" in client.get("/console/schedules/extra tick").text
        assert client.post("/console/schedules/extra%20tick/revive").status_code == 303
        assert client.get("/api/schedules").json()["schedules"][0]["retired_at"] is None


def test_a_schedule_that_cannot_fire_is_refused_and_named(env: ConsoleEnv) -> None:
    with env.visitor(Role.OPERATOR) as client:
        for wrong in (
            {"expression": "61 * * * *"},
            {"zone": "Mars"},
            {"arguments": "[1]"},
            {"arguments": "{"},
        ):
            refused = client.post("/api/schedules", json=EXTRA | wrong)
            assert (refused.status_code, refused.json()["code"]) == (400, "invalid_input"), refused.text
        assert client.get("/api/schedules").json()["schedules"] == []


def test_a_viewer_looks_and_does_not_decide(env: ConsoleEnv) -> None:
    with env.visitor(Role.OPERATOR) as client:
        client.post("/api/schedules", json=EXTRA)
    with env.visitor(Role.VIEWER) as client:
        shown = client.get("/console/schedules/extra tick").text
        assert "Run now" not in shown
        assert client.post("/api/schedules/extra tick/run").status_code == 403
