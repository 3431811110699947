"""Every list goes on: by its key on the pages, to its end in a file."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any, LiteralString

import httpx
import pytest

from fencepost.embedded import Database
from fencepost.flows import _flow_store as flow_store
from fencepost.flows._plan import FlowPlan
from fencepost.kernel.drivers import run
from fencepost_server.console import router
from fencepost_server.console._role import Role
from tests.integration.console.env import ConsoleEnv, console
from tests.integration.console.page import Page
from tests.integration.console.populated_system import FLOW
from tests.integration.console.watchers import Watchers

# As the kernel and the services leave them, in a few statements: what counts is how many there are.
ROWS: LiteralString = """
    insert into fencepost.lease (resource, token, owner, ttl, acquired_at, renewed_at, expires_at)
      select 'flow:long/part/' || n, 1, 'w', '1 hour', now(), now(), now() + interval '1 hour'
      from generate_series(10, 16) n;
    insert into fencepost.checkpoint (resource, number, token, status, frontier, begun_at, stored_at)
      select 'flow:long/part/10', n, 1, 'stored', '{}', now(), now() from generate_series(1, 7) n;
    insert into fencepost.flow_savepoint (flow, savepoint, resource, number, whole, frontier, made_at)
      -- Two of a minute each: their names tell them apart.
      select 'long', 'save-' || n, 'flow:long/part/10', 1, true, '{}',
        timestamptz '2030-01-01' - interval '1 minute' * (n / 2) from generate_series(1, 7) n;
    insert into fencepost.flow_dead (flow, step, resource, record, preview, error, died_at)
      select 'long', 'step-' || n, 'flow:long/part/10', '', '', 'no', now() from generate_series(1, 7) n;
    insert into fencepost.nonce_signer (chain_id, signer, next_nonce, created_at, updated_at)
      select 1, s, 0, now(), now() from unnest(array['one', 'another']) s;
    insert into fencepost.nonce_transaction
      (signer_id, idempotency_key, digest, state, value, data, gas_limit, created_at, updated_at)
      select s.signer_id, s.signer || n, 'd', 'QUEUED', 1, '', 21000, now(), now()
      from generate_series(1, 7) n, fencepost.nonce_signer s;
    -- The account that looks is the seventh.
    insert into fencepost.account (name, made_at, made_by)
      select 'user-' || n, now(), 'test' from generate_series(1, 6) n;
    insert into fencepost.account_role (service, name, role, made_at, made_by)
      select 'console', 'user-' || n, 'viewer', now(), 'test' from generate_series(1, 6) n;
    -- Takeovers below more events of jobs than a query should read.
    insert into fencepost.event (at, noun, subject, event, actor, token, detail)
      select now(), 'lease', 'door-' || n, 'taken_over', 'b', n, '{"from": "a"}' from generate_series(1, 7) n;
    insert into fencepost.event (at, noun, subject, event, actor)
      select now(), 'job', n::text, 'finished', 'w' from generate_series(1, 21000) n
