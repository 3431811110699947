"""Schedules at run time: added, changed, run, removed and revived by a person, on all workers at once."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from fencepost import Duplicate, Fencepost, InvalidInput, Job, Mismatch, NotFound
from fencepost.embedded import Database
from fencepost.jobs._scheduler import RELEASE_SECONDS, Scheduler, declare
from fencepost.testing import Clock, Signals
from tests.integration.job_features.conftest import Working
from tests.integration.job_features.probes import Probes

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
TICKS = "select tick from fencepost.job_tick order by tick"


@pytest.fixture
def frozen(clock: Clock) -> Clock:
    clock.freeze(NOON)
    return clock


def declare_report(fp: Fencepost) -> None:
    @fp.cron("*/5 * * * *", arguments={"scope": "eu"})
    @fp.job("reports", unique="{scope}", tries=3)
    async def report(job: Job, scope: str) -> None: ...


async def started(fp: Fencepost) -> Scheduler:
    scheduler = Scheduler(fp, "test")
    scheduler.release = await declare(fp, fp.handlers, fp.schedules.declared, "test")
    return scheduler


async def test_an_added_schedule_fires_and_no_release_retires_it(
    fp: Fencepost, frozen: Clock, probes: Probes
) -> None:
    declare_report(fp)
    scheduler = await started(fp)
    added = await fp.schedules.add(
        "report us", "0 * * * *", "report", arguments={"scope": "us"}, actor="alice"
    )
    assert (added.next_tick, added.origin, added.state) == (NOON + timedelta(hours=1), "run time", "active")
    frozen.advance(3600)
    await scheduler.tick()
    [(payload, key, tries)] = probes.rows(
        "select payload, unique_key, tries_max from fencepost.jobs where headers ->> 'schedule' = 'report us'"
    )
    assert (payload, key, tries) == ({"scope": "us"}, "report:us", 3), "as the handler submits it"
    frozen.advance(10 * RELEASE_SECONDS)
    await scheduler.tick()
    assert (await fp.schedules.get("report us")).state == "active"
    with pytest.raises(Duplicate, match="report us"):
        await fp.schedules.add("report us", "0 * * * *", "report", arguments={"scope": "us"})
    assert probes.events("schedule", "report us") == [("added", "alice")]


async def test_a_kind_of_another_process_needs_a_queue(fp: Fencepost, frozen: Clock) -> None:
    with pytest.raises(InvalidInput, match="name the queue"):
        await fp.schedules.add("x", "0 * * * *", "elsewhere")
    added = await fp.schedules.add("x", "every 90s", "elsewhere", queue="far", arguments={"a": 1})
    assert (added.queue, added.kind, added.payload) == ("far", "elsewhere", {"a": 1})


@pytest.mark.parametrize("expression", ["every 0s", "every nans", "61 * * * *", "every", "0 0 30 2 *"])
async def test_an_expression_that_never_matches_is_refused(fp: Fencepost, expression: str) -> None:
    with pytest.raises(InvalidInput):
        await fp.schedules.add("x", expression, "elsewhere", queue="far")


async def test_a_change_outlives_deployments_until_it_is_reset(
    fp: Fencepost, database: Database, frozen: Clock, probes: Probes
) -> None:
    declare_report(fp)
    scheduler = await started(fp)
    await fp.schedules.change("report", expression="0 * * * *", actor="alice")
    changed = await fp.schedules.change("report", arguments={"scope": "asia"}, actor="bob")
    assert (changed.expression, changed.payload) == ("0 * * * *", {"scope": "asia"}), "both are kept"
    assert (changed.next_tick, changed.changed_by) == (NOON + timedelta(hours=1), "bob")

    next_release = Fencepost(database.url)

    @next_release.cron("*/2 * * * *", arguments={"scope": "eu"})
    @next_release.job("reports", unique="{scope}", tries=9)
    async def report(job: Job, scope: str) -> None: ...

    async with next_release:
        frozen.advance(1)
        await started(next_release)
        kept = await fp.schedules.get("report")
        assert (kept.expression, kept.payload) == ("0 * * * *", {"scope": "asia"})
        assert probes.value("select tries_max from fencepost.job_schedule") == 9, "what was not changed"
        await fp.schedules.reset("report", actor="bob")
        back = await fp.schedules.get("report")
    assert (back.expression, back.payload, back.changed_by) == ("*/2 * * * *", {"scope": "eu"}, None)
    await scheduler.tick()
    assert (await fp.schedules.get("report")).next_tick == NOON + timedelta(minutes=2)
    assert probes.column(TICKS) == [], "a moment at which it was changed is no tick"


async def test_arguments_that_make_a_key_are_changed_where_the_handler_is(
    fp: Fencepost, database: Database, frozen: Clock, probes: Probes
) -> None:
    declare_report(fp)
    await started(fp)
    await fp.schedules.change("report", arguments={"scope": "us"})
    assert probes.value("select unique_key from fencepost.job_schedule") == "report:us"
    async with Fencepost(database.url) as elsewhere:
        with pytest.raises(InvalidInput, match="makes a key of the arguments"):
            await elsewhere.schedules.change("report", arguments={"scope": "eu"})


async def test_run_now_submits_beside_the_ticks_and_the_history_shows_both(
    fp: Fencepost, frozen: Clock, probes: Probes
) -> None:
    declare_report(fp)
    scheduler = await started(fp)
    frozen.advance(300)
    # At the very moment of a tick that is not yet fired: the tick is still owed.
    by_hand = await fp.schedules.run_now("report", actor="alice")
    probes.plant("delete from fencepost.job_unique")
    await scheduler.tick()
    history = await fp.schedules.history("report")
    assert [(one.actor, one.state) for one in history] in (
        [(None, "pending"), ("alice", "pending")],
        [("alice", "pending"), (None, "pending")],
    )
    assert by_hand.job_id in {one.job_id for one in history}
    assert (await fp.schedules.get("report")).next_tick == NOON + timedelta(minutes=10)
    assert [one.tick for one in await fp.schedules.history("report", limit=1)] == [history[0].tick]
    assert await fp.schedules.history("report", before=NOON) == []


async def test_a_schedule_that_live_code_declares_cannot_be_removed(
    fp: Fencepost, frozen: Clock, probes: Probes
) -> None:
    declare_report(fp)
    await started(fp)
    with pytest.raises(Mismatch, match="schedule report"):
        await fp.schedules.remove("report")
    frozen.advance(RELEASE_SECONDS + 1)
    await fp.schedules.remove("report", actor="alice")
    assert await fp.schedules.list() == []
    assert probes.events("schedule", "report")[-1] == ("removed", "alice")


async def test_a_retired_schedule_is_revived_by_a_person_and_stays(
    fp: Fencepost, database: Database, frozen: Clock, probes: Probes
) -> None:
    declare_report(fp)
    await started(fp)
    other = Fencepost(database.url)

    @other.job("others")
    async def else_where(job: Job) -> None: ...

    async with other:
        frozen.advance(RELEASE_SECONDS + 1)
        scheduler = await started(other)
        retired = await fp.schedules.get("report")
        assert (retired.state, retired.retired_at) == ("retired", frozen.now())
        with pytest.raises(Mismatch):
            await fp.schedules.reset("report")
        await fp.schedules.revive("report", actor="alice")
        frozen.advance(300)
        await scheduler.tick()
        assert probes.column(TICKS) == [NOON + timedelta(minutes=5)]
        assert (await fp.schedules.get("report")).state == "active"
        # Its code is deployed again: it belongs to the release, and retires with it.
        await started(fp)
        assert (await fp.schedules.get("report")).origin == "code"
        frozen.advance(RELEASE_SECONDS + 1)
        await scheduler.tick()
        assert (await fp.schedules.get("report")).state == "retired"


async def test_a_retired_schedule_can_be_changed_without_coming_back(
    fp: Fencepost, database: Database, frozen: Clock
) -> None:
    declare_report(fp)
    await started(fp)
    other = Fencepost(database.url)
    other.job("others", kind="other")(_nothing)
    async with other:
        frozen.advance(RELEASE_SECONDS + 1)
        await started(other)
    changed = await fp.schedules.change("report", expression="0 * * * *")
    assert (changed.state, changed.expression) == ("retired", "0 * * * *")


async def _nothing(job: Job) -> None: ...


@pytest.mark.parametrize("act", ["get", "reset", "remove", "revive", "run_now", "pause", "resume"])
async def test_what_is_not_there_is_not_found(fp: Fencepost, act: str) -> None:
    with pytest.raises(NotFound, match="nothing"):
        await getattr(fp.schedules, act)("nothing")


async def test_a_change_of_nothing_is_refused(fp: Fencepost, frozen: Clock) -> None:
    declare_report(fp)
    await started(fp)
    with pytest.raises(InvalidInput, match="changes"):
        await fp.schedules.change("report")


async def test_a_worker_that_waits_for_a_later_tick_sees_an_added_schedule_at_once(
    fp: Fencepost, probes: Probes, working: Working
) -> None:
    ran = asyncio.Event()

    @fp.job("reports")
    async def report(job: Job) -> None:
        ran.set()

    with Signals() as signals:
        async with working(fp):
            await signals.wait("listener.listening", within=60)
            await fp.schedules.add("now", "every 1s", "report")
            await asyncio.wait_for(ran.wait(), 20)


def test_the_blocking_form_has_the_same_operations(database: Database, clock: Clock) -> None:
    with Fencepost(database.url).sync() as fp:
        fp.schedules.add("x", "0 * * * *", "elsewhere", queue="far")
        assert [one.name for one in fp.schedules.list()] == ["x"]
        job = fp.schedules.run_now("x")
        assert [one.job_id for one in fp.schedules.history("x")] == [job.job_id]
        fp.schedules.remove("x")
