"""A real Chromium on a real console. Screenshots are kept with --full, or where BROWSER_SHOTS names a folder.

One browser and one console serve a whole file of tests: starting them costs more than most tests do. A test
that changes something has names of its own for it.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from fencepost.embedded import Database, PostgresServer
from fencepost_server.console._role import Role
from tests.browser.visit import Visit
from tests.integration.console.env import ConsoleEnv, console

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]

PATIENCE_MS = 60_000


@pytest.fixture(scope="session")
def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("there is no Chromium here; Debian: chromium")
    return found


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    # On a busy machine what a page shows may come late; its own five seconds are no deadline.
    expect.set_options(timeout=PATIENCE_MS)
    # No longer than a file: while it runs, no test may run an event loop of its own.
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield running
        running.close()


@pytest.fixture(scope="module")
def shared_database(postgres: PostgresServer, template_database: Database) -> Iterator[Database]:
    """A migrated database for all tests of a file."""
    database = Database(postgres, f"t_{uuid.uuid4().hex}")
    database.create(template=template_database.name)
    yield database
    database.drop()


@pytest.fixture(scope="module")
def env(shared_database: Database, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleEnv]:
    with console(shared_database, data_directory=tmp_path_factory.mktemp("reports")) as env:
        yield env


@pytest.fixture(scope="session")
def shots(pytestconfig: pytest.Config) -> Path | None:
    """Those of the last run: a test overwrites its own, and nothing else. None where nobody looks at them: to
    draw a whole page takes as long as to load it."""
    chosen = os.environ.get("BROWSER_SHOTS")
    if not chosen and not pytestconfig.getoption("--full"):
        return None
    kept = Path(chosen or Path(__file__).parents[2] / ".fencepost" / "shots")
    kept.mkdir(parents=True, exist_ok=True)
    return kept


@pytest.fixture(scope="module")
def known(browser: Browser, env: ConsoleEnv) -> Iterator[BrowserContext]:
    """A person with every right, logged in once, in a window of a desktop."""
    context = browser.new_context(
        base_url=env.url,
        timezone_id="Asia/Kolkata",
        locale="en-GB",
        viewport={"width": 1280, "height": 900},
    )
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.goto(env.link(Role.ADMIN))
    page.close()
    yield context
    context.close()


@pytest.fixture
def visit(known: BrowserContext, env: ConsoleEnv, shots: Path | None) -> Iterator[Visit]:
    page: Page = known.new_page()
    yield Visit(url=env.url, page=page, shots=shots, env=env)
    page.close()
