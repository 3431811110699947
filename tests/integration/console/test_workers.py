"""Workers are seen while they have nothing to do, and not any more when they have left or died."""

from __future__ import annotations

import asyncio
from typing import Any, LiteralString

import psycopg

from fencepost.client import Fencepost
from fencepost.embedded import Database
from fencepost.embedded._deadline import Deadline
from fencepost.jobs._worker_registry import WorkerRegistry
from fencepost.jobs.job import Job
from fencepost.jobs.settings import JobSettings
from fencepost.kernel._job_need import Serves
from fencepost_server.console._role import Role
from tests.integration.console.env import YES, ConsoleEnv
from tests.integration.console.watchers import OWNER, Watchers

# Some beats after the first would take longer than the test may: it must be seen at once.
SETTINGS = JobSettings(lease_seconds=3600, heartbeat_seconds=1200)


def fetched(database: Database, query: LiteralString) -> list[tuple[Any, ...]]:
    with database.connect_admin() as connection:
        return connection.execute(query).fetchall()


def workers(database: Database) -> list[tuple[Any, ...]]:
    return fetched(database, "select owner, jobs, oldest_at is null from fencepost.console_workers()")


def test_an_idle_fleet_is_alive_and_a_worker_that_leaves_is_not(env: ConsoleEnv) -> None:
    async def work() -> None:
        async with Fencepost(env.database.url) as fp:

            @fp.job(queue="mail")
            async def nothing(job: Job) -> None: ...

            fleet = [fp.jobs.worker(SETTINGS) for _ in range(3)]
            working = [asyncio.create_task(worker.run()) for worker in fleet]
            everybody = sorted((worker.owner, 0, True) for worker in fleet)
            await until("all three are seen", lambda: workers(env.database) == everybody)
            assert await asyncio.to_thread(figure) == 3
            fleet[0].stop()
            await working[0]
            assert await asyncio.to_thread(figure) == 2
            for worker in fleet:
                worker.stop()
            await asyncio.gather(*working)

    def figure() -> int:
        env.context.live_snapshot.forget()
        with env.program(Role.VIEWER) as client:
            assert client.get("/console/queues").status_code == 200
            return int(client.get("/api/overview").json()["figures"]["workers"])

    async def until(condition: str, holds: Any) -> None:
        await asyncio.to_thread(Deadline(60, condition).wait, holds)

    asyncio.run(work())
    assert workers(env.database) == []


def test_a_caller_that_died_is_not_seen_when_its_lease_is_over_and_its_place_is_taken_again(
    database: Database,
) -> None:
    with psycopg.connect(database.url, autocommit=True) as connection:
        for life in range(12):
            # None of them leaves: each finds the numbers of the dead, and none has more than one.
            worker = WorkerRegistry(f"worker-{life}", ["mail"], Serves({"send": None}), ttl_seconds=60)
            worker.keep(connection)
            worker.keep(connection)
            assert [owner for owner, *_ in workers(database)] == [f"worker-{life}"]
            with database.connect_admin() as admin:
                admin.execute(
                    "update fencepost.lease set acquired_at = acquired_at - interval '1 hour',"
                    " renewed_at = renewed_at - interval '1 hour',"
                    " expires_at = expires_at - interval '1 hour'"
                )
            assert workers(database) == []
    [[places]] = fetched(database, "select count(*) from fencepost.lease")
    assert places <= 8


def test_the_holder_of_a_job_is_seen_as_long_as_its_lease_lasts(database: Database) -> None:
    Watchers(database)
    assert workers(database) == [(OWNER, 1, False)]
    with database.connect_admin() as admin:
        admin.execute("update fencepost.job_running set expires_at = claimed_at")
    assert workers(database) == []


