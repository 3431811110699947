"""Any service can adopt the pipeline: a table, two functions, a plan."""

import asyncio

import pytest

from fencepost.embedded import Database
from fencepost_players.mutations.errors import Aborted, KeyReused, Unavailable
from fencepost_players.mutations.pipeline import Pipeline
from tests.integration.mutations.counter import Addition, AddSome, add_some
from tests.waiting_for import until

HITS = AddSome(name="hits")


def value(database: Database) -> int:
    with database.connect_admin() as admin:
        row = admin.execute("select value from fencepost.counter").fetchone()
    assert row is not None
    return int(row[0])


async def test_it_takes_effect_once_and_a_repeat_shows_the_same_throw(
    counters: Pipeline[str, Addition], database: Database
) -> None:
    answers = [await counters.run(add_some, "hits", HITS, request_id="r1") for _ in range(5)]
    assert {answer.layer for answer in answers[1:]} == {"repeat"}
    assert {answer.response["added"] for answer in answers} == {value(database)}
    with pytest.raises(KeyReused):
        await counters.run(add_some, "hits", AddSome(name="others"), request_id="r1")


async def test_many_at_once_all_count(counters: Pipeline[str, Addition], database: Database) -> None:
    async def send(n: int) -> int:
        while True:
            try:
                answer = await counters.run(add_some, "hits", HITS, request_id=f"r{n}")
            except Aborted:
                continue
            return int(answer.response["added"])

    assert sum(await asyncio.gather(*(send(n) for n in range(30)))) == value(database)


async def test_a_database_that_is_away_is_unavailable(
    counters: Pipeline[str, Addition], database: Database
) -> None:
    with database.connect_admin() as admin:
        admin.execute(
            """create or replace function fencepost._mutation_known(
                 p_scope text, p_key text, p_digest text, out outcome text, out response json)
               language plpgsql stable as $$ begin perform pg_sleep(5); end $$"""
        )
    with pytest.raises(Unavailable):
        await _ended(counters, database)


async def _ended(counters: Pipeline[str, Addition], database: Database) -> None:
    """The session that looks is ended by an administrator, as in a failover."""
    sending = asyncio.create_task(counters.run(add_some, "hits", HITS, request_id="r1"))
    end = """select pg_terminate_backend(pid) from pg_stat_activity
             where datname = current_database() and query like '%counter_look%' and pid <> pg_backend_pid()"""

    def is_over() -> bool:
        with database.connect_admin() as admin:
            admin.execute(end)
        return sending.done()

    await until("it was ended as often as it tries", is_over)
    await sending
