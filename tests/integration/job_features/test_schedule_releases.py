"""Schedules belong to releases: what no live worker declares retires, and two releases do not fight."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fencepost import Fencepost, Job
from fencepost.embedded import Database
from fencepost.jobs._scheduler import RELEASE_SECONDS, Scheduler, declare
from fencepost.testing import Clock
from tests.integration.job_features.probes import Probes

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
STATES = "select name, retired_at is not null from fencepost.schedules order by name"
WHEN = "select expression from fencepost.schedules where name = 'report'"
TICKS = "select tick from fencepost.job_tick order by tick"


@pytest.fixture
def clock(clock: Clock) -> Clock:
    clock.freeze(NOON)
    return clock


class Node:
    """A worker's scheduler, of a release that has these schedules."""

    def __init__(self, url: str, schedules: dict[str, str], **terms: Any) -> None:
        self.fp = Fencepost(url)
        for name, expression in schedules.items():

            @self.fp.cron(expression, name=name, **terms)
            @self.fp.job("reports", kind=name)
            async def report(job: Job) -> None: ...

    async def start(self) -> "Node":
        await self.fp.open()
        self.scheduler = Scheduler(self.fp, "test")
        self.scheduler.release = await declare(self.fp, self.fp.handlers, self.fp.schedules.declared, "test")
        return self

    async def tick(self) -> None:
        while await self.scheduler.tick() == 0:
            pass


@asynccontextmanager
async def nodes(*made: Node) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        for node in made:
            await node.fp.close()


Make = Callable[..., Node]


@pytest.fixture
def make(database: Database) -> Make:
    def make(schedules: dict[str, str], **terms: Any) -> Node:
        return Node(database.url, schedules, **terms)

    return make


BOTH = {"report": "*/5 * * * *", "other": "0 * * * *"}


async def test_a_schedule_lives_while_an_old_worker_declares_it_and_then_retires(
    make: Make, clock: Clock, probes: Probes
) -> None:
    old, new = make(BOTH), make({"other": "0 * * * *"})
    async with nodes(old, new):
        await old.start()
        await new.start()
        assert probes.rows(STATES) == [("other", False), ("report", False)], "the old worker still has it"
        for _ in range(6):
            clock.advance(RELEASE_SECONDS / 3)
            await old.tick()
            await new.tick()
        assert probes.rows(STATES) == [("other", False), ("report", False)]
        # The old worker is gone: it renews nothing any more.
        for _ in range(4):
            clock.advance(RELEASE_SECONDS / 3)
            await new.tick()
        assert probes.rows(STATES) == [("other", False), ("report", True)]
        fired = probes.column(TICKS)
        clock.advance(3300)
        await new.tick()
        assert [tick for tick in probes.column(TICKS) if tick not in fired] == [NOON + timedelta(hours=1)]
    assert [event for event, _ in probes.events("schedule", "report")] == ["declared", "retired"]


async def test_workers_that_were_all_gone_come_back_to_their_schedules(
    make: Make, clock: Clock, probes: Probes
) -> None:
    before, after = make(BOTH, missed="all"), make(BOTH, missed="all")
    async with nodes(before, after):
        await before.start()
        clock.advance(1200)
        await after.start()
        await after.tick()
    assert probes.column(TICKS) == [NOON + timedelta(minutes=number) for number in (5, 10, 15, 20)]
    assert [event for event, _ in probes.events("schedule", "report")] == ["declared"]


@pytest.mark.parametrize(("missed", "made_up"), [("all", [5, 10, 15, 20]), ("once", [20]), ("skip", [])])
async def test_a_retired_schedule_comes_back_and_makes_up_for_missed_ticks_as_was_said(
    make: Make, clock: Clock, probes: Probes, missed: str, made_up: list[int]
) -> None:
    mine, theirs, mine_again = (
        make({"report": "*/5 * * * *"}, missed=missed),
        make({}),
        make({"report": "*/5 * * * *"}, missed=missed),
    )
    theirs.fp.job("other", kind="other")(_nothing)
    async with nodes(mine, theirs, mine_again):
        await mine.start()
        clock.advance(RELEASE_SECONDS + 1)
        await theirs.start()
        assert probes.rows(STATES) == [("report", True)]
        clock.freeze(NOON + timedelta(minutes=23))
        await theirs.tick()
        assert probes.column(TICKS) == []
        await mine_again.start()
        assert probes.rows(STATES) == [("report", False)]
        await mine_again.tick()
    assert probes.column(TICKS) == [NOON + timedelta(minutes=number) for number in made_up]
    events = [event for event, _ in probes.events("schedule", "report")]
    assert events == ["declared", "retired", "revived"]


