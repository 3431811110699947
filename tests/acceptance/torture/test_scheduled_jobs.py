"""Jobs by the clock, entries that cannot be read and workers that leave: a short torture, and its judge."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from typing import Any, LiteralString

import pytest
from psycopg.types.json import Jsonb

from fencepost.embedded._valkey import ValkeyServer
from fencepost.redis_streams.connection import connect_sync
from fencepost_torture._pace import RunPace
from fencepost_torture._plan import RunPlan
from fencepost_torture._run import TortureRun
from fencepost_torture._system_environment import SystemEnvironment
from fencepost_torture._tally import Tally
from fencepost_torture.systems._jobs import HELPING
from fencepost_torture.systems._scheduled_jobs import STRAYS, ScheduledJobs
from tests.acceptance.torture.wreckage import left, rules, wreck

PLACE = "fencepost_torture.systems._scheduled_jobs:ODD_JOBS"
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
SECONDS = 10

# What correct workers leave behind, made by the test's own code alone.
WORKED: LiteralString = """
    with done as (
      insert into effect (key, job_id, attempt)
      select key, row_number() over (), 1 from asked returning key, job_id, attempt
    ) insert into finishing select job_id, attempt, 'finished', key, 'own' from done
"""
TICKED: LiteralString = """
    insert into effect (key, job_id, attempt)
    select 'every-' || ms || '@' || n * ms * 1000, -row_number() over (), 1
    from unnest(array[1000, 1100, 1300, 1700, 1900]) ms,
      generate_series(1893499200000000 / (ms * 1000) + 1, 1893499210000000 / (ms * 1000)) n
