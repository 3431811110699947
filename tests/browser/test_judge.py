"""The judge in a real browser: a program is sent and judged; all pages are accessible and fit a phone."""

from __future__ import annotations

import re
import shutil
import zipfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, expect

from fencepost.embedded import Database
from fencepost_judge import _contests as contests
from fencepost_judge._access import OPEN_PAGES, PAGES, PAGES_ROOT
from fencepost_judge._scoreboard import Contest, ContestProblem, Scoring
from tests.browser.judge_site import JudgeSite, judge_site
from tests.browser.visit import Guest
from tests.integration.judge.judge_site import SAMPLES

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the boxes need a C compiler: install gcc")

POSTS = "length, step = map(int, input().split())\nprint(length // step + 1)\n"
POSTS_IN_C = """#include <stdio.h>
int main(void) { long l, d; if (scanf("%ld %ld", &l, &d) != 2) return 1; printf("%ld\\n", l / d + 1); }
"""
PATIENCE_MS = 60_000
VERDICT = "#verdict .told"
EVIL = "</textarea><img src=x onerror=window.hit=1><script>window.hit=1</script>"


@pytest.fixture(scope="module")
def site(shared_database: Database, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JudgeSite]:
    """One judge and its two contests for all of these tests; each makes submissions of its own."""
    with judge_site(shared_database, tmp_path_factory.mktemp("judge")) as site:
        for scoring in Scoring:
            hold(site, f"autumn-{scoring}", f"Autumn, {scoring.upper()}", scoring)
        yield site


@dataclass(frozen=True)
class Entering:
    """Logs in through the page as a person does, once; each use has a page of its own."""

    browser: Browser
    site: JudgeSite
    shots: Path | None
    known: dict[tuple[str, bool], BrowserContext] = field(
        default_factory=dict[tuple[str, bool], BrowserContext]
    )

    @contextmanager
    def __call__(self, name: str, *, scripts: bool = True) -> Generator[Guest]:
        context = self.known.get((name, scripts)) or self._log_in(name, scripts)
        guest = Guest(url=self.site.url, page=context.new_page(), shots=self.shots)
        yield guest
        guest.went_well()
        guest.page.close()

    def _log_in(self, name: str, scripts: bool) -> BrowserContext:
        context = self.browser.new_context(
            base_url=self.site.url, java_script_enabled=scripts, viewport={"width": 1280, "height": 900}
        )
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        page.goto("/judge")
        page.get_by_label("Name").fill(name)
        page.get_by_label("Password").fill(self.site.tokens[name])
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("heading", name="Problems")).to_be_visible()
        page.close()
        self.known[name, scripts] = context
        return context


@pytest.fixture(scope="module")
def enter(browser: Browser, site: JudgeSite, shots: Path | None) -> Iterator[Entering]:
    """A busy machine is slow, and that is all it is."""
    expect.set_options(timeout=PATIENCE_MS)
    yield Entering(browser, site, shots)
    expect.set_options(timeout=None)


def hold(site: JudgeSite, slug: str, title: str, scoring: Scoring) -> None:
    """A contest that began an hour ago, with `con` in it."""
    now = datetime.now(UTC)
    contest = Contest(
        slug=slug,
        title=title,
        scoring=scoring,
        starts_at=now - timedelta(hours=1),
        freeze_at=now + timedelta(hours=1),
        ends_at=now + timedelta(hours=2),
        problems=[ContestProblem("A", "fence-posts"), ContestProblem("B", "painted-fence")],
    )
    site.call(contests.put_contest(contest, "jo"))
    site.call(contests.join(slug, "con"))


def test_a_program_is_written_tried_sent_and_its_verdict_arrives_by_itself(enter: Entering) -> None:
    with enter("con") as guest:
        page = guest.page
        guest.go("/judge")
        page.get_by_role("link", name="Fence Posts").click()
        expect(page.locator(".statement math").first).to_be_visible()
        page.get_by_label("Language").select_option("python")
        expect(page.locator(".editor.coloured")).to_be_visible()
        editor = page.get_by_label("Program")
        editor.press_sequentially("if True:")
        editor.press("Enter")
        editor.press_sequentially("x = 'a'")
        expect(editor).to_have_value("if True:\n    x = 'a'")
        expect(page.locator(".shade .ink-keyword").first).to_have_text("if")
        editor.press("Shift+Tab")
        expect(editor).to_have_value("if True:\nx = 'a'")
        editor.press("Escape")
        editor.press("Tab")
        expect(page.get_by_role("button", name="Submit")).to_be_focused()
        editor.fill(POSTS)
        page.locator("summary", has_text="My input").click()
        page.locator("#input").fill("10 3\n")
        guest.shoot("judge-editor")
        page.get_by_role("button", name="Run on my input").click()
        expect(page.locator("[data-outcome] pre")).to_have_text("4\n")
        editor.press("Control+Enter")
        page.wait_for_url(re.compile(r"/judge/submissions/\d+$"))
        page.evaluate("window.same = 1")
        expect(page.locator(VERDICT)).to_contain_text("accepted")
        expect(page.locator("[data-tests] tr")).to_have_count(10)
        expect(page.locator("[data-tests] tr").first).to_contain_text("MiB")
        assert page.evaluate("window.same") == 1, "it arrived on the page that was there"
        expect(page.locator("pre.source .ink-number").first).to_be_visible()
        guest.shoot("judge-verdict")


