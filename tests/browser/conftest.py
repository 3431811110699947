"""A real Chromium on a real console. Screenshots are kept in the directory that BROWSER_SHOTS names."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from fencepost.console.role import Role
from fencepost.embedded import Database
from tests.browser.visit import Visit
from tests.integration.console.stage import Stage, console

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


@pytest.fixture(scope="session")
def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("there is no Chromium here; Debian: chromium")
    return found


@pytest.fixture
def browser(chromium: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield running
        running.close()


@pytest.fixture
def stage(database: Database) -> Iterator[Stage]:
    with console(database) as stage:
        yield stage


@pytest.fixture
def shots(tmp_path: Path) -> Path:
    kept = Path(os.environ.get("BROWSER_SHOTS", tmp_path))
    kept.mkdir(parents=True, exist_ok=True)
    return kept


@pytest.fixture
def visit(browser: Browser, stage: Stage, shots: Path) -> Iterator[Visit]:
    """Somebody with every right, in a window of a desktop."""
    context: BrowserContext = browser.new_context(
        base_url=stage.url,
        timezone_id="Asia/Kolkata",
        locale="en-GB",
        viewport={"width": 1280, "height": 900},
    )
    page: Page = context.new_page()
    visit = Visit(stage, page, shots)
    page.goto(stage.link(Role.ADMIN))
    yield visit
    context.close()
