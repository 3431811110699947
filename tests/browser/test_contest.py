"""A contest in a real browser, from the import of a problem to the awards: a jury, two teams, a spectator."""

from __future__ import annotations

import re
import shutil
import zipfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from fencepost.embedded import Database
from fencepost.testing import Clock
from tests.browser.judge_site import JudgeSite, judge_site
from tests.browser.visit import Guest

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the boxes need a C compiler: install gcc")

HOME = "/judge/contests/spring"
SUM = "print(sum(map(int, input().split())))\n"
POSTS = "length, step = map(int, input().split())\nprint(length // step + 1)\n"
WRONG = "print(0)\n"
PACKAGE = {
    "problem.yaml": "problem_format_version: 2023-07\nname: Sum\n",
    "problem_statement/problem.en.md": "Print the sum of $a$ and $b$.\n",
    "data/sample/1.in": "1 2\n",
    "data/sample/1.ans": "3\n",
    "data/secret/1.in": "40 2\n",
    "data/secret/1.ans": "42\n",
    "submissions/accepted/sum.py": SUM,
}
TEAMS = {
    "groups.yaml": '- {id: "10", name: Students}\n',
    "organizations.yaml": '- {id: "1", name: University of Fences}\n',
    "teams.yaml": '- {id: "1", name: Posts, group_ids: ["10"], organization_id: "1"}\n'
    '- {id: "2", name: Rails, group_ids: ["10"], organization_id: "1"}\n',
    "accounts.yaml": "- {id: posts, username: posts, type: team, team_id: '1'}\n"
    "- {id: rails, username: rails, type: team, team_id: '2'}\n",
}


@dataclass(frozen=True)
class Visitors:
    """Each has a browser of its own."""

    browser: Browser
    site: JudgeSite
    shots: Path | None

    @contextmanager
    def __call__(self, name: str | None = None, password: str = "") -> Generator[Guest]:
        """Logged in; or a spectator, without a name."""
        context = self.browser.new_context(
            base_url=self.site.url, viewport={"width": 1280, "height": 900}, accept_downloads=True
        )
        context.set_default_timeout(60_000)
        guest = Guest(url=self.site.url, page=context.new_page(), shots=self.shots)
        if name is not None:
            guest.go("/judge")
            guest.page.get_by_label("Name").fill(name)
            guest.page.get_by_label("Password").fill(password)
            guest.press("Log in")
            expect(guest.page.get_by_role("heading", name="Problems")).to_be_visible()
        yield guest
        guest.went_well()
        context.close()


