"""Both servers together, and the three ways into the database."""

from pathlib import Path

import psycopg
import pytest

from fencepost.embedded import Pair, ServerStartError

# What the migrations do before the logins can exist.
GROUPS = b"create role fencepost_app nologin; create role fencepost_read nologin"


def who(url: str) -> tuple[str, str]:
    with psycopg.connect(url) as connection:
        row = connection.execute("select current_user, current_database()").fetchone()
        assert row is not None
        return row[0], row[1]


def test_a_pair_comes_with_its_database(directory: Path) -> None:
    with Pair(directory) as pair:
        assert who(pair.admin_url) == ("postgres", "fencepost")
        assert pair.redis_url == pair.valkey.url
    assert not pair.postgres.running
    assert not pair.valkey.running


def test_the_logins_are_members_of_their_groups_and_nothing_more(directory: Path) -> None:
    with Pair(directory) as pair:
        with psycopg.connect(pair.admin_url, autocommit=True) as connection:
            connection.execute(GROUPS)
        pair.create_logins()
        pair.create_logins()
        assert who(pair.service_url) == ("fencepost_service", "fencepost")
        assert who(pair.viewer_url) == ("fencepost_viewer", "fencepost")
        with psycopg.connect(pair.admin_url) as connection:
            rows = connection.execute(
                "select member::regrole::text, roleid::regrole::text, rolsuper or rolcreaterole "
                "from pg_auth_members join pg_roles on pg_roles.oid = member "
                "where rolname like 'fencepost%' order by 1"
            ).fetchall()
    assert rows == [
        ("fencepost_service", "fencepost_app", False),
        ("fencepost_viewer", "fencepost_read", False),
    ]


def test_logins_before_the_migrations_are_refused(directory: Path) -> None:
    with Pair(directory) as pair, pytest.raises(psycopg.errors.UndefinedObject, match="fencepost_app"):
        pair.create_logins()


def test_a_pair_starts_again_with_its_data(directory: Path) -> None:
    with Pair(directory) as pair, psycopg.connect(pair.admin_url) as connection:
        connection.execute("create table kept as select 7 as n")
    with Pair(directory) as pair, psycopg.connect(pair.admin_url) as connection:
        assert connection.execute("select n from kept").fetchone() == (7,)


def test_two_pairs_run_side_by_side(directory: Path) -> None:
    with Pair(directory / "one") as one, Pair(directory / "two") as two:
        assert one.admin_url != two.admin_url
        assert who(one.admin_url) == who(two.admin_url)


def test_when_one_server_fails_the_other_does_not_stay(directory: Path) -> None:
    pair = Pair(directory, settings={"no_such_setting": 1})
    with pytest.raises(ServerStartError):
        pair.start()
    assert not pair.valkey.running
    assert not pair.postgres.running
