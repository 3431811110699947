"""Every page and every action in a real browser: accessible, at home on a phone, and silent about errors."""

from __future__ import annotations

import re
from contextlib import closing
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
from tests.integration.console.populated_system import PopulatedSystem, fail, leave_a_report
from tests.integration.console.test_walk import routes
from tests.integration.console.watchers import Watchers
from tests.integration.kernel import workflow_calls
from tests.integration.kernel.caller import Caller

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


def name_of(path: str) -> str:
    return re.sub(r"\W+", "-", path.removeprefix("/console").strip("/") or "overview")


def test_every_page_is_shown_accessible_and_at_home_on_a_phone(visit: Visit, city: PopulatedSystem) -> None:
    known = routes(visit.env)
    seen = {route for path in paths(city) for route, form in known.items() if form.fullmatch(path)}
    assert seen == set(known), "a page of each route"
    for path in paths(city):
        visit.go(path)
        visit.looks(name_of(path))
        # In the viewer's zone, with the exact instant on hover; in lists it is relative.
        for told, expected, instant in visit.page.evaluate(SHOWN):
            assert (told, instant[-6:]) == (expected, "+00:00"), path
    expect(visit.page.locator("#zone")).to_have_text(re.compile("Asia/(Kolkata|Calcutta)"))
    visit.went_well()


def test_no_list_is_wider_than_its_place(visit: Visit, city: PopulatedSystem) -> None:
    Watchers(visit.env.database, "a-queue-with-a-name-" + "that_has_no_place_to_break_" * 3)
    for path in ("queues", "jobs", "batches", "workflows", "dead", "schedules", "leases", "outbox"):
        visit.go(f"/console/{path}")
        visit.shows_all()


def test_an_error_is_a_page_too(visit: Visit) -> None:
    answer = visit.page.goto("/console/nothing")
    assert answer is not None
    assert answer.status == 404
    visit.shoot("not-found")
    # Without a style of its own: axe does not know the ground that a browser gives it in dark.
    visit.is_accessible(dark=False, phone=True)
    for path, status, name in (
        ("/console/jobs/999999999", 404, "no-job"),
        ("/console/jobs?state=odd", 400, "bad-filter"),
    ):
        answer = visit.page.goto(path)
        assert answer is not None
        assert answer.status == status
        visit.looks(name)
        expect(visit.page.get_by_role("alert")).to_be_visible()
        expect(visit.page.get_by_role("link", name="To the start page")).to_be_visible()


def test_the_cross_of_a_refusal_is_seen_on_a_phone(visit: Visit, city: PopulatedSystem) -> None:
    visit.go(f"/console/jobs/{city.running}")
    crosses = visit.page.locator(".lane-refused")
    wide, narrow = crosses.first, crosses.last
    expect(wide).to_be_visible()
    expect(narrow).to_be_hidden()
    visit.page.set_viewport_size({"width": 360, "height": 740})
    expect(wide).to_be_hidden()
    place = narrow.bounding_box()
    assert place is not None
    assert 0 <= place["x"] <= 360 - place["width"]
    visit.went_well()


def test_a_chosen_theme_is_kept_and_accessible(visit: Visit, city: PopulatedSystem) -> None:
    visit.page.emulate_media(color_scheme="light")
    visit.go("/console/jobs?state=dead")
    with visit.page.expect_navigation():
        visit.page.get_by_label("Theme").select_option("dark")
    assert visit.page.url.endswith("/console/jobs?state=dead")
    assert visit.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(17, 22, 27)"
    visit.is_accessible(dark=False)
    visit.shoot("theme-dark")
    with visit.page.expect_navigation():
        visit.page.get_by_label("Theme").select_option("auto")
    visit.went_well()


def test_the_palette_goes_to_pages_ids_and_parts_of_jobs(visit: Visit, city: PopulatedSystem) -> None:
    visit.go("/console")
    visit.page.keyboard.press("Control+k")
    field = visit.page.get_by_role("combobox", name="A page, an id, or a part of a job")
    expect(field).to_be_focused()
    field.fill("lea")
    visit.is_accessible(dark=False)
    visit.shoot("palette")
    field.press("Enter")
    visit.page.wait_for_url("**/console/leases", wait_until="load")
    visit.page.keyboard.press("Control+k")
    visit.page.locator(".palette input").fill(str(city.running))
    visit.page.locator(".palette input").press("Enter")
    visit.page.wait_for_url(f"**/console/jobs/{city.running}", wait_until="load")
    visit.page.keyboard.press("g")
    visit.page.keyboard.press("q")
    visit.page.wait_for_url("**/console/queues", wait_until="load")
    visit.page.keyboard.press("?")
    expect(visit.page.get_by_role("dialog", name="Shortcuts")).to_be_visible()
    visit.went_well()


