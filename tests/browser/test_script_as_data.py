"""Whatever strangers write into payloads, names and texts: no page of the console or the judge runs it."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from fencepost.embedded import Database
from fencepost_server.console._role import Role
from tests.browser.judge_site import judge_site
from tests.integration.console.defiled import defile
from tests.integration.console.env import ConsoleEnv
from tests.integration.console.populated_system import PopulatedSystem
from tests.integration.console.test_walk import routes, walk
from tests.integration.judge.judge_env import open_office
from tests.security import test_judge_pages as judge_pages

# Without a slash: a flow's name has none. Any of them would run, as the first test shows.
EVIL = "\"'><img src=x onerror=window.hit=1><svg onload=window.hit=1><script>window.hit=1"
WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`);
});
"""


def watched(context: BrowserContext) -> Page:
    """A page that says whether anything of a stranger's ran, or was only kept from it by the policy."""
    context.add_init_script(WATCH)
    page = context.new_page()
    page.on("dialog", lambda dialog: pytest.fail(f"a dialog: {dialog.message}"))
    return page


def runs_nothing(page: Page, address: str) -> bool:
    """And whether the page shows it."""
    page.goto(address, wait_until="load")
    assert "/login" not in page.url, address
    assert page.evaluate("window.hit") is None, address
    assert page.evaluate("window.violations") == [], address
    return "window.hit" in page.content()


def test_it_would_run_on_a_page_that_does_not_escape_it(browser: Browser) -> None:
    page = browser.new_page()
    page.set_content(f'<p title="{EVIL}">')
    page.wait_for_function("window.hit === 1")
    page.close()


def test_the_console_runs_nothing(browser: Browser, env: ConsoleEnv, shared_database: Database) -> None:
    PopulatedSystem(shared_database, EVIL)
    with env.visitor(Role.ADMIN) as client:
        assert client.post("/api/account/tokens", json={"label": EVIL}).status_code == 200
        assert client.post(f"/api/queues/{quote(EVIL)}/pause").status_code == 200
    assert len(defile(shared_database, EVIL)) > 80
    with env.visitor(Role.ADMIN) as client:
        pages = {address: route for route, address, _ in walk(env, client)}
    context = browser.new_context(base_url=env.url)
    page = watched(context)
    page.goto(env.link(Role.ADMIN))
    shown = [address for address in pages if runs_nothing(page, address)]
    context.close()
    assert len(shown) > len(pages) / 2
    assert set(pages.values()) == set(routes(env))


@pytest.fixture(scope="module")
def evil_paths(shared_database: Database, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The judge's pages with a stranger's text on each. Made in a thread: this one has the browser's loop."""
    paths: list[str] = []

    async def fill() -> None:
        async with open_office(shared_database, tmp_path_factory.mktemp("office")) as office:
            await judge_pages.accounts_of(office)
            paths.extend([path async for path in judge_pages.evil_server(office, shared_database)])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judge_pages, "EVIL", EVIL)
        thread = threading.Thread(target=lambda: asyncio.run(fill()))
        thread.start()
        thread.join()
    downloads = ("/attachments/", "/statements/", "/archive")
    return [path for path in paths if not any(part in path for part in downloads)]


def test_the_judge_runs_nothing(
    browser: Browser, shared_database: Database, tmp_path: Path, evil_paths: list[str]
) -> None:
    assert len(evil_paths) > 20
    with judge_site(shared_database, tmp_path) as site:
        context = browser.new_context(base_url=site.url)
        page = watched(context)
        page.goto("/judge")
        page.get_by_label("Name").fill("ada")
        page.get_by_label("Password").fill(site.tokens["ada"])
        with page.expect_navigation():
            page.get_by_role("button", name="Log in").click()
        shown = [path for path in evil_paths if runs_nothing(page, path)]
        context.close()
    assert len(shown) > 10
