"""Schedules: one job for each tick, on any number of nodes."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fencepost import Fencepost, Job, NotFound
from fencepost.cli._status_metrics import StatusCollector
from fencepost.cli._status_snapshot import read_board
from fencepost.embedded import Database
from fencepost.jobs._scheduler import Scheduler, declare
from fencepost.kernel import queue
from fencepost.kernel import schedule as kernel_schedule
from fencepost.testing import Clock, PlannedCrash, Signals, crash_at
from tests.integration.job_features.conftest import Working
from tests.integration.job_features.probes import Probes

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
TICKS = "select tick from fencepost.job_tick order by tick"


@pytest.fixture
def clock(clock: Clock) -> Clock:
    clock.freeze(NOON)
    return clock


def minutes(*numbers: float) -> list[datetime]:
    return [NOON + timedelta(minutes=number) for number in numbers]


def reporting(fp: Fencepost, **terms: Any) -> None:
    """A report every five minutes."""

    @fp.cron("*/5 * * * *", **terms)
    @fp.job("reports")
    async def report(job: Job, scope: str = "all") -> None: ...


async def declared(fp: Fencepost) -> Scheduler:
    """A scheduler as a worker has it, which has declared what its code has."""
    scheduler = Scheduler(fp, "test")
    scheduler.release = await declare(fp, fp.handlers, fp.schedules.declared, "test")
    return scheduler


async def test_a_tick_submits_a_job_that_carries_its_schedule_and_its_moment(
    fp: Fencepost, clock: Clock, probes: Probes
) -> None:
    reporting(fp, arguments={"scope": "eu"})
    scheduler = await declared(fp)
    assert await scheduler.tick() == pytest.approx(30), "the next tick is five minutes off: look in between"
    clock.advance(299)
    assert await scheduler.tick() == pytest.approx(1)
    assert probes.rows(TICKS) == []

    clock.advance(1)
    await scheduler.tick()
    [(payload, headers)] = probes.rows("select payload, headers from fencepost.job")
    assert payload == {"scope": "eu"}
    assert (headers["schedule"], datetime.fromisoformat(headers["tick"])) == ("report", minutes(5)[0])
    assert len(headers["trace_id"]) == 32


async def test_many_nodes_at_once_fire_each_tick_once(
    database: Database, clock: Clock, probes: Probes
) -> None:
    nodes = [Fencepost(database.url) for _ in range(5)]
    for node in nodes:
        reporting(node)
        await node.open()
    schedulers = [await declared(node) for node in nodes]
    for _ in range(10):
        clock.advance(300)
        await asyncio.gather(*(scheduler.tick() for scheduler in schedulers for _ in range(3)))
    assert probes.column(TICKS) == minutes(*range(5, 51, 5))
    assert probes.value("select count(*) from fencepost.job") == 10
    for node in nodes:
        await node.close()


async def test_a_node_that_dies_between_the_tick_and_its_commit_leaves_it_to_another(
    fp: Fencepost, clock: Clock, probes: Probes
) -> None:
    reporting(fp)
    scheduler = await declared(fp)
    clock.advance(300)
    with crash_at("jobs.schedule.before_fire"), pytest.raises(PlannedCrash):
        await scheduler.tick()
    assert probes.rows(TICKS) == []
    with crash_at("jobs.schedule.after_fire"), pytest.raises(PlannedCrash):
        await scheduler.tick()
    await scheduler.tick()
    assert probes.column(TICKS) == minutes(5), "fired by the second, and not again by the third"


async def test_two_proposals_for_one_tick_are_taken_once(fp: Fencepost, clock: Clock, probes: Probes) -> None:
    reporting(fp)
    await declared(fp)
    clock.advance(300)
    [tick], [after] = minutes(5), minutes(10)
    fired = await fp.run(kernel_schedule.fire("report", tick, [tick], after))
    assert [one.tick for one in fired] == [tick]
    assert await fp.run(kernel_schedule.fire("report", tick, [tick], after)) == []
    assert probes.value("select count(*) from fencepost.job") == 1


async def test_the_key_on_the_tick_holds_when_the_next_tick_is_set_back(
    fp: Fencepost, clock: Clock, probes: Probes
) -> None:
    reporting(fp)
    scheduler = await declared(fp)
    clock.advance(300)
    await scheduler.tick()
    probes.plant("update fencepost.job_schedule set next_tick = '2030-01-01 12:05+00'")
    with pytest.raises(Exception, match="job_tick_pkey"):
        await scheduler.tick()
    assert probes.value("select count(*) from fencepost.job") == 1


@pytest.mark.parametrize(
    ("terms", "taken"),
    [
        ({"missed": "once"}, [20]),
        ({"missed": "all"}, [5, 10, 15, 20]),
        ({"missed": "skip", "grace": 60}, []),
        ({"missed": "skip", "grace": 181}, [20]),
        ({"missed": "skip", "grace": 481}, [15, 20]),
    ],
)
async def test_missed_ticks_are_made_up_for_as_was_said(
    fp: Fencepost, clock: Clock, probes: Probes, terms: dict[str, Any], taken: list[int]
) -> None:
    reporting(fp, **terms)
    scheduler = await declared(fp)
    clock.advance(23 * 60)
    while await scheduler.tick() == 0:
        pass
    assert probes.column(TICKS) == minutes(*taken)
    assert probes.value("select next_tick from fencepost.schedules") == minutes(25)[0]


async def test_a_paused_schedule_lets_its_ticks_pass(fp: Fencepost, clock: Clock, probes: Probes) -> None:
    reporting(fp, missed="all")
    scheduler = await declared(fp)
    await fp.run(kernel_schedule.pause("report", "alice"))
    clock.advance(900)
    await scheduler.tick()
    await fp.run(kernel_schedule.resume("report", "bob"))
    await scheduler.tick()
    assert probes.rows(TICKS) == []
    clock.advance(300)
    await scheduler.tick()
    assert probes.column(TICKS) == minutes(20)
    decided = [("declared", "test"), ("paused", "alice"), ("resumed", "bob")]
    assert probes.events("schedule", "report") == decided


async def test_a_pause_outlives_the_next_start(fp: Fencepost, clock: Clock, probes: Probes) -> None:
    reporting(fp)
    await declared(fp)
    await fp.run(kernel_schedule.pause("report", "alice"))
    await declared(fp)
    assert probes.value("select paused_by from fencepost.schedules") == "alice"


async def test_an_unknown_schedule_cannot_be_paused(fp: Fencepost) -> None:
    with pytest.raises(NotFound, match="schedule nothing"):
        await fp.run(kernel_schedule.pause("nothing", "alice"))


async def test_a_restart_keeps_the_next_tick_and_a_new_expression_moves_it(
    database: Database, clock: Clock, probes: Probes
) -> None:
    first, second, third = (Fencepost(database.url) for _ in range(3))
    for node, expression in ((first, "*/5 * * * *"), (second, "*/5 * * * *"), (third, "0 * * * *")):

        @node.cron(expression)
        @node.job("reports")
        async def report(job: Job) -> None: ...

        await node.open()

    await declared(first)
    clock.advance(301)
    await declared(second)
    assert probes.value("select next_tick from fencepost.schedules") == minutes(5)[0], (
        "the tick is still owed"
    )
    await declared(third)
    assert probes.value("select next_tick from fencepost.schedules") == minutes(60)[0]
    for node in (first, second, third):
        await node.close()


async def test_a_full_queue_holds_its_own_schedule_back_and_no_other(
    fp: Fencepost, clock: Clock, probes: Probes
) -> None:
    reporting(fp)

    @fp.cron("*/5 * * * *")
    @fp.job("other")
    async def other(job: Job) -> None: ...

    scheduler = await declared(fp)
    async with fp.transaction() as tx:
        await other.submit(tx)
    await fp.run(queue.bound("other", 1, "test"))
    clock.advance(300)
    await scheduler.tick()
    assert probes.column("select schedule from fencepost.job_tick") == ["report"]

    await fp.run(queue.bound("other", None, "test"))
    await scheduler.tick()
    assert probes.column("select schedule from fencepost.job_tick order by 1") == ["other", "report"]


async def test_a_unique_job_that_still_runs_takes_the_place_of_the_next_tick(
    fp: Fencepost, clock: Clock, probes: Probes
) -> None:
    @fp.every(60)
    @fp.job("reports", unique="one")
    async def report(job: Job) -> None: ...

    scheduler = await declared(fp)
    for _ in range(2):
        clock.advance(60)
        await scheduler.tick()
    first, second = probes.column("select job_id from fencepost.job_tick order by tick")
    assert first == second


async def test_ticks_of_long_ago_are_forgotten_and_do_not_come_again(
    fp: Fencepost, clock: Clock, probes: Probes
) -> None:
    reporting(fp)
    scheduler = await declared(fp)
    clock.advance(300)
    await scheduler.tick()
    clock.advance(60)
    assert await fp.run(kernel_schedule.prune(120, 10)) == 0
    assert await fp.run(kernel_schedule.prune(30, 10)) == 1
    await scheduler.tick()
    assert probes.value("select count(*) from fencepost.job") == 1


async def test_a_worker_fires_what_its_code_declares(fp: Fencepost, probes: Probes, working: Working) -> None:
    ran = asyncio.Event()

    @fp.every(1)
    @fp.job("reports")
    async def report(job: Job) -> None:
        assert job.headers["schedule"] == "report"
        ran.set()

    with Signals() as signals:
        async with working(fp):
            await signals.wait("schedule.fired", within=60)
            await asyncio.wait_for(ran.wait(), 60)


BROKEN: list[tuple[str, Callable[[Probes], None]]] = [
    (
        "the proposal is not compared with the stored tick, and the tick has no key",
        lambda probes: probes.plant(
            "do $$ begin execute replace(pg_get_functiondef("
            "'fencepost.schedule_fire(text, timestamptz, timestamptz[], timestamptz)'::regprocedure),"
            " 'or v_schedule.next_tick <> p_expected', ''); end $$;"
            " alter table fencepost.job_tick drop constraint job_tick_pkey"
        ),
    ),
]


@pytest.mark.parametrize("plant", [plant for _, plant in BROKEN], ids=[name for name, _ in BROKEN])
async def test_a_planted_bug_fires_twice(
    fp: Fencepost, clock: Clock, probes: Probes, plant: Callable[[Probes], None]
) -> None:
    """What the tests above would see if the guard were missing."""
    reporting(fp)
    await declared(fp)
    plant(probes)
    clock.advance(300)
    [tick], [after] = minutes(5), minutes(10)
    for _ in range(2):
        await fp.run(kernel_schedule.fire("report", tick, [tick], after))
    assert probes.value("select count(*) from fencepost.job") == 2


def late(database: Database) -> dict[str, float]:
    """What a scrape says, by schedule."""
    with database.connect() as connection:
        families = {one.name: one for one in StatusCollector(lambda: read_board(connection)).collect()}
    samples = families["fencepost_schedule_late_seconds"].samples
    return {sample.labels["schedule"]: sample.value for sample in samples}


async def test_a_scrape_says_how_late_a_schedule_is_that_no_worker_fires(
    fp: Fencepost, clock: Clock, database: Database
) -> None:
    reporting(fp)
    scheduler = await declared(fp)
    assert late(database) == {"report": 0}, "its next tick lies ahead"

    clock.advance(300 + 90)
    assert late(database) == {"report": 90}

    await scheduler.tick()
    assert late(database) == {"report": 0}, "it has fired"

    clock.advance(600)
    await fp.run(kernel_schedule.pause("report", "carol"))
    assert late(database) == {}, "a paused one is not late"
