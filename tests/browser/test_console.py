"""Every page in a real browser: shown, accessible, at home on a phone, and silent about errors."""

from __future__ import annotations

import re
from typing import Literal

import pytest
from playwright.sync_api import expect

from fencepost.console import people
from tests.browser.visit import Visit
from tests.integration.console.crowd import Crowd

PAGES = [
    "",
    "queues",
    "jobs",
    "dead",
    "dead/preview",
    "schedules",
    "leases",
    "outbox",
    "orders",
    "players",
    "nonces",
    "flows",
    "checkpoints",
    "refusals",
    "reports",
    "users",
    "account",
    "audit",
]


SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


def paths(crowd: Crowd) -> list[str]:
    things = [
        f"jobs/{crowd.running}",
        f"jobs/{crowd.dead[0]}",
        f"leases/{crowd.lease}",
        f"outbox/{crowd.message}",
    ]
    return [*PAGES, *things]


def name_of(path: str) -> str:
    return re.sub(r"\W+", "-", path or "overview")


def test_every_page_is_shown_and_accessible_in_light_and_dark(visit: Visit) -> None:
    crowd = Crowd(visit.stage.database)
    crowd.park()
    visit.stage.place.pulse.forget()
    visit.stage.call(people.roll(5))
    for path in paths(crowd):
        visit.go(f"/console/{path}".rstrip("/"))
        for scheme in SCHEMES:
            visit.page.emulate_media(color_scheme=scheme)
            visit.shoot(f"{name_of(path)}-{scheme}")
            visit.is_accessible()
    visit.went_well()


def test_every_page_fits_a_phone(visit: Visit) -> None:
    crowd = Crowd(visit.stage.database, "a-rather-long-name-of-a-queue-that-does-not-break-anywhere")
    visit.stage.place.pulse.forget()
    visit.page.set_viewport_size({"width": 360, "height": 740})
    for path in paths(crowd):
        visit.go(f"/console/{path}".rstrip("/"))
        visit.fits()
        if path in {"", "jobs", f"jobs/{crowd.dead[0]}"}:
            visit.shoot(f"{name_of(path)}-phone")
    visit.went_well()


def test_times_are_in_the_viewers_zone_with_the_instant_on_hover(visit: Visit) -> None:
    Crowd(visit.stage.database)
    visit.go("/console/jobs")
    expect(visit.page.locator("#zone")).to_have_text(re.compile("Asia/(Kolkata|Calcutta)"))
    time = visit.page.locator("td time").first
    exact = time.get_attribute("title")
    assert exact is not None
    assert exact.endswith("+00:00")
    shown = visit.page.evaluate(
        "(at) => new Intl.DateTimeFormat('en-GB', {dateStyle: 'medium', timeStyle: 'medium',"
        " timeZone: 'Asia/Kolkata'}).format(new Date(at))",
        exact,
    )
    expect(time).to_have_text(shown)


def test_the_figures_move_by_themselves(visit: Visit) -> None:
    visit.go("/console")
    expect(visit.page.locator("#live")).to_have_text("live")
    expect(visit.page.locator("[data-figure=dead]")).to_have_text("0")
    Crowd(visit.stage.database)
    expect(visit.page.locator("[data-figure=dead]")).to_have_text("3", timeout=30_000)
    expect(visit.page.locator("#needs-list")).to_contain_text("dead in mail")
    visit.went_well()


def test_a_chart_is_read_out_with_the_keyboard(visit: Visit) -> None:
    Crowd(visit.stage.database)
    visit.stage.call(people.roll(5))
    visit.go("/console")
    chart = visit.page.locator("figure.chart").first
    chart.focus()
    chart.press("Home")
    chart.press("End")
    expect(chart.locator(".readout")).to_contain_text("finished")
    visit.went_well()


def test_an_operator_pauses_a_queue_and_runs_a_dead_job_again(visit: Visit) -> None:
    crowd = Crowd(visit.stage.database)
    visit.stage.place.pulse.forget()
    visit.go("/console/queues")
    visit.page.get_by_role("button", name="Pause").click()
    expect(visit.page.get_by_role("status").filter(has_text="mail is paused")).to_be_visible()
    visit.shoot("queue-paused")
    visit.page.get_by_role("button", name="Resume").click()
    expect(visit.page.get_by_role("button", name="Pause")).to_be_visible()
    visit.go(f"/console/jobs/{crowd.dead[0]}")
    visit.page.get_by_role("button", name="Replay").click()
    expect(visit.page.get_by_role("heading", level=1)).to_contain_text("pending")
    visit.page.on("dialog", lambda dialog: dialog.accept())
    visit.page.get_by_role("button", name="Cancel").click()
    expect(visit.page.get_by_role("heading", level=1)).to_contain_text("cancelled")
    visit.went_well()


def test_dead_letters_are_previewed_and_replayed_in_bulk(visit: Visit) -> None:
    crowd = Crowd(visit.stage.database)
    visit.stage.place.pulse.forget()
    visit.go("/console/dead")
    visit.page.get_by_role("link", name="Preview…").click()
    expect(visit.page.get_by_role("heading", level=1)).to_have_text("3 dead letters are meant")
    visit.shoot("dead-preview")
    visit.page.get_by_role("button", name="Replay 3").click()
    expect(visit.page.locator(".notice")).to_contain_text("3 replayed")
    assert {crowd.state_of(job) for job in crowd.dead} == {"pending"}
    visit.went_well()


def test_a_question_that_is_denied_changes_nothing(visit: Visit) -> None:
    crowd = Crowd(visit.stage.database)
    visit.page.on("dialog", lambda dialog: dialog.dismiss())
    visit.go(f"/console/jobs/{crowd.waiting}")
    visit.page.get_by_role("button", name="Cancel").click()
    assert crowd.state_of(crowd.waiting) == "pending"


def test_filters_stay_in_the_address(visit: Visit) -> None:
    Crowd(visit.stage.database)
    visit.go("/console/jobs")
    visit.page.get_by_label("State").select_option("dead")
    visit.page.get_by_role("button", name="Show").click()
    assert "state=dead" in visit.page.url
    expect(visit.page.locator("tbody tr")).to_have_count(3)
    visit.page.reload()
    expect(visit.page.get_by_label("State")).to_have_value("dead")


def test_a_token_is_made_shown_once_and_revoked(visit: Visit) -> None:
    visit.go("/console/account")
    visit.page.get_by_label("For").fill("ci")
    visit.page.get_by_role("button", name="Make a token").click()
    expect(visit.page.locator("pre.secret")).to_contain_text("fpc_")
    visit.page.get_by_role("link", name="Go on").click()
    visit.page.on("dialog", lambda dialog: dialog.accept())
    visit.page.get_by_role("button", name="Revoke").click()
    expect(visit.page.get_by_text("revoked", exact=True)).to_be_visible()


@pytest.mark.parametrize("evil", ["<img src=x onerror=window.hit=1>", "javascript:window.hit=1"])
def test_a_name_that_is_markup_is_only_a_name(visit: Visit, evil: str) -> None:
    Crowd(visit.stage.database, evil)
    for path in ("", "queues", "jobs", "dead", "leases", "outbox", "refusals"):
        visit.go(f"/console/{path}".rstrip("/"))
        assert visit.page.evaluate("window.hit") is None
    visit.went_well()


def test_logging_out_shows_the_login(visit: Visit) -> None:
    visit.go("/console")
    visit.page.get_by_role("button", name="Log out").click()
    expect(visit.page.get_by_role("heading", name="Log in")).to_be_visible()
    visit.is_accessible()
    visit.shoot("login")
    visit.went_well()
