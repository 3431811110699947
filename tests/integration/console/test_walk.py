"""Every page is walked to by its links: what it shows, what it lets run, what it lets one take home."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from urllib.parse import quote, urlsplit

import httpx
import pytest

from fencepost.embedded import Database
from fencepost_server.console._role import Role
from tests.integration.console.defiled import defile
from tests.integration.console.env import ConsoleEnv, console
from tests.integration.console.page import Page
from tests.integration.console.populated_system import PopulatedSystem, leave_a_report

# Without a slash: a flow's name has none.
EVIL = "\"'><script>alert(1)<img src=x onerror=alert(2)>{{7*7}}"
SAME_MAX = 2
"""Pages of one route that are looked at: the pages of two jobs come from one template."""

PAGE_BYTES_MAX = 100_000


@pytest.fixture
def env(database: Database, tmp_path: Path) -> Iterator[ConsoleEnv]:
    leave_a_report(tmp_path)
    with console(database, data_directory=tmp_path) as env:
        yield env


def routes(env: ConsoleEnv) -> dict[str, re.Pattern[str]]:
    """Every page of the console, by its route."""
    paths = [
        path for method, path in env.context.router.roles if method == "GET" and path.startswith("/console")
    ]
    return {
        path: re.compile(re.sub(r"\{\w+:path\}", ".+", path).replace("{", "(?P<").replace("}", ">[^/]+)"))
        for path in paths
    }


def walk(env: ConsoleEnv, client: httpx.Client) -> Iterator[tuple[str, str, Page]]:
    """Route, address and page of whatever the links lead to, from the overview on."""
    known, waiting, seen = routes(env), ["/console", "/console/account", "/console/checkpoints"], set[str]()
    looked: Counter[str] = Counter()
    while waiting:
        address = waiting.pop(0)
        route = next((path for path, form in known.items() if form.fullmatch(urlsplit(address).path)), None)
        if route is None or address in seen or looked[route] == SAME_MAX:
            continue
        seen.add(address)
        looked[route] += 1
        answer = client.get(address)
        assert answer.status_code == 200, (address, answer.text[-600:])
        page = Page(answer.text)
        waiting += [link.partition("#")[0] for link in page.links if _leads(link)]
        yield route, address, page
    assert set(looked) == set(known), "every page is behind a link"


def _leads(link: str) -> bool:
    """Whether a link leads to a page of the console, and not to the same list in another order."""
    return link.startswith("/console") and "sort=" not in link


def test_whatever_stands_in_the_database_is_shown_and_never_run(env: ConsoleEnv, database: Database) -> None:
    PopulatedSystem(database, EVIL)
    with env.visitor(Role.ADMIN) as client:
        assert client.post("/api/account/tokens", json={"label": EVIL}).status_code == 200
        assert client.post(f"/api/queues/{quote(EVIL)}/pause").status_code == 200
    assert len(defile(database, EVIL)) > 80
    shown: set[str] = set()
    with env.visitor(Role.ADMIN) as client:
        for route, address, page in walk(env, client):
            assert page.runs == [], address
            assert ">49<" not in page.text, address
            if EVIL in "".join(page.words):
                shown.add(route)
    # Its files are the machine's own.
    assert set(routes(env)) - shown == {"/console/reports"}


def test_every_page_has_its_api_its_tables_to_take_home_and_instants(
    env: ConsoleEnv, database: Database
) -> None:
    PopulatedSystem(database)
    env.context.live_snapshot.forget()
    times = 0
    with env.visitor(Role.ADMIN) as client:
        for _, address, page in walk(env, client):
            api = [link for link in page.links if link.startswith("/api/")]
            assert client.get(api[0]).json().keys(), address
            for table in page.tables:
                assert table.name is not None, (address, "a table without the name of its facts")
                [link] = [one for one in api if re.search(rf"[?&]table={table.name}(&|$)", one)]
                assert len(taken_home(client, link)) == table.rows, (address, table.name)
            for instant, on_hover in page.times:
                assert datetime.fromisoformat(instant).utcoffset() is not None, address
                assert on_hover == instant, address
            assert page.bare_instants == [], address
            assert len(page.text.encode()) <= PAGE_BYTES_MAX, address
            times += len(page.times)
    assert times > 50


def taken_home(client: httpx.Client, link: str) -> list[dict[str, str]]:
    answer = client.get(link)
    assert answer.headers["content-type"].startswith("text/csv"), link
    return list(csv.DictReader(io.StringIO(answer.text)))
