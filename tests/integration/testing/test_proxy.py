"""The proxy, between real clients and real servers."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import cast

import asyncpg
import psycopg
import pytest
import redis

from fencepost.embedded import Database
from fencepost.embedded._deadline import Deadline
from fencepost.testing import Proxy


@pytest.fixture
def proxy(database: Database) -> Iterator[Proxy]:
    with database.connect_admin() as admin:
        admin.execute("create table note (text text)")
        admin.execute("grant all on note to public")
    with Proxy.for_postgres(database.url) as proxy:
        yield proxy


def notes(database: Database) -> list[str]:
    with database.connect() as connection:
        return [str(text) for (text,) in connection.execute("select text from note order by text")]


def redis_client(url: str) -> redis.Redis:
    """One that does not hide a fault by trying again."""
    connect = cast("Callable[..., redis.Redis]", redis.Redis.from_url)  # pyright: ignore[reportUnknownMemberType]
    return connect(url, retry=None)


def write(proxy: Proxy, text: str) -> None:
    with closing(psycopg.connect(proxy.url)) as connection:
        connection.execute("insert into note values (%s)", (text,))
        connection.commit()


def test_without_faults_everything_passes(proxy: Proxy, database: Database) -> None:
    with psycopg.connect(proxy.url) as connection:
        row = connection.execute("select sum(length(x)) from (select repeat('x', 100000) x) _").fetchone()
        assert row == (100_000,)
        rows = connection.execute("select g, repeat('x', 100) from generate_series(1, 20000) g").fetchall()
        assert len(rows) == 20_000
    write(proxy, "a")
    assert notes(database) == ["a"]


def test_a_lost_reply_leaves_the_commit_done(proxy: Proxy, database: Database) -> None:
    drop_rule = proxy.lose_commit_reply()
    with pytest.raises(psycopg.OperationalError):
        write(proxy, "a")
    assert drop_rule.fired.is_set()
    assert notes(database) == ["a"]


def test_a_lost_commit_leaves_nothing_done(proxy: Proxy, database: Database) -> None:
    drop_rule = proxy.lose_commit()
    with pytest.raises(psycopg.OperationalError):
        write(proxy, "a")
    assert drop_rule.fired.is_set()
    assert notes(database) == []


def test_exactly_the_commit_that_was_asked_for_is_hit(proxy: Proxy, database: Database) -> None:
    proxy.lose_commit_reply(nth=3)
    write(proxy, "a")
    write(proxy, "b")
    with pytest.raises(psycopg.OperationalError):
        write(proxy, "c")
    write(proxy, "d")
    assert notes(database) == ["a", "b", "c", "d"]


def test_a_statement_that_only_speaks_of_commits_passes(proxy: Proxy) -> None:
    drop_rule = proxy.lose_commit_reply()
    with psycopg.connect(proxy.url, autocommit=True) as connection:
        assert connection.execute("select 'COMMIT'").fetchone() == ("COMMIT",)
    assert not drop_rule.fired.is_set()


async def test_another_driver_loses_its_commit_too(proxy: Proxy, database: Database) -> None:
    proxy.lose_commit_reply()
    connection = await asyncpg.connect(proxy.url)
    with pytest.raises(asyncpg.ConnectionDoesNotExistError):
        async with connection.transaction():
            await connection.execute("insert into note values ('a')")
    assert notes(database) == ["a"]


def test_a_half_open_connection_answers_nothing_and_stays(proxy: Proxy, database: Database) -> None:
    drop_rule = proxy.lose_commit_reply(half_open=True)
    with closing(psycopg.connect(proxy.url)) as connection:
        connection.execute("insert into note values ('a')")
        connection.pgconn.send_query(b"commit")
        assert drop_rule.fired.wait(60)
        connection.pgconn.consume_input()
        assert connection.pgconn.is_busy()
        assert notes(database) == ["a"]


def test_cut_ends_what_is_open_and_lets_new_ones_in(proxy: Proxy) -> None:
    with psycopg.connect(proxy.url, autocommit=True) as old:
        proxy.cut()
        with pytest.raises(psycopg.OperationalError):
            old.execute("select 1")
    write(proxy, "a")


def test_the_server_sees_a_cut_as_well(proxy: Proxy, database: Database) -> None:
    holder = psycopg.connect(proxy.url)
    holder.execute("lock table note")
    proxy.cut()
    with database.connect() as other:
        other.execute("set lock_timeout = '10s'")
        other.execute("insert into note values ('b')")
    holder.close()


def test_a_swallowed_request_never_reaches_the_server(proxy: Proxy, database: Database) -> None:
    with closing(psycopg.connect(proxy.url, autocommit=True)) as connection:
        proxy.swallow()
        connection.pgconn.send_query(b"insert into note values ('a')")
        proxy.heal()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("select 1")
    write(proxy, "b")
    assert notes(database) == ["b"]


def test_refusing_keeps_the_old_and_turns_the_new_away(proxy: Proxy) -> None:
    with psycopg.connect(proxy.url, autocommit=True) as old:
        proxy.refuse()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(proxy.url)
        assert old.execute("select 1").fetchone() == (1,)
    proxy.heal()
    write(proxy, "a")


def test_a_delay_is_felt_and_healed(proxy: Proxy) -> None:
    with psycopg.connect(proxy.url, autocommit=True) as connection:
        proxy.delay(0.2)
        start = time.monotonic()
        connection.execute("select 1")
        assert time.monotonic() - start >= 0.2


def test_connections_overtake_each_other_and_lose_nothing(proxy: Proxy, database: Database) -> None:
    with ExitStack() as open_ones, ThreadPoolExecutor(6) as crowd:
        senders = [open_ones.enter_context(psycopg.connect(proxy.url, autocommit=True)) for _ in range(6)]
        proxy.reorder(1.0)

        def send(number: int) -> None:
            senders[number].execute("insert into note values (%s)", (str(number),))

        list(crowd.map(send, range(6)))

    with database.connect() as connection:
        arrived = [text for (text,) in connection.execute("select text from note order by ctid")]
    assert sorted(arrived) == [str(number) for number in range(6)]
    assert arrived != sorted(arrived)


def test_closed_connections_are_forgotten(proxy: Proxy) -> None:
    write(proxy, "a")
    Deadline(60, "no connection is left").wait(lambda: proxy.connections == 0)


def test_a_server_that_is_away_looks_away(database: Database) -> None:
    nowhere = database.url.replace("run", "walk")
    with Proxy.for_postgres(nowhere) as proxy, pytest.raises(psycopg.OperationalError):
        psycopg.connect(proxy.url)


def test_redis_loses_the_reply_to_a_command_that_was_done(redis_url: str) -> None:
    with Proxy.for_redis(redis_url) as proxy, redis_client(proxy.url) as client:
        client.set("a", 1)
        proxy.lose_reply()
        with pytest.raises(redis.ConnectionError):
            client.incr("a")
    with redis_client(redis_url) as direct:
        assert direct.get("a") == b"2"


def test_redis_comes_back_after_a_refusal(redis_url: str) -> None:
    with Proxy.for_redis(redis_url) as proxy, redis_client(proxy.url) as client:
        client.get("a")
        proxy.refuse()
        proxy.cut()
        with pytest.raises(redis.ConnectionError):
            client.get("a")
        proxy.heal()
        assert client.get("a") is None