async def _nothing(job: Job) -> None: ...


async def test_two_releases_side_by_side_do_not_overwrite_each_other(
    make: Make, clock: Clock, probes: Probes
) -> None:
    old, new, old_restarted = (
        make({"report": when}) for when in ("*/5 * * * *", "*/10 * * * *", "*/5 * * * *")
    )
    async with nodes(old, new, old_restarted):
        await old.start()
        clock.advance(1)
        await new.start()
        assert probes.value(WHEN) == "*/10 * * * *"
        clock.advance(1)
        await old_restarted.start()
        for _ in range(10):
            clock.advance(60)
            for node in (old, new, old_restarted):
                await node.tick()
            assert probes.value(WHEN) == "*/10 * * * *", "the newer release has precedence"
        assert probes.column(TICKS) == [NOON + timedelta(minutes=10)]
        # Rolled back: the new release's workers are gone.
        for _ in range(4):
            clock.advance(RELEASE_SECONDS / 3)
            await old.tick()
        assert probes.value(WHEN) == "*/5 * * * *"
        clock.freeze(NOON + timedelta(minutes=15))
        await old.tick()
        assert probes.column(TICKS) == [NOON + timedelta(minutes=number) for number in (10, 15)]
    assert [event for event, _ in probes.events("schedule", "report")] == ["declared"] * 3


async def test_a_release_without_schedules_retires_those_of_the_last_one(
    make: Make, clock: Clock, probes: Probes
) -> None:
    last, empty = make({"report": "*/5 * * * *"}), make({})
    empty.fp.job("other", kind="other")(_nothing)
    async with nodes(last, empty):
        await last.start()
        await empty.start()
        assert probes.rows(STATES) == [("report", False)]
        clock.advance(RELEASE_SECONDS + 1)
        await empty.tick()
        assert probes.rows(STATES) == [("report", True)]


async def test_releases_that_are_long_gone_are_forgotten(make: Make, clock: Clock, probes: Probes) -> None:
    old, new = make({"report": "*/5 * * * *"}), make({"report": "0 * * * *"})
    async with nodes(old, new):
        await old.start()
        clock.advance(2 * 86_400)
        await new.start()
    assert probes.value("select count(*) from fencepost.job_schedule_release") == 1


async def test_a_renewal_writes_once_in_a_third_of_its_time_and_takes_no_lock(
    make: Make, clock: Clock, probes: Probes
) -> None:
    node = make(BOTH)
    async with nodes(node):
        await node.start()
        written = "select xmin::text from fencepost.job_schedule_release"
        first = probes.value(written)
        clock.advance(RELEASE_SECONDS / 3)
        await node.tick()
        assert probes.value(written) == first
        clock.advance(1)
        await node.tick()
        assert probes.value(written) != first


BROKEN = [
    (
        "a release that no worker renews counts as live",
        (
            "do $$ begin execute replace(pg_get_functiondef("
            "'fencepost._schedule_changes(timestamptz)'::regprocedure),"
            " 'r.live_until > p_now and', ''); end $$"
        ),
    ),
]


@pytest.mark.parametrize("plant", [plant for _, plant in BROKEN], ids=[name for name, _ in BROKEN])
async def test_a_planted_bug_keeps_a_schedule_whose_code_is_gone(
    make: Make, clock: Clock, probes: Probes, plant: Any
) -> None:
    """What the tests above would see if the check were missing."""
    last, other = make({"report": "*/5 * * * *"}), make({"other": "0 * * * *"})
    async with nodes(last, other):
        await last.start()
        probes.plant(plant)
        clock.advance(RELEASE_SECONDS + 1)
        await other.start()
    assert probes.rows(STATES) == [("other", False), ("report", False)]