def test_a_list_sorts_is_searched_by_parts_and_has_times_ago(visit: Visit, city: PopulatedSystem) -> None:
    visit.go("/console/jobs?queue=mail")
    ids = visit.page.locator("tbody tr th a")
    newest = ids.all_inner_texts()
    with visit.page.expect_navigation():
        visit.page.get_by_role("link", name="id", exact=True).click()
    assert ids.all_inner_texts() == newest[::-1]
    assert "sort=jobs.job_id" in visit.page.url
    visit.page.reload()
    expect(ids.first).to_have_text(newest[-1])
    time = visit.page.locator("tbody time").first
    expect(time).to_have_text(re.compile("ago|now"))
    assert time.get_attribute("title") == time.get_attribute("datetime")
    visit.page.get_by_label("Contains").fill("AI")
    visit.press("Show")
    expect(ids.first).to_be_visible()
    visit.page.get_by_label("Contains").fill("nothing has this")
    visit.press("Show")
    expect(ids).to_have_count(0)
    visit.went_well()


def test_selected_jobs_are_counted_and_decided_about_together(visit: Visit, city: PopulatedSystem) -> None:
    crowd = Watchers(visit.env.database, "chosen")
    visit.go("/console/jobs?queue=chosen")
    button = visit.page.get_by_role("button", name="Discard…")
    expect(button).to_be_disabled()
    for job in (*crowd.dead[:2], crowd.waiting):
        visit.page.get_by_label(f"Select job {job}", exact=True).check()
    expect(visit.page.get_by_text("3 selected:")).to_be_visible()
    told = visit.decide("Discard…", "Discard 2 jobs")
    assert "Selected are 3 jobs: 2 dead, 1 pending." in told
    expect(visit.page.locator(".notice")).to_contain_text("2 jobs discarded, 1 refused.")
    assert [crowd.state_of(job) for job in crowd.dead] == ["cancelled", "cancelled", "dead"]
    visit.went_well()


def test_without_scripts_a_question_is_a_page_and_a_selection_works(
    browser: Browser, visit: Visit, city: PopulatedSystem
) -> None:
    crowd = Watchers(visit.env.database, "plain")
    context = browser.new_context(base_url=visit.env.url, java_script_enabled=False)
    page = context.new_page()
    page.goto(visit.env.link(Role.ADMIN))
    page.goto("/console/jobs?queue=plain&state=dead")
    page.get_by_label(f"Select job {crowd.dead[0]}", exact=True).check()
    page.get_by_role("button", name="Discard…").click()
    page.get_by_role("link", name="Change nothing").click()
    assert crowd.state_of(crowd.dead[0]) == "dead"
    page.goto("/console/jobs?queue=plain&state=dead")
    page.get_by_label(f"Select job {crowd.dead[0]}", exact=True).check()
    page.get_by_role("button", name="Discard…").click()
    if visit.shots is not None:
        page.screenshot(path=visit.shots / "question-without-scripts.png", full_page=True)
    page.get_by_role("button", name="Discard 1 job").click()
    assert crowd.state_of(crowd.dead[0]) == "cancelled"
    page.get_by_label("Theme").select_option("dark")
    page.get_by_role("button", name="Set").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    context.close()


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
    visit.page.get_by_role("dialog").get_by_role("button", name="Pause operated").click()
    expect(visit.page.get_by_role("status").filter(has_text="operated is paused")).to_be_visible()
    visit.shoot("queue-paused")
    row.get_by_role("button", name="Resume").click()
    expect(row.get_by_role("button", name="Pause")).to_be_visible()
    visit.go("/console/schedules")
    visit.decide("Pause", "Pause nightly")
    expect(visit.page.get_by_role("status").filter(has_text="nightly is paused")).to_be_visible()
    expect(visit.page.locator("tbody .state")).to_have_text("paused")
    visit.press("Resume")
    expect(visit.page.get_by_role("status").filter(has_text="nightly fires again")).to_be_visible()
    expect(visit.page.locator("tbody .state")).to_have_text("open")
    heading = visit.page.get_by_role("heading", level=1)
    visit.go(f"/console/jobs/{crowd.dead[0]}")
    visit.decide("Replay", f"Run job {crowd.dead[0]}")
    expect(heading).to_contain_text("pending")
    visit.deny("Cancel")
    assert crowd.state_of(crowd.dead[0]) == "pending", "a question that is denied changes nothing"
    told = visit.decide("Cancel", f"Cancel job {crowd.dead[0]}")
    assert "operated in operated, is pending." in told
    expect(heading).to_contain_text("cancelled")
    visit.decide("Run now", f"Run job {crowd.dead[0]}")
    expect(heading).to_contain_text("pending")
    visit.shoot("job-run-again")
    visit.go(f"/console/jobs/{crowd.dead[1]}")
    visit.decide("Discard", f"Discard job {crowd.dead[1]}")
    expect(heading).to_contain_text("cancelled")
    visit.went_well()


