"""Every list sorts by its columns, page by page, and finds parts of texts; and says when it did not look at
all of its rows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, LiteralString

import httpx
import pytest

from fencepost.embedded import Database
from fencepost.errors import InvalidInput
from fencepost.flows import _flow_store as flow_store
from fencepost.flows._plan import FlowPlan
from fencepost.kernel.drivers import run
from fencepost_server.console._role import Role
from fencepost_server.console._settings import ConsoleSettings
from fencepost_server.console.listing import whole
from tests.integration.console.env import ConsoleEnv, console
from tests.integration.console.populated_system import FLOW
from tests.integration.console.test_long_lists import ROWS

MORE: LiteralString = """
    select fencepost.job_submit('q-' || n % 3, 'kind-' || n % 2, '{}') from generate_series(1, 7) n;
    insert into fencepost.lease (resource, token, owner, ttl, acquired_at, renewed_at, expires_at)
      select 'sort-' || n, n, nullif('w-' || n % 3, 'w-0'), '1 hour', now(), now(), now() + interval '1 hour'
      from generate_series(1, 7) n;
    select fencepost.outbox_put('letters', nullif('k-' || n % 3, 'k-0'), '{}')
      from generate_series(1, 7) n;
    insert into fencepost.refusal (at, reason, noun, subject, actor, attempted, seen)
      select now(), 'stale_attempt', 'lease', 'sort-' || n % 3, nullif('w-' || n % 2, 'w-0'), '{}', '{}'
      from generate_series(1, 7) n