def zipped(path: Path, files: dict[str, str]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def submit(guest: Guest, slug: str, program: str, told: str) -> None:
    """From the problem's page of the contest, until the verdict is there."""
    page = guest.page
    guest.go(f"/judge/problems/{slug}?contest=spring")
    page.get_by_label("Language").select_option("python")
    page.get_by_label("Program").fill(program)
    page.get_by_role("button", name="Submit").click()
    page.wait_for_url(re.compile(r"/judge/submissions/\d+"))
    expect(page.locator("#verdict .told")).to_contain_text(told)


def lines(page: Page) -> list[str]:
    """The scoreboard as it is read: the cells of each line."""
    rows = page.locator("table.board tbody tr").all()
    return [" | ".join(cell.strip() for cell in row.locator("th, td").all_inner_texts()) for row in rows]


def test_a_contest_from_the_import_to_the_awards(
    browser: Browser, shots: Path | None, shared_database: Database, tmp_path: Path
) -> None:
    with (
        Clock(shared_database.admin_url, database=shared_database.name) as clock,
        judge_site(shared_database, tmp_path / "judge") as site,
    ):
        enter = Visitors(browser, site, shots)
        with enter("ada", site.tokens["ada"]) as jury:
            passwords = prepare(jury, clock, tmp_path)
            with enter("posts", passwords["posts"]) as posts, enter("rails", passwords["rails"]) as rails:
                hold(jury, posts, rails)
                with enter() as spectator:
                    spectator.go(f"{HOME}/scoreboard")
                    first, second = lines(spectator.page)
                    assert re.match(r"1.*Posts.*\| 1 \|.*★ 6\d", first), first
                    assert re.match(r"2.*Rails.*\| 1 \|.*✓ 6\d \+1", second), second

                    clock.advance(5400)
                    submit(rails, "fence-posts", POSTS, "accepted")
                    spectator.go(f"{HOME}/scoreboard")
                    expect(spectator.page.locator(".notice")).to_contain_text("Frozen since")
                    assert "Rails" in lines(spectator.page)[1]
                    assert "?1" in lines(spectator.page)[1]
                    jury.go(f"{HOME}/scoreboard")
                    assert re.match(r"1.*Rails.*\| 2 \|", lines(jury.page)[0]), "a jury sees it"

                    clock.advance(3600)
                    end(jury, spectator)
                    submit_later(posts)
                    spectator.go(f"{HOME}/scoreboard")
                    expect(spectator.page.get_by_role("region", name="Solved after the end")).to_contain_text(
                        "posts"
                    )
        given = httpx.get(f"{site.url}/api/contests/spring/awards").raise_for_status().json()
        awards = {one["id"]: one["team_ids"] for one in given}
        assert (awards["winner"], awards["first-to-solve-sum"]) == (["2"], ["1"]), awards


def prepare(jury: Guest, clock: Clock, folder: Path) -> dict[str, str]:
    """A problem, the contest, its teams. Returns the passwords, as they are printed."""
    page = jury.page
    jury.go("/judge/import")
    page.get_by_label(re.compile("Package")).set_input_files(zipped(folder / "sum.zip", PACKAGE))
    page.get_by_label(re.compile("Time limit")).fill("5")
    jury.press("Import")
    expect(page.locator("main")).to_contain_text("Sum")

    now = clock.now()
    jury.go("/judge/contests")
    page.get_by_role("link", name="A new contest").click()
    page.get_by_label("Name in addresses").fill("spring")
    page.get_by_label("Title").fill("Spring Contest")
    for label, hours in (("Begins", -1), ("Scoreboard freezes", 1), ("Ends", 2)):
        moment = now + timedelta(hours=hours)
        page.get_by_label(re.compile(label)).fill(moment.strftime("%Y-%m-%dT%H:%M"))
    page.get_by_label(re.compile("Problems: a label")).fill("A sum red #ff0000\nB fence-posts blue #0000ff")
    page.get_by_label("The scoreboard needs no login").check()
    jury.press("Keep")
    expect(page.locator(".notice")).to_contain_text("Spring Contest is kept.")
    jury.shoot("contest-made")

    jury.go(f"{HOME}/teams")
    page.get_by_label(re.compile("contest, problemset")).set_input_files(zipped(folder / "teams.zip", TEAMS))
    jury.press("Import")
    table = page.get_by_role("region", name="Passwords")
    passwords = {
        row.locator("th").inner_text(): row.locator("code").inner_text()
        for row in table.locator("tbody tr").all()
    }
    assert set(passwords) == {"posts", "rails"}
    expect(page.get_by_role("region", name="Teams")).to_contain_text("University of Fences")
    jury.shoot("contest-passwords")
    return passwords


def hold(jury: Guest, posts: Guest, rails: Guest) -> None:
    """Verdicts, a question and its answer, balloons, a verified verdict."""
    submit(posts, "sum", SUM, "accepted")
    submit(rails, "sum", WRONG, "wrong")
    submit(rails, "sum", SUM, "accepted")

    posts.go(f"{HOME}/clarifications")
    posts.page.get_by_label("About").select_option("A")
    posts.page.get_by_label("Text").fill("May a be negative?")
    posts.press("Ask")
    jury.go(HOME)
    expect(jury.page.locator("[data-badge]")).to_contain_text("1")
    jury.go(f"{HOME}/clarifications")
    jury.page.get_by_label("Answer", exact=True).fill("Yes.")
    jury.page.get_by_label("to all").check()
    jury.press("Answer")
    rails.go(HOME)
    expect(rails.page.locator("[data-badge]")).to_contain_text("1")
    rails.page.get_by_role("link", name=re.compile("Questions")).click()
    expect(rails.page.locator(".answer")).to_contain_text("Yes.")
    rails.shoot("contest-answer")

    jury.go(f"{HOME}/balloons")
    expect(jury.page.locator("main")).to_contain_text("red")
    with jury.page.expect_navigation():
        jury.page.get_by_role("button", name="Delivered").first.click()
    expect(jury.page.get_by_role("region", name="Delivered")).to_contain_text("Posts")


def end(jury: Guest, spectator: Guest) -> None:
    """The freeze is lifted result by result, and the results are final, with their medals."""
    jury.go(HOME)
    jury.press("Reveal the next result")
    expect(jury.page.locator(".notice").first).to_contain_text("is visible now")
    jury.go(HOME)
    jury.decide("Unfreeze the scoreboard", "Unfreeze it")
    jury.go(HOME)
    jury.decide("Make the results final", "Make them final")
    expect(jury.page.locator(".facts")).to_contain_text("final since")
    jury.shoot("contest-final")
    spectator.go(f"{HOME}/scoreboard")
    first, second = lines(spectator.page)
    assert re.match(r"1 G.*Rails.*\| 2 \|", first), first
    assert re.match(r"2 G.*Posts.*\| 1 \|", second), second
    spectator.shoot("contest-awards")


def submit_later(posts: Guest) -> None:
    """After the end it counts outside of the contest."""
    page = posts.page
    posts.go(HOME)
    expect(page.locator("main")).to_contain_text("The contest is over.")
    page.get_by_role("link", name="Fence Posts").click()
    page.get_by_label("Language").select_option("python")
    page.get_by_label("Program").fill(POSTS)
    page.get_by_role("button", name="Submit").click()
    expect(page.locator("#verdict .told")).to_contain_text("accepted")