def test_an_operator_approves_a_workflow_and_retries_one_from_a_step(
    visit: Visit, city: PopulatedSystem
) -> None:
    caller = Caller(visit.env.database.url)
    with closing(caller.connection):
        waiting = workflow_calls.running(caller)
        workflow_calls.step(caller, waiting, "price", result=5)
        workflow_calls.wait_for(caller, waiting, "approve:browser")
        dead = workflow_calls.running(caller, tries_max=1)
        workflow_calls.step(caller, dead, "price", result=5)
        workflow_calls.step(caller, dead, "reserve")
        fail(caller, dead, 1, "ship")
    status, heading = visit.page.get_by_role("status"), visit.page.get_by_role("heading", level=1)
    visit.go(f"/console/workflows/{waiting}")
    visit.page.get_by_label("Payload of approve:browser").fill('{"by": 1}')
    told = visit.decide("Emit approve:browser", "Emit approve:browser")
    assert '{"by": 1}' in told
    expect(status.filter(has_text="approve:browser is emitted")).to_be_visible()
    expect(visit.page.get_by_role("region", name="Waits for")).to_contain_text("by admin")
    expect(visit.page.get_by_role("button", name="Emit approve:browser")).to_have_count(0)
    visit.shoot("workflow-approved")
    visit.go(f"/console/workflows/{dead}")
    expect(visit.page.locator("main")).to_contain_text("Traceback (most recent call last)")
    visit.shoot("workflow-dead")
    row = visit.page.locator("tr").filter(has=visit.page.get_by_role("rowheader", name="reserve"))
    row.get_by_role("button", name="Retry from here").click()
    dialog = visit.page.get_by_role("dialog")
    expect(dialog).to_contain_text("It forgets 1 step, from reserve on, and runs again.")
    visit.shoot("workflow-retry-from")
    dialog.get_by_role("button", name=f"Retry workflow {dead} from reserve").click()
    expect(heading).to_contain_text("pending")
    visit.shoot("workflow-retried")
    visit.went_well()


def test_dead_letters_are_previewed_and_replayed_in_bulk(visit: Visit, city: PopulatedSystem) -> None:
    crowd = Watchers(visit.env.database, "buried")
    visit.env.context.live_snapshot.forget()
    visit.go("/console/dead?queue=buried")
    visit.page.get_by_role("link", name="Preview…").click()
    expect(visit.page.get_by_role("heading", level=1)).to_have_text("3 dead letters are selected")
    visit.shoot("dead-preview-of-one-cause")
    visit.decide("Replay 3", "Replay 3")
    expect(visit.page.locator(".notice")).to_contain_text("3 replayed")
    assert {crowd.state_of(job) for job in crowd.dead} == {"pending"}
    visit.went_well()


def test_dead_letters_are_discarded_in_bulk_after_a_question(visit: Visit, city: PopulatedSystem) -> None:
    crowd = Watchers(visit.env.database, "hopeless")
    visit.env.context.live_snapshot.forget()
    visit.go("/console/dead/preview?queue=hopeless")
    visit.deny("Discard 3")
    assert {crowd.state_of(job) for job in crowd.dead} == {"dead"}, (
        "a question that is denied changes nothing"
    )
    visit.decide("Discard 3", "Discard 3")
    expect(visit.page.locator(".notice")).to_contain_text("3 discarded")
    assert {crowd.state_of(job) for job in crowd.dead} == {"cancelled"}
    visit.shoot("dead-discarded")
    visit.went_well()