def test_without_scripts_a_form_a_text_area_and_a_page_that_looks_again_do_the_same(enter: Entering) -> None:
    with enter("con", scripts=False) as guest:
        page = guest.page
        guest.go("/judge/problems/fence-posts")
        page.get_by_label("Language").select_option("python")
        page.get_by_label("Program").fill("print(input(")
        page.get_by_role("button", name="Submit").click()
        expect(page.locator(VERDICT)).to_contain_text("does not compile")
        expect(page.locator("pre.error")).to_contain_text("SyntaxError")


def test_a_jury_judges_again_compares_and_applies(enter: Entering, site: JudgeSite) -> None:
    job_id = site.submit("con", language="c", code=POSTS_IN_C)
    with enter("ada") as guest:
        page = guest.page
        guest.go(f"/judge/submissions/{job_id}")
        expect(page.locator(VERDICT)).to_contain_text("accepted")
        page.get_by_role("link", name="Judge again…").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("1 submission is meant")
        page.get_by_role("button", name="Judge 1 again").click()
        apply = page.get_by_role("button", name="Apply")
        expect(apply).to_be_visible(timeout=60_000)
        apply.click()
        page.get_by_role("dialog").get_by_role("button", name="Apply it").click()
        expect(page.locator(".notice")).to_contain_text("It stands")
        guest.shoot("judge-rejudged")


def test_the_scoreboard_shows_what_was_solved(enter: Entering, site: JudgeSite) -> None:
    job_id = site.submit("con", language="c", code=POSTS_IN_C, contest="autumn-icpc")
    with enter("con") as guest:
        page = guest.page
        guest.go(f"/judge/submissions/{job_id}")
        expect(page.locator(VERDICT)).to_contain_text("accepted")
        guest.go("/judge/contests/autumn-icpc")
        page.get_by_role("link", name="Scoreboard").click()
        expect(page.locator(".board .own .solved")).to_have_text(re.compile(r"★ 6\d"))
        guest.shoot("judge-scoreboard")


FILES = {
    "attachments/{name}",
    "statements/{name}",
    "events",
    "news",
    "archive",
    "report",
    "sso",
    "back",
    "static/{name}",
}
"""What the last parts of an address say that is no page."""
SEEN_ELSEWHERE = {
    f"{PAGES_ROOT}/{path}"
    for path in (
        "contests/{contest}/unverified",
        "contests/{contest}/balloons",
        "contests/{contest}/clock",
        "contests/{contest}/teams",
        "verifications",
        "verifications/{job_id}",
    )
}
"""The pages that the test of a contest's day looks at, when there is something on them."""


def every_page() -> set[str]:
    pages = {path for method, path in (*PAGES, *OPEN_PAGES) if method == "GET"}
    return {path for path in pages if not path.endswith(tuple(FILES))}


def runs_of(enter: Entering, job_id: int) -> dict[str, str]:
    """The pages of runs, which a browser without scripts is led to."""
    found: dict[str, str] = {}
    with enter("ada", scripts=False) as guest:
        for button, route in (
            ("Run on my input", "custom-runs/{job_id}"),
            ("Run the samples", "sample-runs"),
        ):
            guest.go("/judge/problems/fence-posts")
            guest.page.get_by_label("Language").select_option("python")
            guest.page.locator("#code").fill(POSTS)
            guest.press(button)
            found[route] = guest.page.url.partition("/judge/")[2]
        guest.go(f"/judge/submissions/{job_id}")
        with guest.page.expect_navigation():
            guest.page.locator("form[action$='/test-runs'] button").first.click()
        found["submissions/{job_id}/test-runs"] = guest.page.url.partition("/judge/")[2]
        guest.go(f"/judge/rejudge?submissions={job_id}&reason=why")
        guest.press("Judge 1 again")
        found["rejudgings/{generation}"] = guest.page.url.partition("/judge/")[2]
    return found


