"""Each service with users works on a database that does not have the other one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fencepost.embedded import Database, PostgresServer
from fencepost.kernel.migrate import components, migrate, require
from fencepost_judge._role import JudgeRole
from fencepost_server.console._role import Role
from tests.integration.console.env import PASSWORD, console, log_in
from tests.integration.judge.judge_env import open_office
from tests.integration.kernel.bare_databases import bare_databases


@pytest.fixture
def empty(postgres: PostgresServer, template_database: Database) -> Iterator[Callable[[], Database]]:
    """Databases without a schema, on a server that has the roles."""
    with bare_databases(postgres) as create:
        yield create


async def test_the_judge_without_the_console(empty: Callable[[], Database], tmp_path: Path) -> None:
    alone = empty()
    migrate(alone.admin_url, *components(["judge"]))
    for name in ("accounts", "judge"):
        require(alone.url, name)
    async with open_office(alone, tmp_path) as office:
        await office.add("con", JudgeRole.CONTESTANT)
        async with office.browser("con") as browser:
            assert (await browser.get("/judge/account")).status_code == 200
        assert (await office.ask("con", "GET", "/judge/api/me")).json()["role"] == "contestant"


def test_the_console_without_the_judge(empty: Callable[[], Database]) -> None:
    alone = empty()
    migrate(alone.admin_url, *(one for one in components() if one.name != "judge"))
    with console(alone) as stage, stage.stranger() as client:
        assert log_in(client, stage.user(Role.ADMIN), PASSWORD).status_code == 303
        assert client.get("/console/users").status_code == 200
