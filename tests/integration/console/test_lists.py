"""Lists: parts of jobs, states told apart, idle queues with their last hour, batches, charts at any time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from fencepost.embedded import Database
from fencepost.errors import InvalidInput
from fencepost.testing import Clock
from fencepost_server.console._minutes import roll
from fencepost_server.console._overview import POINTS_MAX, OverviewQuery, window
from fencepost_server.console._role import Role
from tests.integration.console.env import YES, ConsoleEnv
from tests.integration.console.watchers import Watchers


def submitted(database: Database, run_at: datetime | None = None) -> int:
    query = (
        "select job_id from fencepost.job_submit("
        "'mail', 'letters', '{\"to\": \"Ann Shirley\"}', p_run_at => %s)"
    )
    with database.connect() as connection:
        row = connection.execute(query, (run_at,)).fetchone()
    assert row is not None
    return int(row[0])


def test_a_search_finds_parts_of_kinds_and_arguments(env: ConsoleEnv) -> None:
    Watchers(env.database, "noise")
    job_id = submitted(env.database)
    with env.visitor(Role.VIEWER) as client:

        def found(part: str, **more: str) -> list[int]:
            jobs = client.get("/api/jobs", params={"part": part, **more}).json()["jobs"]
            return [job["job_id"] for job in jobs]

        assert found("ETTER") == found("shirley") == [job_id]
        assert found("shirley", queue="noise") == found("shirley", state="dead") == []
        assert found("%") == []


def test_scheduled_and_retrying_jobs_have_states_of_their_own(env: ConsoleEnv) -> None:
    later = submitted(env.database, datetime.now(UTC) + timedelta(hours=1))
    again = submitted(env.database)
    with env.database.connect() as connection:
        connection.execute("select * from fencepost.job_claim(%s, 'w')", (again,))
        connection.execute("select * from fencepost.job_retry(%s, 1, 'w', 'no', '1 hour')", (again,))
    due = submitted(env.database)
    with env.visitor(Role.VIEWER) as client:

        def of(state: str) -> list[int]:
            jobs = client.get("/api/jobs", params={"state": state}).json()["jobs"]
            assert {job["phase"] for job in jobs} <= {state, "scheduled", "retrying"}
            return [job["job_id"] for job in jobs]

        assert (of("scheduled"), of("retrying")) == ([later], [again])
        assert of("pending") == [due, again, later]
        assert "scheduled" in client.get(f"/console/jobs/{later}").text


def test_an_idle_queue_stays_listed_with_its_last_hour_and_limits(env: ConsoleEnv) -> None:
    Watchers(env.database)
    env.call(roll(0))
    with env.database.connect() as connection:
        connection.execute("select fencepost.queue_rate('mail', 7, 9, 'anna')")
    with env.database.connect_admin() as connection:
        connection.execute("delete from fencepost.job_waiting")
        connection.execute("delete from fencepost.job_running")
        connection.execute("delete from fencepost.job_finished")
    env.context.live_snapshot.forget()
    with env.visitor(Role.VIEWER) as client:
        (queue,) = client.get("/api/queues").json()["queues"]
        assert (queue["queue"], queue["due"], queue["rate_max"]) == ("mail", 0, 7)
        assert (sum(queue["ended"]), len(queue["ended"])) == (5, 60)
        assert queue["run_p95_seconds"] > 0
        page = client.get("/console/queues").text
        assert 'class="spark"' in page
        assert "7/s" in page


def test_charts_are_of_a_queue_and_a_kind_at_any_time(env: ConsoleEnv) -> None:
    clock = Clock(env.database.admin_url).install()
    clock.freeze()
    Watchers(env.database)
    Watchers(env.database, "other")
    env.call(roll(0))
    now = clock.now()
    with env.visitor(Role.VIEWER) as client:

        def ended(**query: str) -> int:
            series = client.get("/api/overview", params=query).json()["series"]
            return sum(row.get("finished") or 0 for row in series)

        around = {"since": (now - timedelta(minutes=9)).isoformat(), "until": datetime.now(UTC).isoformat()}
        assert (ended(**around), ended(queue="mail", **around)) == (2, 1)
        assert ended(queue="mail", kind="other", **around) == 0
        long_ago = {
            "since": (now - timedelta(days=2)).isoformat(),
            "until": (now - timedelta(days=1)).isoformat(),
        }
        assert ended(queue="mail", **long_ago) == 0
        page = client.get("/console", params={"queue": "mail"}).text
        assert "Jobs: finished per second, mail" in page
        assert client.get("/api/overview", params={"since": "2030-01-01T00:00"}).status_code == 400


def test_a_window_has_few_points_however_long_it_is() -> None:
    now = datetime(2026, 1, 9, 12, 0, 30, tzinfo=UTC)
    for span in ("hour", "day", "week"):
        since, until, step = window(OverviewQuery(span=span), now)
        assert (until - since) / step <= POINTS_MAX + 1
    with pytest.raises(InvalidInput):
        window(OverviewQuery(since=now, until=now), now)


def test_a_batch_shows_its_jobs_its_callback_and_what_a_job_belongs_to(env: ConsoleEnv) -> None:
    jobs = [submitted(env.database) for _ in "123"]
    with env.database.connect() as connection:
        row = connection.execute(
            "select fencepost.batch_make(%s::bigint[], %s, 'atlas')", (jobs[:2], jobs[2])
        ).fetchone()
    assert row is not None
    batch = row[0]
    with env.visitor(Role.VIEWER) as client:
        (listed,) = client.get("/api/batches", params={"open": "true"}).json()["batches"]
        assert (listed["batch_id"], listed["size"], listed["remaining"]) == (batch, 2, 2)
        facts = client.get(f"/api/batches/{batch}").json()
        assert [job["job_id"] for job in facts["jobs"]] == jobs[:2]
        assert (
            client.get(f"/api/batches/{batch}", params={"after": jobs[0]}).json()["jobs"][0]["job_id"]
            == jobs[1]
        )
        roles = [client.get(f"/api/jobs/{job}").json()["batches"][0]["role"] for job in jobs]
        assert roles == ["part of", "part of", "callback of"]
        assert client.get("/console/batches/999").status_code == 404


def test_selected_jobs_are_decided_about_and_the_question_counts_those_that_fit(env: ConsoleEnv) -> None:
    crowd = Watchers(env.database)
    chosen = [*crowd.dead, crowd.waiting, crowd.finished]
    form = [("how", "run"), *(("ids", str(job)) for job in chosen)]
    with env.visitor(Role.OPERATOR) as client:
        body = "&".join(f"{name}={value}" for name, value in form)
        kind = {"content-type": "application/x-www-form-urlencoded"}
        asked = client.post("/console/selected/jobs", content=body, headers=kind).text
        assert "Run 4 jobs?" in asked
        assert "1 job of them cannot be, and stay as they are." in asked
        done = client.post(
            "/console/selected/jobs", data={"how": "run", "ids": ",".join(map(str, chosen)), **YES}
        )
        assert done.status_code == 303
        assert {crowd.state_of(job) for job in crowd.dead} == {"pending"}
        told = client.post("/api/selected/jobs", json={"how": "cancel", "ids": chosen}).json()
        assert (told["settled"], told["refused"]) == (4, 1)
        assert client.post("/api/selected/jobs", json={"how": "cancel", "ids": []}).status_code == 400
    with env.visitor(Role.VIEWER) as client:
        assert client.post("/api/selected/jobs", json={"how": "cancel", "ids": [1]}).status_code == 403


def test_a_browser_gets_a_page_for_every_error_and_a_program_json(env: ConsoleEnv) -> None:
    with env.visitor(Role.VIEWER) as client:
        page = client.get("/console/nowhere", headers={"accept": "text/html,*/*"})
        assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
        assert "<h1>404 Not found</h1>" in page.text
        wrong = client.put("/console/jobs", headers={"accept": "text/html"})
        assert "<h1>405 Method not allowed</h1>" in wrong.text
        assert client.get("/console/nowhere").json()["code"] == "not_found"
        api = client.get("/api/nowhere", headers={"accept": "text/html"})
        assert api.headers["content-type"] == "application/json"


def test_a_theme_is_kept_and_nothing_else_is(env: ConsoleEnv) -> None:
    with env.visitor(Role.VIEWER) as client:
        chosen = client.post("/console/theme", data={"theme": "dark", "back": "//evil.example"})
        assert (chosen.status_code, chosen.headers["location"]) == (303, "/console")
        assert 'data-theme="dark"' in client.get("/console").text
        assert client.post("/console/theme", data={"theme": "x'\""}).status_code == 400
        client.cookies.set("theme", "<b>", path="/console")
        assert "<b>" not in client.get("/console/jobs").text