"""
LISTS = [
    ("/jobs", "jobs", "job_id", "before"),
    ("/outbox", "messages", "id", "before"),
    ("/leases", "leases", "resource", "after"),
    ("/leases", "takeovers", "event_id", "taken_before"),
    ("/refusals", "refusals", "refusal_id", "before"),
    ("/flows/long", "tasks", "resource", "after"),
    ("/flows/long", "dead", "id", "dead_after"),
    ("/flows/long", "savepoints", "savepoint", "saved_before"),
    ("/checkpoints?resource=flow:long/part/10", "checkpoints", "number", "before"),
    ("/nonces/1/one", "transactions", "transaction_id", "sent_before"),
    ("/users", "users", "name", "after"),
    ("/audit", "entries", "audit_id", "before"),
]
SHORT = [
    "/batches",
    "/batches?open=true",
    "/schedules",
    "/webhooks",
    "/workflows",
    "/flows",
    "/checkpoints",
    "/nonces",
    "/orders",
    "/players",
    "/queues",
    "/workers",
    "/dead",
    "/account",
]
"""Lists that have few rows here or none: each of their sorts answers."""


@pytest.fixture
def env(database: Database) -> Iterator[ConsoleEnv]:
    with database.connect_admin() as connection:
        run(connection, flow_store.register("long", FlowPlan(FLOW).picture(), "w"))
        connection.execute(ROWS)
        connection.execute(MORE)
    with console(database) as env:
        yield env


def walked(client: httpx.Client, path: str, table: str, position: str, **query: str) -> list[dict[str, Any]]:
    """All rows of a list, two a page, by what each page says of the next one."""
    found: list[dict[str, Any]] = []
    address = httpx.URL(f"/api{path}").copy_merge_params({"limit": "2", **query})
    for _ in range(60):
        answer = client.get(address)
        assert answer.status_code == 200, (str(address), answer.text)
        facts = answer.json()
        found += facts[table]
        onward = {name: facts.get(f"next_{name}") for name in ("onward", position)}
        following = {name: str(value) for name, value in onward.items() if value is not None}
        if not following:
            return found
        address = address.copy_merge_params(following)
    raise AssertionError(f"{address} does not end")


def sorts(client: httpx.Client, path: str) -> dict[str, set[str]]:
    """The columns of each table whose heads are links that sort."""
    found: dict[str, set[str]] = {}
    for table, column in re.findall(r"sort=-?(\w+)\.(\w+)", client.get(f"/console{path}").text):
        found.setdefault(table, set()).add(column)
    return found


def test_a_list_sorts_by_each_of_its_columns_page_by_page(env: ConsoleEnv) -> None:
    with env.visitor(Role.ADMIN) as client:
        for path, table, key, position in LISTS:
            known = {row[key] for row in walked(client, path, table, position)}
            columns = sorts(client, path)[table]
            assert len(columns) >= 2, (path, columns)
            for column in columns:
                for sign in ("", "-"):
                    told = (path, table, f"{sign}{column}")
                    shown = walked(client, path, table, position, sort=f"{sign}{table}.{column}")
                    keys = [row[key] for row in shown]
                    assert len(keys) == len(set(keys)), (told, keys)
                    assert set(keys) >= known, (told, known - set(keys))
                    values = [row[column] for row in shown if row[column] is not None]
                    if values and not isinstance(values[0], str):
                        assert values == sorted(values, reverse=bool(sign)), told
                    absent = [row[column] is None for row in shown]
                    assert absent == sorted(absent), (told, "a row without a value comes last")


def test_every_sort_of_every_other_list_answers(env: ConsoleEnv) -> None:
    with env.visitor(Role.ADMIN) as client:
        for path in SHORT:
            for table, columns in sorts(client, path).items():
                for column in columns:
                    address = httpx.URL(f"/console{path}").copy_merge_params({"sort": f"-{table}.{column}"})
                    answer = client.get(address)
                    assert answer.status_code == 200, (str(address), answer.text)
                    assert f'data-table="{table}"' in answer.text


def test_a_column_that_is_not_there_and_a_place_that_is_none_are_refused(env: ConsoleEnv) -> None:
    with env.visitor(Role.ADMIN) as client:
        for query in (
            {"sort": "leases.ttl"},
            {"sort": "leases.resource; drop table x"},
            {"sort": "leases.owner", "onward": "7"},
            {"sort": "leases.owner", "onward": '["a"]'},
            {"sort": "leases.owner", "onward": '[["a"], "b"]'},
            {"sort": "leases.token", "onward": '["a", "b"]'},
        ):
            answer = client.get("/api/leases", params=query)
            assert answer.status_code in {400, 422}, (query, answer.text)
            assert client.get("/console/leases", params=query).status_code in {400, 422}, query


def test_a_part_is_searched_for_in_every_list_that_has_a_field_for_it(env: ConsoleEnv) -> None:
    with env.visitor(Role.ADMIN) as client:

        def found(path: str, table: str, position: str, **query: str) -> int:
            return len(walked(client, path, table, position, **query))

        assert found("/leases", "leases", "after", part="SORT-") == 7
        assert found("/leases", "leases", "after", part="sort-", sort="-leases.owner") == 7
        assert found("/leases", "leases", "after", part="%") == 0
        assert found("/flows/long", "dead", "dead_after", part="step-3") == 1
        assert found("/users", "users", "after", part="USER-") == 6
        assert found("/outbox", "messages", "before", part="k-1") == 3
        assert found("/refusals", "refusals", "before", part="sort-1", sort="refusals.at") == 3


def test_a_list_that_is_longer_than_the_window_says_so_and_goes_on(database: Database) -> None:
    with database.connect_admin() as connection:
        connection.execute(
            "insert into fencepost.lease (resource, token, owner, ttl, acquired_at, renewed_at, expires_at)"
            " select 'l-' || lpad(n::text, 4, '0'), n, 'w-' || n % 7, '1 hour', now(), now(), now()"
            " from generate_series(1, 260) n"
        )
    settings = ConsoleSettings(look_seconds=0.2, scan_max=100)
    with console(database, settings) as env, env.visitor(Role.VIEWER) as client:
        page = client.get("/console/leases?sort=-leases.token").text
        assert "Sorted are the first 100 rows" in page
        assert ">l-0100<" in page
        assert ">l-0101<" not in page
        # A search goes on behind the window, from the last row that it looked at.
        rows = walked(client, "/leases", "leases", "after", part="l-025")
        assert [row["resource"] for row in rows] == [f"l-{n:04}" for n in range(250, 260)]
        assert "Searched were 100 rows" in client.get("/console/leases?part=l-025").text


def test_a_whole_list_sorts_by_any_column_that_can_be_compared() -> None:
    rows: list[dict[str, Any]] = [{"name": "b", "size": 2, "of": [1]}, {"name": "a", "size": None, "of": []}]
    assert [row["name"] for row in whole(rows, "t", "t.size")[0]] == ["b", "a"]
    assert [row["name"] for row in whole(rows, "t", "-t.size")[0]] == ["b", "a"]
    assert [row["name"] for row in whole(rows, "t", "t.name")[0]] == ["a", "b"]
    assert whole(rows, "t", "other.name")[0] is rows
    assert list(whole(rows, "t", None)[1].columns) == ["name", "size"]
    assert [row["name"] for row in whole([*rows, {"name": "c"}], "t", "t.size")[0]] == ["b", "a", "c"]
    with pytest.raises(InvalidInput, match="no column 'of' to sort by"):
        whole(rows, "t", "t.of")
