"""What a page lets through: nothing that runs, nothing from elsewhere, nothing that writes."""

from __future__ import annotations

import re
from typing import LiteralString

import psycopg
import pytest

from fencepost.errors import FencepostError
from fencepost_server.console._read_pool import ReadPool
from fencepost_server.console._role import Role
from tests.integration.console.env import ConsoleEnv, log_in
from tests.integration.console.page import Page

EVIL = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>{{7*7}}</pre>"


def test_what_a_request_says_is_shown_and_never_run(env: ConsoleEnv) -> None:
    """What stands in the database is walked through in test_walk.py."""
    with env.visitor(Role.ADMIN) as client:
        pages = [
            client.get("/console/jobs", params={"queue": EVIL, "kind": EVIL}),
            client.get("/console/leases", params={"prefix": EVIL}),
            client.get("/console/outbox", params={"channel": EVIL, "key": EVIL}),
            client.get("/console/audit", params={"actor": EVIL}),
            client.get("/console/checkpoints", params={"resource": EVIL}),
            client.get("/console/login", params={"next": EVIL}),
            log_in(client, EVIL, EVIL),
            client.get("/console/jobs", params={"before": EVIL}),
        ]
        for page in pages:
            assert page.status_code < 500, page.url
            assert Page(page.text).runs == [], page.url
        assert sum(EVIL in "".join(Page(page.text).words) or "&lt;script" in page.text for page in pages) > 4


def test_every_answer_keeps_to_itself(env: ConsoleEnv) -> None:
    with env.visitor(Role.VIEWER) as client:
        first, second = client.get("/console"), client.get("/console")
        policies = [page.headers["content-security-policy"] for page in (first, second)]
        assert policies[0] != policies[1], "each answer has a nonce of its own"
        assert "default-src 'none'" in policies[0]
        assert "unsafe" not in policies[0]
        nonce = re.search(r"'nonce-([^']+)'", policies[0])
        assert nonce is not None
        assert f'nonce="{nonce[1]}"' in first.text
        assert " style=" not in first.text
        assert not re.search(r"\son\w+=", first.text), "no handler stands in the markup"
        for answer in (first, client.get("/api/jobs"), client.get("/console/login")):
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["cache-control"] == "no-store"
            assert answer.headers["x-frame-options"] == "DENY"


async def test_the_eyes_cannot_write(env: ConsoleEnv) -> None:
    # As the service, who may call what writes: the transaction itself is read-only.
    reading = ReadPool(env.database.url, pool_max=1, statement_seconds=1, connect_seconds=5)
    async with reading.running():
        with pytest.raises(Exception, match="read-only transaction"):
            await reading.rows("select fencepost.queue_pause('mail', 'somebody')")
        with pytest.raises(FencepostError, match="took longer than 1 s"):
            await reading.rows("select pg_sleep(30)")


def test_the_viewer_of_the_database_may_not_read_people(env: ConsoleEnv) -> None:
    queries: list[LiteralString] = [
        "select * from fencepost.account_users('console', null, 10)",
        "select fencepost.account_key()",
    ]
    with psycopg.connect(env.database.viewer_url, autocommit=True) as connection:
        for query in queries:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(query)