"""
RECORD: LiteralString = "select fencepost.stream_poison(%s, %s, %s, %s)"


def every_point_was_hit(tally: Tally, _effects: Mapping[str, int]) -> bool:
    return all(tally.points[point] for point in ScheduledJobs.points)


@pytest.mark.timeout(300)
def test_a_short_torture_strikes_every_point_and_breaks_nothing() -> None:
    plan = RunPlan(
        3,
        120.0,
        [PLACE],
        ["crash"],
        gap_seconds=0.05,
        lease_seconds=1.0,
        pace=RunPace(evenly=True, helpings_per_second={PLACE: 3}),
        server_settings={"fsync": "off", "full_page_writes": "off"},
        liveness_leases=30,
        enough=every_point_was_hit,
    )

    outcome = TortureRun(plan).run()

    assert outcome.judgement.breaches == [], outcome.log[-4000:]
    assert every_point_was_hit(outcome.tally, {}), outcome.tally.points


@pytest.fixture
def asked(env: SystemEnvironment) -> Iterator[ScheduledJobs]:
    """One helping at noon, of which nothing is done."""
    env.clock.freeze(NOON)
    system = ScheduledJobs()
    with system.open(env):
        system.ask(env, 0)
        yield system


@pytest.fixture
def done(env: SystemEnvironment, asked: ScheduledJobs) -> ScheduledJobs:
    """The same after ten seconds in which everything was done."""
    wreck(env, WORKED)
    asked.account(env)
    env.clock.advance(SECONDS)
    wreck(env, TICKED)
    record(env)
    assert left(asked, env) == set()
    return asked


def record(env: SystemEnvironment) -> None:
    """Write down and remove what lies in the stream."""
    client: Any = connect_sync(env.redis_url, reply_seconds=5)
    with closing(client), env.database.connect_admin() as admin:
        for entry, fields in client.xrange(ScheduledJobs.stream_key):
            reason = "invalid_field" if "job_id" in fields else "missing_field"
            admin.execute(RECORD, (ScheduledJobs.stream_key, entry, reason, Jsonb(fields)))
            client.xdel(ScheduledJobs.stream_key, entry)


FIRST: LiteralString = "every-1000@1893499201000000"
FOURTH: LiteralString = "every-1000@1893499204000000"
LAST: LiteralString = "every-1000@1893499210000000"
DAMAGES: dict[str, tuple[LiteralString, set[str]]] = {
    "nothing": ("analyze effect", set()),
    "a job is done twice": (
        "insert into effect (key, job_id, attempt) select key, 0, 1 from effect where key = 'farewell-0'",
        {"doubled"},
    ),
    "a job is never done": ("delete from effect where key = 'farewell-0'", {"lost"}),
    "a tick is taken twice": (
        f"insert into effect (key, job_id, attempt) values ('{FOURTH}', 0, 1)",
        {"doubled"},
    ),
    "the first tick is lost": (f"delete from effect where key = '{FIRST}'", {"lost"}),
    "a tick is lost": (f"delete from effect where key = '{FOURTH}'", {"lost"}),
    "the last tick is lost": (f"delete from effect where key = '{LAST}'", {"lost"}),
    "a schedule never ticks": ("delete from effect where starts_with(key, 'every-1300@')", {"lost"}),
    "a tick comes at a moment that is none": (
        "insert into effect (key, job_id, attempt) values ('every-1000@1893499204000001', 0, 1)",
        {"unrequested"},
    ),
    "a tick comes that need not": (
        "insert into effect (key, job_id, attempt) values ('every-1000@1893499211000000', 0, 1)",
        set(),
    ),
    "a tick is passed over where the latest is enough": (
        "delete from effect where key = (select min(key) from effect where starts_with(key, 'every-1900@'))",
        set(),
    ),
    "and one is taken twice": (
        """insert into effect (key, job_id, attempt)
           select min(key), 0, 1 from effect where starts_with(key, 'every-1900@')""",
        {"doubled"},
    ),
    "an entry is not recorded": (
        "delete from fencepost.event where detail -> 'fields' ->> 'payload_ref' = 'stray-0-1'",
        {"lost"},
    ),
    "an entry is recorded twice": (
        """select fencepost.stream_poison(split_part(subject, '#', 1), split_part(subject, '#', 2),
             detail ->> 'reason', detail -> 'fields') from fencepost.event where event = 'poison'""",
        set(),
    ),
    "an entry is recorded as another": (
        "update fencepost.event set subject = 'fencepost:{torture-odd-jobs}#1-1' where event = 'poison'",
        {"as it was found"},
    ),
    "an entry is recorded for another reason": (
        """update fencepost.event set detail = jsonb_set(detail, '{reason}', '"missing_field"')
           where event = 'poison'""",
        {"as it was found"},
    ),
    "an entry is recorded that nobody wrote": (
        """select fencepost.stream_poison('fencepost:{torture-odd-jobs}', '1-1', 'missing_field',
             '{"payload_ref": "nobody"}')""",
        {"unrequested"},
    ),
}


@pytest.mark.parametrize(("damage", "seen"), DAMAGES.values(), ids=DAMAGES)
def test_one_wrong_row_is_seen(
    env: SystemEnvironment, done: ScheduledJobs, damage: LiteralString, seen: set[str]
) -> None:
    wreck(env, damage)

    assert rules(done, env) == seen


def test_a_tick_that_has_come_and_is_not_done_is_left_behind(
    env: SystemEnvironment, done: ScheduledJobs
) -> None:
    wreck(
        env,
        f"delete from effect where key = '{LAST}'",
        "delete from effect where key = (select max(key) from effect where starts_with(key, 'every-1900@'))",
    )

    late = left(done, env)

    assert {key.partition("@")[0] for key in late} == {"every-1000", "every-1900"}
    assert LAST in late


def test_an_entry_is_owed_until_it_is_recorded(env: SystemEnvironment, asked: ScheduledJobs) -> None:
    assert asked.account(env).open == HELPING + 1 + STRAYS
    assert "fencepost:{torture-odd-jobs}" in left(asked, env)

    record(env)

    account = asked.account(env)
    assert (account.open, account.done) == (HELPING + 1, STRAYS)


def test_no_caller_owes_an_entry_that_redis_has_forgotten(
    env: SystemEnvironment, asked: ScheduledJobs, valkey: ValkeyServer
) -> None:
    wreck(env, WORKED)
    assert rules(asked, env) == {"lost"}

    valkey.flush()

    assert asked.account(env).open == 0
    assert rules(asked, env) == set()


def test_an_entry_that_may_never_have_been_written_is_not_owed_and_may_be_recorded(
    env: SystemEnvironment, asked: ScheduledJobs
) -> None:
    wreck(env, WORKED)
    record(env)
    at = env.redis_url
    env.redis_url = "redis://127.0.0.1:1/0"
    asked.ask(env, 1)
    env.redis_url = at
    wreck(env, "truncate effect, finishing", WORKED)

    assert rules(asked, env) == set()
    wreck(
        env,
        """select fencepost.stream_poison('fencepost:{torture-odd-jobs}', '1-1', 'missing_field',
             '{"payload_ref": "stray-1-0"}')""",
    )
    assert rules(asked, env) == set()
