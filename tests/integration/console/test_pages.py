"""Every page answers, as HTML, as JSON and as CSV, on an empty system and on a full one."""

from __future__ import annotations

import re

from fencepost.embedded import Database
from fencepost.kernel import drivers
from fencepost.kernel import job as kernel_job
from fencepost_server.console._role import Role
from fencepost_server.console._settings import ConsoleSettings
from tests.integration.console.env import ConsoleEnv, console
from tests.integration.console.page import LISTS
from tests.integration.console.watchers import Watchers


def test_every_page_answers_on_an_empty_system(env: ConsoleEnv) -> None:
    with env.visitor(Role.ADMIN) as client:
        for name in LISTS:
            page = client.get("/console" if name == "overview" else f"/console/{name}")
            assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8"), (
                name,
                page.text,
            )
            facts = client.get(f"/api/{name}")
            assert facts.status_code == 200, (name, facts.text)
            assert isinstance(facts.json(), dict)
            table = client.get(f"/api/{name}", params={"format": "csv"})
            assert table.status_code == 200, (name, table.text)
            assert table.headers["content-disposition"].endswith('.csv"')


def test_every_page_of_one_thing_answers(env: ConsoleEnv) -> None:
    crowd = Watchers(env.database)
    jobs = [crowd.waiting, crowd.running, crowd.finished, crowd.cancelled, *crowd.dead]
    paths = [*(f"jobs/{job}" for job in jobs), f"leases/{crowd.lease}", f"outbox/{crowd.message}"]
    with env.visitor(Role.VIEWER) as client:
        for path in paths:
            assert client.get(f"/console/{path}").status_code == 200, path
            assert client.get(f"/api/{path}").status_code == 200, path
        for path in ("jobs/999999", "leases/nobody", "outbox/999999", "orders/9", "players/x", "nonces/1/x"):
            assert client.get(f"/console/{path}").status_code == 404, path
            assert client.get(f"/api/{path}").status_code == 404, path


def test_filters_find_what_they_name(env: ConsoleEnv) -> None:
    crowd = Watchers(env.database)
    Watchers(env.database, "other")
    with env.program(Role.VIEWER) as client:

        def ids(**query: str | int) -> list[int]:
            found = client.get("/api/jobs", params=query).json()["jobs"]
            return [job["job_id"] for job in found]

        assert ids(state="dead", queue="mail") == crowd.dead[::-1]
        assert ids(state="running", queue="mail") == [crowd.running]
        assert ids(state="pending", kind="mail") == [crowd.waiting]
        assert ids(state="finished", queue="mail") == [crowd.finished]
        assert ids(state="cancelled", queue="mail") == [crowd.cancelled]
        assert ids(id=crowd.waiting) == [crowd.waiting]
        assert len(ids()) == 14


def test_pages_by_key_walk_through_everything_once(env: ConsoleEnv) -> None:
    Watchers(env.database)
    Watchers(env.database, "other")
    with env.program(Role.VIEWER) as client:
        queries: list[dict[str, str]] = [{}, {"queue": "mail"}, {"state": "dead"}, {"kind": "nothing"}]
        for query in queries:
            seen: list[int] = []
            before: int | None = None
            while True:
                terms: dict[str, str | int] = {
                    "limit": 2,
                    **query,
                    **({} if before is None else {"before": before}),
                }
                page = client.get("/api/jobs", params=terms).json()
                seen += [job["job_id"] for job in page["jobs"]]
                before = page["next_before"]
                if before is None:
                    break
            whole = client.get("/api/jobs", params={"limit": 1000, **query}).json()["jobs"]
            assert seen == [job["job_id"] for job in whole]


def test_a_filter_that_finds_little_says_where_it_stopped(database: Database) -> None:
    with console(database, ConsoleSettings(scan_max=100)) as env, database.connect() as connection:
        connection.execute(
            "select fencepost.job_submit_many('mail', 'common', array_fill('{}'::jsonb, array[250]))"
        )
        with env.program(Role.VIEWER) as client:
            page = client.get("/api/jobs", params={"kind": "rare"}).json()
            assert page["jobs"] == []
            assert page["next_before"] == 151
            assert (
                client.get("/api/jobs", params={"kind": "rare", "before": 51}).json()["next_before"] is None
            )


def test_jobs_are_found_by_tag_and_argument_within_a_bound(database: Database) -> None:
    with console(database, ConsoleSettings(scan_max=100)) as env, database.connect() as connection:
        submit = (
            "select fencepost.job_submit_many('mail', 'k', array_fill(%s::jsonb, array[%s::integer]),"
            " p_tags => '{common}', p_search_by => '{user}')"
        )
        connection.execute(submit, ('{"user": 7}', 1))
        connection.execute(submit, ('{"user": "bob"}', 250))
        with env.program(Role.VIEWER) as client:

            def found(**terms: str) -> tuple[list[int], int | None]:
                page = client.get("/api/jobs", params=terms).json()
                return [job["job_id"] for job in page["jobs"]], page["next_before"]

            assert found(arg="user=7") == ([1], None)
            assert found(tag="common", arg="user=7") == ([1], None)
            assert found(tag="common", limit="2") == ([251, 250], 250)
            assert found(arg="user=bob", state="dead") == ([], 152), "it says where it stopped"
            assert found(arg="user=bob", state="dead", before="52") == ([], None)
            assert found(tag="", arg="", limit="1") == ([251], 251)
            refused = client.get("/api/jobs", params={"arg": "nobody=1"})
            assert refused.status_code == 400
            assert "its argument nobody" in refused.text
            assert client.get("/api/jobs", params={"arg": "nobody"}).status_code == 400
            assert 'href="/console/jobs?tag=common"' in client.get("/console/jobs/1").text


