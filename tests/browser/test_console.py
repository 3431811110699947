"""Every page and every action in a real browser: accessible, at home on a phone, and silent about errors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Route, expect

from fencepost.embedded import Database
from fencepost_server.console._minutes import roll
from fencepost_server.console._role import Role
from tests.browser.visit import Visit
from tests.integration.console.env import PASSWORD, ConsoleEnv, console
from tests.integration.console.oidc_double import ADA, PUBLIC_URL, openid_provider, trusting
from tests.integration.console.page import LISTS
from tests.integration.console.populated_system import PopulatedSystem, leave_a_report
from tests.integration.console.watchers import Watchers

EVIL = "\"'><img src=x onerror=window.hit=1>javascript:window.hit=1"
SHOWN = """() => [...document.querySelectorAll("time:not(td time, tbody th time, .age time)")].map((time) => [
  time.textContent, new Intl.DateTimeFormat("en-GB", {dateStyle: "medium", timeStyle: "medium",
  timeZone: "Asia/Kolkata"}).format(new Date(time.title)), time.title])"""


@pytest.fixture(scope="module")
def city(env: ConsoleEnv) -> PopulatedSystem:
    leave_a_report(env.context.fp.settings.data_directory)
    city = PopulatedSystem(env.database)
    env.call(roll(5))
    env.context.live_snapshot.forget()
    return city


def paths(city: PopulatedSystem) -> list[str]:
    """One page of every template."""
    things = [
        f"jobs/{city.running}",
        f"jobs/{city.dead[0]}",
        f"batches/{city.batch}",
        "schedules/nightly",
        f"workflows/{city.workflow}",
        f"workflows/{city.dead_workflow}",
        f"leases/{city.lease}",
        f"outbox/{city.parked}",
        f"orders/{city.orders['parked']}",
        "players/p1",
        f"nonces/{city.signer}",
        f"flows/{city.flow}",
    ]
    lists = [path for path in LISTS if path != "overview"]
    return ["/console", *(f"/console/{path}" for path in (*lists, *things))]


def in_the_dark(city: PopulatedSystem) -> list[str]:
    """Between them they have every kind of thing that has a colour."""
    return [
        "",
        "queues",
        f"jobs/{city.dead[0]}",
        f"orders/{city.orders['parked']}",
        f"flows/{city.flow}",
        f"workflows/{city.workflow}",
        "users",
    ]


def name_of(path: str) -> str:
    return re.sub(r"\W+", "-", path.removeprefix("/console").strip("/") or "overview")


def test_every_page_is_shown_accessible_and_at_home_on_a_phone(visit: Visit, city: PopulatedSystem) -> None:
    for path in paths(city):
        visit.page.emulate_media(color_scheme="light")
        visit.go(path)
        visit.shoot(name_of(path))
        visit.fits_a_phone()
        dark = path in (f"/console/{one}".rstrip("/") for one in in_the_dark(city))
        visit.is_accessible(dark=dark)
        if dark:
            visit.shoot(f"{name_of(path)}-dark")
        # In the viewer's zone, with the exact instant on hover.
        for told, expected, instant in visit.page.evaluate(SHOWN):
            assert (told, instant[-6:]) == (expected, "+00:00"), path
    expect(visit.page.locator("#zone")).to_have_text(re.compile("Asia/(Kolkata|Calcutta)"))
    visit.went_well()


def test_what_is_written_in_the_database_does_nothing_in_a_browser(
    visit: Visit, city: PopulatedSystem
) -> None:
    crowd = Watchers(visit.env.database, EVIL)
    visit.env.context.live_snapshot.forget()
    for path in ("", "queues", "jobs", "dead", "leases", "outbox", f"jobs/{crowd.dead[0]}"):
        visit.go(f"/console/{path}".rstrip("/"))
        assert visit.page.evaluate("window.hit") is None, path
        assert EVIL in visit.page.inner_text("main"), path
    visit.went_well()


def test_the_figures_move_by_themselves_and_a_chart_is_read_out_with_the_keyboard(
    visit: Visit, city: PopulatedSystem
) -> None:
    visit.go("/console")
    expect(visit.page.locator("#live")).to_have_text("live")
    Watchers(visit.env.database, "lively")
    expect(visit.page.locator("#needs-list")).to_contain_text("dead in lively", timeout=60_000)
    chart = visit.page.locator("figure.chart").first
    chart.focus()
    chart.press("Home")
    chart.press("End")
    expect(chart.locator(".readout")).to_contain_text("finished")
    visit.shoot("overview-live")
    visit.went_well()


def test_filters_stay_in_the_address(visit: Visit, city: PopulatedSystem) -> None:
    visit.go("/console/jobs?queue=mail")
    visit.page.get_by_label("State").select_option("dead")
    visit.press("Show")
    assert "state=dead" in visit.page.url
    expect(visit.page.locator("tbody tr")).to_have_count(3)
    visit.page.reload()
    expect(visit.page.get_by_label("State")).to_have_value("dead")
    visit.went_well()


def test_an_operator_decides_about_queues_schedules_and_jobs(visit: Visit, city: PopulatedSystem) -> None:
    crowd = Watchers(visit.env.database, "operated")
    visit.env.context.live_snapshot.forget()
    visit.go("/console/queues")
    row = visit.page.locator("tr[data-queue=operated]")
    row.get_by_role("button", name="Pause").click()
    expect(visit.page.get_by_role("status").filter(has_text="operated is paused")).to_be_visible()
    visit.shoot("queue-paused")
    row.get_by_role("button", name="Resume").click()
    expect(row.get_by_role("button", name="Pause")).to_be_visible()
    visit.go("/console/schedules")
    visit.press("Pause")
    expect(visit.page.get_by_role("status").filter(has_text="nightly is paused")).to_be_visible()
    expect(visit.page.locator("tbody .state")).to_have_text("paused")
    visit.press("Resume")
    expect(visit.page.get_by_role("status").filter(has_text="nightly fires again")).to_be_visible()
    expect(visit.page.locator("tbody .state")).to_have_text("open")
    heading = visit.page.get_by_role("heading", level=1)
    visit.go(f"/console/jobs/{crowd.dead[0]}")
    visit.press("Replay")
    expect(heading).to_contain_text("pending")
    answers = ["dismiss", "accept", "accept"]
    visit.page.on("dialog", lambda dialog: getattr(dialog, answers.pop(0))())
    visit.page.get_by_role("button", name="Cancel").click()
    assert crowd.state_of(crowd.dead[0]) == "pending", "a question that is denied changes nothing"
    visit.press("Cancel")
    expect(heading).to_contain_text("cancelled")
    visit.press("Run now")
    expect(heading).to_contain_text("pending")
    visit.shoot("job-run-again")
    visit.go(f"/console/jobs/{crowd.dead[1]}")
    visit.press("Give up")
    expect(heading).to_contain_text("cancelled")
    visit.went_well()


def test_dead_letters_are_previewed_and_replayed_in_bulk(visit: Visit, city: PopulatedSystem) -> None:
    crowd = Watchers(visit.env.database, "buried")
    visit.env.context.live_snapshot.forget()
    visit.go("/console/dead?queue=buried")
    visit.page.get_by_role("link", name="Preview…").click()
    expect(visit.page.get_by_role("heading", level=1)).to_have_text("3 dead letters are selected")
    visit.shoot("dead-preview-of-one-cause")
    visit.press("Replay 3")
    expect(visit.page.locator(".notice")).to_contain_text("3 replayed")
    assert {crowd.state_of(job) for job in crowd.dead} == {"pending"}
    visit.went_well()


def test_dead_letters_are_given_up_in_bulk_after_a_question(visit: Visit, city: PopulatedSystem) -> None:
    crowd = Watchers(visit.env.database, "hopeless")
    visit.env.context.live_snapshot.forget()
    visit.go("/console/dead/preview?queue=hopeless")
    answers = ["dismiss", "accept"]
    visit.page.on("dialog", lambda dialog: getattr(dialog, answers.pop(0))())
    visit.page.get_by_role("button", name="Give up 3").click()
    assert {crowd.state_of(job) for job in crowd.dead} == {"dead"}, (
        "a question that is denied changes nothing"
    )
    visit.press("Give up 3")
    expect(visit.page.locator(".notice")).to_contain_text("3 discarded")
    assert {crowd.state_of(job) for job in crowd.dead} == {"cancelled"}
    visit.shoot("dead-given-up")
    visit.went_well()


def test_messages_orders_and_flows_are_decided_about(visit: Visit, city: PopulatedSystem) -> None:
    visit.go(f"/console/outbox/{city.parked}")
    visit.page.get_by_label("It is").select_option("dead")
    visit.page.get_by_label("because").fill("asked them")
    visit.press("Decide")
    expect(visit.page.get_by_role("heading", level=1)).to_contain_text("dead")
    visit.go(f"/console/orders/{city.orders['parked']}")
    visit.page.get_by_label("It is").select_option("unknown")
    visit.page.get_by_label("because").first.fill("ask them again")
    visit.press("Decide")
    expect(visit.page.get_by_role("heading", level=1)).to_contain_text("unknown")
    visit.shoot("order-decided")
    visit.go(f"/console/orders/{city.orders['unknown']}")
    visit.page.get_by_label("It is").select_option("sent")
    visit.page.get_by_label("because").first.fill("seen in the blotter")
    visit.page.get_by_label("broker's id").fill("61e69015")
    visit.press("Decide")
    expect(visit.page.get_by_role("heading", level=1)).to_contain_text("sent")
    expect(visit.page.locator("dl.facts")).to_contain_text("61e69015")
    expect(visit.page.get_by_role("heading", name="What the broker said")).to_be_visible()
    visit.shoot("order-seen-at-the-broker")
    visit.go(f"/console/orders/{city.orders['queued']}")
    visit.page.get_by_label("Cancel it, because").fill("too late")
    visit.press("Cancel")
    expect(visit.page.get_by_role("heading", level=1)).to_contain_text("dead")
    visit.go(f"/console/flows/{city.flow}")
    visit.page.get_by_role("textbox", name="Savepoint").fill("by-hand")
    # The task here is held, and will not answer.
    visit.page.get_by_label("Seconds to wait for commits").fill("0")
    visit.press("Keep")
    expect(visit.page.get_by_role("region", name="Savepoints")).to_contain_text("by-hand")
    visit.page.on("dialog", lambda dialog: dialog.accept())
    visit.press("Drain")
    expect(visit.page.get_by_role("heading", level=1)).to_contain_text("paused")
    visit.shoot("flow-drained")
    visit.press("Run again")
    expect(visit.page.get_by_role("status").filter(has_text="runs again")).to_be_visible()
    expect(visit.page.get_by_role("button", name="Drain", exact=True)).to_be_visible()
    expect(visit.page.get_by_role("heading", level=1)).not_to_contain_text("paused")
    visit.went_well()


def test_tokens_and_users_are_made_and_locked_out(visit: Visit) -> None:
    visit.page.on("dialog", lambda dialog: dialog.accept())
    visit.go("/console/account")
    visit.page.get_by_label("For").fill("ci")
    visit.press("Make a token")
    expect(visit.page.locator("pre.secret")).to_contain_text("fpc_")
    visit.page.get_by_role("link", name="Go on").click()
    visit.press("Revoke")
    expect(visit.page.get_by_text("revoked", exact=True)).to_be_visible()
    visit.go("/console/users")
    visit.page.get_by_label("Name").fill("grace")
    visit.page.get_by_label("Password").fill("a long enough one")
    visit.press("Keep")
    row = visit.page.locator("tr").filter(has_text="grace")
    row.get_by_role("button", name="Lock out").click()
    expect(row).to_contain_text("locked")
    visit.shoot("user-locked-out")
    visit.went_well()


def test_logging_in_and_out(browser: Browser, visit: Visit) -> None:
    name = visit.env.user(Role.OPERATOR)
    context = browser.new_context(base_url=visit.env.url)
    someone = Visit(url=visit.url, page=context.new_page(), shots=visit.shots, env=visit.env)
    someone.go("/console/jobs")
    someone.is_accessible(dark=False)
    someone.shoot("login")
    someone.page.get_by_label("Name").fill(name)
    someone.page.get_by_label("Password").fill(PASSWORD)
    someone.press("Log in")
    assert someone.page.url.endswith("/console/jobs")
    someone.press("Log out")
    expect(someone.page.get_by_role("heading", name="Log in")).to_be_visible()
    someone.went_well()
    context.close()


def test_single_sign_on_lets_in_by_its_button(
    browser: Browser, shared_database: Database, shots: Path
) -> None:
    with openid_provider() as issuer, console(shared_database, trusting(issuer)) as env:

        def proxied(route: Route) -> None:
            """As the proxy in front of the console does under its public name; there is nobody else."""
            address = route.request.url
            if address.startswith(PUBLIC_URL):
                route.fulfill(
                    status=303, headers={"location": f"{env.url}{address.removeprefix(PUBLIC_URL)}"}
                )
            elif address.startswith((env.url, issuer)):
                route.continue_()
            else:
                route.abort()

        context = browser.new_context(base_url=env.url)
        context.route("**/*", proxied)
        page = context.new_page()
        page.goto("/console/jobs")
        page.screenshot(path=shots / "login-with-single-sign-on.png", full_page=True)
        page.get_by_role("link", name="Single sign-on").click()
        page.get_by_role("button", name=ADA["sub"], exact=True).click()
        page.wait_for_url(f"{env.url}/console/jobs")
        expect(page.get_by_role("link", name=ADA["email"])).to_be_visible()
        expect(page.locator("header .role")).to_have_text("operator")
        page.screenshot(path=shots / "let-in-by-single-sign-on.png", full_page=True)
        context.close()