"""
SEVEN = [
    ("/flows/long", "tasks", "after", "resource"),
    ("/flows/long", "dead", "dead_after", "id"),
    ("/flows/long", "savepoints", "saved_before", "savepoint"),
    ("/checkpoints?resource=flow:long/part/10", "checkpoints", "before", "number"),
    ("/nonces/1/one", "transactions", "sent_before", "transaction_id"),
    ("/leases", "takeovers", "taken_before", "event_id"),
    ("/users", "users", "after", "name"),
]


@pytest.fixture
def env(database: Database) -> Iterator[ConsoleEnv]:
    with database.connect_admin() as connection:
        run(connection, flow_store.register("long", FlowPlan(FLOW).picture(), "w"))
        connection.execute(ROWS)
    with console(database) as env:
        yield env


def walked(client: httpx.Client, path: str, table: str, parameter: str) -> list[list[dict[str, Any]]]:
    """The pages of a table, two rows each, by the links of the pages as the API tells them."""
    pages: list[list[dict[str, Any]]] = []
    address = httpx.URL(f"/api{path}").copy_merge_params({"limit": 2})
    while len(pages) < 20:
        facts = client.get(address).json()
        pages.append(facts[table])
        following = facts[f"next_{parameter}"]
        if following is None:
            return pages
        address = address.copy_set_param(parameter, following)
    raise AssertionError(f"{path} does not end")


def taken_home(client: httpx.Client, address: httpx.URL) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(client.get(address).text)))


def test_every_list_is_walked_to_its_end_by_its_key(env: ConsoleEnv) -> None:
    with env.visitor(Role.ADMIN) as client:
        for path, table, parameter, key in SEVEN:
            pages = walked(client, path, table, parameter)
            keys = [row[key] for page in pages for row in page]
            assert [len(page) for page in pages] == [2, 2, 2, 1], path
            assert len(set(keys)) == 7, (path, keys)
            shown = client.get(httpx.URL(f"/console{path}").copy_merge_params({"limit": 2})).text
            assert f"{parameter}=" in shown, (path, "there is no link to the next page")
    with env.database.connect_admin() as connection:
        connection.execute("analyze fencepost.event")
        plan = connection.execute(
            "explain select * from fencepost.event e where e.noun = 'lease' and e.event = 'taken_over'"
            " and e.event_id < 9000 order by e.event_id desc limit 2"
        ).fetchall()
    assert "Index Scan Backward using event_takeovers" in str(plan)


def test_a_file_has_the_whole_table_however_long_a_page_is(
    env: ConsoleEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router, "DOWNLOAD_STEP", 2)
    with env.visitor(Role.ADMIN) as client:
        for path, table, _, key in SEVEN:
            address = httpx.URL(f"/api{path}").copy_merge_params(
                {"format": "csv", "table": table, "limit": 1}
            )
            rows = taken_home(client, address)
            assert len({row[key] for row in rows}) == len(rows) == 7, (path, rows)
        # The link of a page far down begins at the beginning.
        page = Page(client.get("/console/leases?taken_before=5&limit=1&prefix=flow").text)
        [link] = [link for link in page.links if "table=takeovers" in link]
        assert len(taken_home(client, httpx.URL(link))) == 7
        assert "prefix=flow" in link
        monkeypatch.setattr(router, "DOWNLOAD_ROWS_MAX", 5)
        assert len(taken_home(client, httpx.URL("/api/leases?format=csv&table=takeovers"))) == 5


def test_dead_letters_are_filtered_by_each_of_their_fields(database: Database) -> None:
    Watchers(database)
    Watchers(database, "other")
    with database.connect_admin() as connection:
        # More causes than are shown, each of more jobs than those that are looked for.
        connection.execute(
            "with made as ("
            "   insert into fencepost.job (queue, kind, priority, payload, tries_max, lease, submitted_at)"
            "   select 'crowded', 'k', 1, '{}', 1, '1 minute', now() from generate_series(0, 999)"
            "   returning job_id)"
            " insert into fencepost.job_finished"
            "   (job_id, queue, state, final_status, attempt, tries, finished_at, error)"
            "   select job_id, 'crowded', 'dead', 'failed', 1, 1, now(), 'Error' || job_id % 250 || ': x'"
            "   from made"
        )
    with console(database) as env, env.program(Role.VIEWER) as client:

        def causes(**terms: str) -> list[tuple[str, str]]:
            found = client.get("/api/dead", params=terms).json()["causes"]
            return [(one["queue"], one["cause"]) for one in found]

        assert causes(queue="other") == [("other", "ValueError")]
        assert causes(kind="mail") == [("mail", "ValueError")]
        assert sorted(causes(cause="ValueError")) == [("mail", "ValueError"), ("other", "ValueError")]
        assert causes(cause="Error7", queue="") == [("crowded", "Error7")]
        assert causes(cause="nothing") == []
        assert len(causes()) == 200