def test_one_whose_place_was_taken_finds_another(database: Database) -> None:
    with psycopg.connect(database.url, autocommit=True) as connection:
        worker = WorkerRegistry("slow", ["mail"], Serves({"send": None}), ttl_seconds=60)
        worker.keep(connection)
        with database.connect_admin() as admin:
            admin.execute("update fencepost.lease set owner = 'another', token = token + 1")
        worker.keep(connection)
        assert [owner for owner, *_ in workers(database)] == ["another", "slow"]
        worker.leave(connection)
        assert [owner for owner, *_ in workers(database)] == ["another"]
    assert fetched(database, "select * from fencepost.refusals") == []


def test_being_seen_costs_one_row_of_one_statement_a_beat(database: Database) -> None:
    with psycopg.connect(database.url, autocommit=True) as connection:
        worker = WorkerRegistry("busy", ["mail"], Serves({"send": None}), ttl_seconds=60)
        worker.keep(connection)
        events = fetched(database, "select event_id from fencepost.events")
        for _ in range(5):
            worker.keep(connection)
        assert fetched(database, "select event_id from fencepost.events") == events
        assert fetched(database, "select count(*) from fencepost.lease") == [(1,)]


DECISION = {"target": "node7", "reason": "a new disk"}


def test_an_operator_takes_a_host_out_of_service_without_scripts_and_puts_it_back(env: ConsoleEnv) -> None:
    Watchers(env.database)
    with env.visitor(Role.OPERATOR) as client:
        assert client.post("/console/workers/disable", data={**DECISION, **YES}).status_code == 303
        shown = client.get("/console/workers").text
        assert "node7" in shown
        assert "a new disk" in shown
        assert 'action="/console/workers/enable"' in shown
        (need,) = [one for one in needs(env) if "node7" in one["what"]]
        assert need["what"] == "node7 is disabled by operator@console: a new disk"
        assert need["where"] == "/console/workers"
        claim: LiteralString = "select * from fencepost.job_claim_next('mail', 1, 'worker@node7:41:0a', 9)"
        assert fetched(env.database, claim) == []
        assert client.post("/console/workers/enable", data={**DECISION, **YES}).status_code == 303
        assert client.post("/console/workers/enable", data={**DECISION, **YES}).status_code == 404
    with env.visitor(Role.ADMIN) as client:
        entries = client.get("/api/audit", params={"actor": "operator"}).json()["entries"]
    assert [(one["action"], one["outcome"]) for one in entries if "worker" in one["action"]] == [
        ("worker.enable", "refused: not_found"),
        ("worker.enable", "done"),
        ("worker.disable", "done"),
    ]


def needs(env: ConsoleEnv) -> list[dict[str, Any]]:
    env.context.live_snapshot.forget()
    with env.program(Role.VIEWER) as client:
        found: list[dict[str, Any]] = client.get("/api/overview").json()["needs"]
    return found


def test_pins_are_set_by_words_and_removed(env: ConsoleEnv) -> None:
    with env.visitor(Role.OPERATOR) as client:
        words = {**DECISION, "queues": "mail, reports", "kinds": "", "offers": "language:cpp"}
        assert client.post("/console/workers/pin", data={**words, **YES}).status_code == 303
        (row,) = client.get("/api/workers").json()["workers"]
        assert row["pinned_to"] == {"kinds": None, "queues": ["mail", "reports"], "offers": "language:cpp"}
        assert (
            "mail, reports language:cpp by operator@console: a new disk"
            in client.get("/console/workers").text
        )
        assert client.post("/console/workers/pin", data={**DECISION, "queues": " ", **YES}).status_code == 400
        assert client.post("/console/workers/unpin", data={**DECISION, **YES}).status_code == 303
        assert client.get("/api/workers").json()["workers"] == []


def test_a_viewer_sees_and_does_not_decide(env: ConsoleEnv) -> None:
    with env.visitor(Role.VIEWER) as client:
        assert "<form" not in client.get("/console/workers").text.partition("<main")[2].partition("</main")[0]
        for word in ("drain", "disable", "enable", "pin", "unpin"):
            assert client.post(f"/console/workers/{word}", data={**DECISION, **YES}).status_code == 403