def test_the_life_of_a_job_tells_its_refusals_with_what_to_do(env: ConsoleEnv) -> None:
    crowd = Watchers(env.database)
    with env.program(Role.VIEWER) as client:
        fp_calls_late(env, crowd.running)
        life = client.get(f"/api/jobs/{crowd.running}").json()["life"]
        refusal = next(one for one in life if one["refused"])
        assert refusal["event"] == "refused:stale_attempt"
        assert "zombie" in refusal["meaning"]
        assert refusal["remedy"].startswith("Stop.")
        page = client.get(f"/console/jobs/{crowd.running}").text
        assert "refused:stale_attempt" in page
        assert 'class="lane-refused"' in page
        assert "zombie (attempt 0) tried to finish at" in page
        assert 'data-refresh="2"' in page, "it is still running"


def test_refusals_are_listed_by_kind_reason_noun_and_time(env: ConsoleEnv) -> None:
    crowd = Watchers(env.database)
    fp_calls_late(env, crowd.running)
    with env.database.connect() as connection:
        for subject in ("a/1", "a/2"):
            connection.execute(
                "select fencepost.refusal_record('mismatch', 'request', %s, 'w', '{}', '{}')", (subject,)
            )
    with env.program(Role.VIEWER) as client:

        def found(**filters: str | int) -> list[tuple[str, str]]:
            rows = client.get("/api/refusals", params=filters).json()["refusals"]
            return [(row["noun"], row["kind"]) for row in rows]

        conflicts = [("request", "conflict")] * 2
        assert found(kind="conflict") == found(noun="request") == found(reason="mismatch") == conflicts
        assert ("job", "late") in found(kind="late", within="hour")
        assert not set(conflicts) & set(found(kind="late"))
        first = client.get("/api/refusals", params={"kind": "conflict", "limit": 1}).json()
        assert found(kind="conflict", limit=1, before=first["next_before"]) == conflicts[:1]
        assert client.get("/api/refusals", params={"kind": "odd"}).status_code == 400
        kinds = client.get("/api/refusals").json()["kinds"]
        assert kinds["conflict"] == 2
        assert kinds["late"] >= 1
        page = client.get("/console").text
        assert f'data-figure="late_writes">{kinds["late"]}</a>' in page
        page = client.get("/console/refusals").text
        assert re.search(rf"{kinds['late']} late writes? stopped in 24 hours", page)


def fp_calls_late(env: ConsoleEnv, job_id: int) -> None:
    """A plural form writes its refusals down itself."""
    with env.database.connect() as connection:
        connection.execute(
            "select * from fencepost.job_finish_many(%s, %s, %s, array['ok'], array[null]::jsonb[])",
            ([job_id], [0], "zombie"),
        )


def test_a_download_hides_no_formula(env: ConsoleEnv) -> None:
    Watchers(env.database, "=1+1")
    with env.program(Role.VIEWER) as client:
        table = client.get("/api/jobs", params={"format": "csv"}).text
        assert "'=1+1" in table
        assert "\n=1+1" not in table
        assert ",=1+1" not in table


def test_a_filter_with_every_field_left_empty_shows_everything(env: ConsoleEnv) -> None:
    Watchers(env.database)
    with env.visitor(Role.VIEWER) as client:
        page = client.get("/console/jobs?state=&queue=&kind=&id=&before=")
        assert page.status_code == 200, page.text
        assert len(client.get("/api/jobs?state=&queue=&kind=&id=").json()["jobs"]) == 7
        assert client.get("/console/outbox?state=&channel=&key=").status_code == 200
        assert client.get("/console/orders?status=&broker=&account=").status_code == 200


def test_a_failed_try_shows_its_traceback(env: ConsoleEnv) -> None:
    crowd = Watchers(env.database)
    with env.database.connect() as connection:
        drivers.run(connection, kernel_job.claim(crowd.waiting, "w"))
        drivers.run(connection, kernel_job.leave_many([kernel_job.Leave(crowd.waiting, 1, "release")], "w"))
        running = drivers.run(connection, kernel_job.claim(crowd.waiting, "w"))
        failed = kernel_job.Leave(
            crowd.waiting, running.attempt, "retry", "no", 60, "Traceback:\n  <b>bold</b>"
        )
        drivers.run(connection, kernel_job.leave_many([failed], "w"))
    with env.visitor(Role.VIEWER) as client:
        life = client.get(f"/api/jobs/{crowd.waiting}").json()["life"]
        page = client.get(f"/console/jobs/{crowd.waiting}").text
    assert [(one["event"], one["token"]) for one in life if one["actor"] == "w"] == [
        ("claimed", 1),
        ("released", 1),
        ("claimed", 2),
        ("failed", 2),
        ("dead", 2),
    ], "each claim, also that of an attempt that has ended"
    [moment] = [one for one in life if one["event"] == "failed"]
    assert (moment["traceback"], moment["detail"]["try"]) == ("Traceback:\n  <b>bold</b>", 1)
    assert '<pre class="error">Traceback:\n  &lt;b&gt;bold&lt;/b&gt;</pre>' in page