def test_messages_orders_and_flows_are_decided_about(visit: Visit, city: PopulatedSystem) -> None:
    visit.go(f"/console/outbox/{city.parked}")
    visit.page.get_by_label("It is").select_option("dead")
    visit.page.get_by_label("because").fill("asked them")
    visit.decide("Decide…", "Make it dead")
    expect(visit.page.get_by_role("heading", level=1)).to_contain_text("dead")
    visit.go(f"/console/orders/{city.orders['parked']}")
    visit.page.get_by_label("It is").select_option("unknown")
    visit.page.get_by_label("because").first.fill("ask them again")
    visit.decide("Decide…", "Make it unknown")
    expect(visit.page.get_by_role("heading", level=1)).to_contain_text("unknown")
    visit.shoot("order-decided")
    visit.go(f"/console/orders/{city.orders['unknown']}")
    visit.page.get_by_label("It is").select_option("sent")
    visit.page.get_by_label("because").first.fill("seen in the blotter")
    visit.page.get_by_label("broker's id").fill("61e69015")
    visit.page.get_by_role("button", name="Decide…").click()
    expect(visit.page.get_by_role("link", name="Change nothing")).to_be_focused()
    visit.is_accessible(dark=True)
    visit.shoot("order-question")
    with visit.page.expect_navigation():
        visit.page.get_by_role("button", name="Make it sent").click()
    expect(visit.page.get_by_role("heading", level=1)).to_contain_text("sent")
    expect(visit.page.locator("dl.facts")).to_contain_text("61e69015")
    expect(visit.page.get_by_role("heading", name="What the broker said")).to_be_visible()
    visit.shoot("order-seen-at-the-broker")
    visit.go(f"/console/orders/{city.orders['queued']}")
    visit.page.get_by_label("Cancel it, because").fill("too late")
    visit.decide("Cancel…", f"Cancel order {city.orders['queued']}")
    expect(visit.page.get_by_role("heading", level=1)).to_contain_text("dead")
    visit.go(f"/console/flows/{city.flow}")
    visit.page.get_by_role("textbox", name="Savepoint").fill("by-hand")
    # The task here is held, and will not answer.
    visit.page.get_by_label("Seconds to wait for commits").fill("0")
    visit.press("Save")
    expect(visit.page.get_by_role("region", name="Savepoints")).to_contain_text("by-hand")
    visit.decide("Drain", f"Drain {city.flow}")
    expect(visit.page.get_by_role("heading", level=1)).to_contain_text("paused")
    visit.shoot("flow-drained")
    visit.press("Run again")
    expect(visit.page.get_by_role("status").filter(has_text="runs again")).to_be_visible()
    expect(visit.page.get_by_role("button", name="Drain", exact=True)).to_be_visible()
    expect(visit.page.get_by_role("heading", level=1)).not_to_contain_text("paused")
    visit.page.get_by_label("Select dead letter", exact=False).first.check()
    visit.decide("Discard…", "Discard 1 dead letter")
    expect(visit.page.locator(".notice")).to_contain_text("1 dead letter discarded")
    visit.went_well()


def test_tokens_and_users_are_made_and_locked_out(visit: Visit) -> None:
    visit.go("/console/account")
    visit.page.get_by_label("For").fill("ci")
    visit.press("Make a token")
    expect(visit.page.locator("pre.secret")).to_contain_text("fpc_")
    visit.page.get_by_role("link", name="Go on").click()
    visit.page.wait_for_load_state()
    visit.page.get_by_role("button", name="Revoke", exact=True).click()
    with visit.page.expect_navigation():
        visit.page.get_by_role("dialog").get_by_role("button", name="Revoke token").click()
    expect(visit.page.get_by_text("revoked", exact=True)).to_be_visible()
    visit.go("/console/users")
    visit.page.get_by_label("Name").fill("grace")
    visit.page.get_by_label("Password").fill("a long enough one")
    visit.press("Save")
    row = visit.page.locator("tr").filter(has_text="grace")
    row.get_by_role("button", name="Disable").click()
    visit.page.get_by_role("dialog").get_by_role("button", name="Disable grace").click()
    expect(row).to_contain_text("locked")
    visit.shoot("user-disabled")
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
    browser: Browser, shared_database: Database, shots: Path | None
) -> None:
    with openid_provider() as issuer, console(shared_database, trusting(issuer)) as env:

        def proxied(route: Route) -> None:
            """As the proxy in front of the console does under its public name; there is no other client."""
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
        visit = Visit(url=env.url, page=page, shots=shots, env=env)
        page.goto("/console/jobs")
        visit.shoot("login-with-single-sign-on")
        page.get_by_role("link", name="Single sign-on").click()
        page.get_by_role("button", name=ADA["sub"], exact=True).click()
        page.wait_for_url(f"{env.url}/console/jobs")
        expect(page.get_by_role("link", name=ADA["email"])).to_be_visible()
        expect(page.locator("header .role")).to_have_text("operator")
        visit.shoot("let-in-by-single-sign-on")
        context.close()