def test_every_page_is_accessible_in_light_and_dark_and_fits_a_phone(
    enter: Entering, site: JudgeSite
) -> None:
    site.call(contests.ask("autumn-icpc", "A", "con", "Is a rest shorter than d given a post?"))
    right = site.submit("con", code=POSTS)
    job_id = site.submit("con", code=EVIL, contest="autumn-icpc")
    with enter("ada") as guest:
        for one, told in ((right, "accepted"), (job_id, "does not compile")):
            guest.go(f"/judge/submissions/{one}")
            expect(guest.page.locator(VERDICT)).to_contain_text(told)
        paths = {
            "": "",
            "submissions/{job_id}": f"submissions/{job_id}",
            "problems/{slug}": f"problems/painted-fence?from={job_id}",
            "submissions": "submissions",
            "contests": "contests",
            "contests/{contest}": "contests/autumn-icpc",
            "contests/{contest}/scoreboard": "contests/autumn-icpc/scoreboard",
            "contests/{contest}/clarifications": "contests/autumn-icpc/clarifications",
            "contest": "contest?contest=autumn-icpc",
            "import": "import",
            "rejudgings": "rejudgings",
            "rejudge": f"rejudge?submissions={job_id}&reason=why",
            "workers": "workers",
            "users": "users",
            "users/{name}": "users/con",
            "account": "account",
            "login": "login",
            **runs_of(enter, right),
        }
        shown = {f"{PAGES_ROOT}/{route}".rstrip("/") for route in paths}
        assert shown | SEEN_ELSEWHERE == every_page()
        for path in (*paths.values(), "contests/autumn-ioi/scoreboard", f"submissions/{right}"):
            guest.go(f"/judge/{path}".rstrip("/"))
            guest.looks("judge-" + (re.sub(r"\W+", "-", path.partition("?")[0]) or "problems"))
            assert guest.page.evaluate("window.hit") is None


def test_the_pages_of_a_contest_s_day_work_and_are_accessible(
    enter: Entering, site: JudgeSite, tmp_path: Path
) -> None:
    """Verdicts are verified, balloons delivered, time removed, teams told, and packages verified."""
    # Time that is removed moves the minutes on a scoreboard.
    hold(site, "winter-icpc", "Winter, ICPC", Scoring.ICPC)
    home = "/judge/contests/winter-icpc"
    right = site.submit("con", code=POSTS, contest="winter-icpc")
    wrong = site.submit("con", code="print(0)", contest="winter-icpc")
    package = tmp_path / "posts.zip"
    with zipfile.ZipFile(package, "w") as archive:
        for path in sorted((SAMPLES / "guess-the-post").rglob("*")):
            # One submission says all, and a busy machine has more to do.
            if path.is_file() and ("submissions" not in path.parts or path.name == "silent.py3"):
                archive.write(path, Path("posts") / path.relative_to(SAMPLES / "guess-the-post"))

    with enter("jo") as guest:
        page = guest.page
        for job_id, told in ((right, "AC"), (wrong, "WA")):
            guest.go(f"/judge/submissions/{job_id}")
            expect(page.locator(VERDICT)).to_contain_text(told)
        page.get_by_label("Note").fill("It forgets the last post.")
        guest.press("Keep the note")
        expect(page.get_by_text("It forgets the last post.")).to_be_visible()
        guest.looks("judge-notes")

        guest.go(f"{home}/unverified")
        guest.looks("judge-verify")
        row = page.get_by_role("row").filter(has=page.get_by_role("link", name=str(right), exact=True))
        with page.expect_navigation():
            row.get_by_role("button", name="Verify AC").click()
        expect(row).to_have_count(0)

        guest.go(f"{home}/balloons")
        guest.looks("judge-balloons")
        guest.press("Delivered")
        expect(page.get_by_role("region", name="Delivered")).to_contain_text("jo")
        guest.looks("judge-balloons-delivered")

        guest.go(f"{home}/clock")
        minute = datetime.fromisoformat(page.get_by_label("From (UTC)").input_value())
        page.get_by_label("From (UTC)").fill((minute - timedelta(minutes=10)).isoformat())
        page.get_by_label("Until (UTC)").fill((minute - timedelta(minutes=5)).isoformat())
        page.get_by_label("Reason").fill("The power failed.")
        guest.press("Remove the interval")
        expect(page.get_by_text("The contest ends 0:05:00 later")).to_be_visible()
        guest.looks("judge-clock-question")
        guest.press("Remove the interval")
        expect(page.get_by_role("region", name="Intervals")).to_contain_text("The power failed.")
        guest.looks("judge-clock")
        with page.expect_download() as loading:
            page.get_by_role("link", name="Download the archive").click()
        assert "scoreboard.json" in zipfile.ZipFile(loading.value.path()).namelist()

        guest.go(f"{home}/clarifications")
        page.get_by_label("Text").fill("There is coffee.")
        guest.press("Tell")
        guest.looks("judge-announcements")
        guest.go(f"{home}/teams")
        guest.looks("judge-teams")

        guest.go("/judge/import")
        page.get_by_label("Package, a zip").set_input_files(package)
        page.get_by_role("button", name="Verify, import nothing").click()
        page.wait_for_url(re.compile(r"/judge/verifications/\d+$"))
        expect(page.get_by_role("link", name="Report as Markdown")).to_be_visible()
        expect(page.get_by_role("table")).to_contain_text("silent.py3")
        guest.looks("judge-verification")
        guest.go("/judge/verifications")
        guest.looks("judge-verifications")

    with enter("con") as guest:
        guest.go(home)
        expect(guest.page.locator("[data-badge]")).to_contain_text("1")
        guest.go("/judge/problems/fence-posts?contest=winter-icpc")
        expect(guest.page.locator(".countdown")).to_contain_text(":")
        guest.looks("judge-contest-editor")
        guest.go("/judge/login")
        expect(guest.page.get_by_role("link", name="Single sign-on")).to_be_visible()
        guest.looks("judge-sign-on")
