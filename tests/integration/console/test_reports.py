"""The page of reports: what a torture counted, its own page, and files that were written to hurt."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from fencepost.embedded import Database
from fencepost_server.console._role import Role
from tests.integration.console.env import console
from tests.integration.console.page import Page
from tests.integration.console.populated_system import TORTURE, leave_a_report

EVIL = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>{{7*7}}\0\ud800"
HOSTILE: list[object] = [
    dict.fromkeys(TORTURE, EVIL),
    {fact: [EVIL, {EVIL: EVIL}] for fact in TORTURE} | {"name": EVIL},
    {fact: {EVIL: 9, "x": {EVIL: [EVIL]}} for fact in TORTURE} | {"name": EVIL},
    {fact: [{}] for fact in TORTURE} | {"name": "", "at": "9999-99-99"},
    {fact: float("nan") for fact in TORTURE} | {"name": EVIL, "at": EVIL, "rows": [{EVIL: float("inf")}]},
    {"name": EVIL, "goals": [{"name": EVIL, "measured": 10**400, "goal": -1}, {"measured": 1, "goal": 0}]},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    leave_a_report(tmp_path)
    return tmp_path / "torture"


@pytest.fixture
def client(database: Database, folder: Path) -> Iterator[httpx.Client]:
    with console(database, data_directory=folder.parent) as env, env.visitor(Role.VIEWER) as client:
        yield client


def test_the_page_shows_what_a_torture_counted(client: httpx.Client) -> None:
    words = Page(client.get("/console/reports").text).words

    kinds = ("fault that hit", "refusal", "hit of a crash point")
    for text in (*kinds, "crash", "stale_attempt", "jobs.ack.before"):
        assert text in words
    table = client.get("/api/reports", params={"format": "csv", "table": "counts"}).text
    assert '"torture, seed 7",refusal,stale_attempt,2' in table


def test_the_page_of_a_run_is_drawn_and_nothing_in_it_runs(client: httpx.Client, folder: Path) -> None:
    assert not [link for link in Page(client.get("/console/reports").text).links if "/last" in link]
    (folder / "last.html").write_text(f"<style>p {{}}</style><p>{EVIL[:-1]}</p>")

    [link] = [link for link in Page(client.get("/console/reports").text).links if "/last" in link]
    answer = client.get(link)

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"
    rules = {name: rest for name, _, rest in map(rule, answer.headers["content-security-policy"].split(";"))}
    assert rules["default-src"] == "'none'"
    assert rules["sandbox"] == ""
    assert not [name for name in rules if name.startswith(("script", "connect", "img"))]
    # A browser refuses to load a sandboxed page with another opener policy than the default.
    assert "cross-origin-opener-policy" not in answer.headers


def rule(text: str) -> tuple[str, str, str]:
    return text.strip().partition(" ")


def test_a_name_without_a_report_is_not_found(client: httpx.Client, folder: Path) -> None:
    (folder.parent / "outside.html").write_text("secret")
    for name in ("last", "..%2Foutside", "%00", "%FF", "x" * 200):
        assert client.get(f"/api/reports/{name}").status_code == 404, name


def test_a_stranger_gets_no_page_of_a_run(database: Database, folder: Path) -> None:
    (folder / "last.html").write_text("<p>x</p>")
    with console(database, data_directory=folder.parent) as env, env.stranger() as client:
        assert client.get("/api/reports/last").status_code == 401


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_a_hostile_report_breaks_neither_the_page_nor_its_files(
    client: httpx.Client, folder: Path, number: int
) -> None:
    (folder / "hostile.json").write_text(json.dumps(HOSTILE[number]))

    page = client.get("/console/reports")

    assert page.status_code == 200
    assert Page(page.text).runs == []
    assert ">49<" not in page.text
    assert "torture, seed 7" in page.text
    assert client.get("/api/reports").json()["reports"]
    for table in ("reports", "figures", "counts"):
        answer = client.get("/api/reports", params={"format": "csv", "table": table})
        assert answer.status_code == 200, table
