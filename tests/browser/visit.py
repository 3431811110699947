"""A person at a browser: goes to pages, looks, and complains about what a page must not do."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from axe_playwright_python.base import AXE_SCRIPT  # type: ignore[import-untyped]
from playwright.sync_api import ConsoleMessage, Page, Request, ViewportSize

from tests.integration.console.env import ConsoleEnv

# Tags of WCAG 2.1 A and AA. What else was found right of all the page need not be told.
RULES = {
    "runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]},
    "resultTypes": ["violations"],
}
# Lists whose cells need more room than they have.
CUT_OFF = """() => [...document.querySelectorAll(".scroll[data-table]")]
  .filter((region) => region.scrollWidth > region.clientWidth + 1)
  .map((region) => `${region.getAttribute("aria-label")}: ${region.scrollWidth} in ${region.clientWidth}`)"""
# Cells that hold words and are so narrow that every word is broken.
SQUEEZED = """() => [...document.querySelectorAll("td, tbody th")]
  .filter((cell) => cell.innerText.trim().length > 12 && cell.offsetWidth > 0 && cell.offsetWidth < 64)
  .map((cell) => cell.innerText.trim())"""
PHONE: ViewportSize = {"width": 360, "height": 740}
SHOT_MS = 180_000
CONTRAST = {"runOnly": {"type": "rule", "values": ["color-contrast"]}, "resultTypes": ["violations"]}
FIND = "(options) => axe.run(document, options).then((found) => found.violations)"


@dataclass(kw_only=True)
class Guest:
    """At any system of ours."""

    url: str
    page: Page
    shots: Path | None
    user_errors: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.user_errors.append(f"script: {error}"))
        self.page.on("request", self._asked)

    def go(self, path: str) -> None:
        answer = self.page.goto(path)
        assert answer is not None
        assert answer.ok, (path, answer.status)

    def press(self, button: str) -> None:
        """Press it, and be where it leads."""
        with self.page.expect_navigation():
            self.page.get_by_role("button", name=button, exact=True).click()

    def decide(self, button: str, answer: str) -> str:
        """Press a button that asks first, answer its question, and be where it leads. Returns its words."""
        # Before its scripts are there a form leads to the question as a page of its own.
        self.page.wait_for_load_state()
        self.page.get_by_role("button", name=button, exact=True).click()
        dialog = self.page.get_by_role("dialog")
        dialog.wait_for()
        told = dialog.inner_text()
        with self.page.expect_navigation():
            dialog.get_by_role("button", name=answer, exact=True).click()
        return told

    def deny(self, button: str) -> None:
        """Press a button that asks first, and press Enter: nothing happens."""
        # Before its scripts are there a form leads to the question as a page of its own.
        self.page.wait_for_load_state()
        self.page.get_by_role("button", name=button, exact=True).click()
        dialog = self.page.get_by_role("dialog")
        dialog.wait_for()
        self.page.keyboard.press("Enter")
        dialog.wait_for(state="detached")

    def shows_all(self) -> None:
        """No list or drawing is wider than its place: a button at its right would not be seen."""
        cut = self.page.evaluate(CUT_OFF)
        assert not cut, f"{self.page.url}: {cut}"

    def looks(self, name: str) -> None:
        """In light, in dark and on a phone: leaves a picture of each, and is accessible."""
        self.page.emulate_media(color_scheme="light")
        self.shoot(name)
        self.is_accessible(dark=True, phone=True)
        self.shoot(f"{name}-dark")
        self.page.emulate_media(color_scheme="light")
        self.fits_a_phone(name)

    def shoot(self, name: str) -> None:
        if self.shots is not None:
            self.page.screenshot(path=self.shots / f"{name}.png", full_page=True, timeout=SHOT_MS)

    def is_accessible(self, *, dark: bool = True, phone: bool = False) -> None:
        """By axe, with the rules of WCAG 2.1 AA in light; in dark the contrast, all that changes there; on a
        phone, where tables are cards and the menu is folded, all rules again."""
        self.page.emulate_media(color_scheme="light")
        self.page.evaluate(AXE_SCRIPT)
        self._accept(self.page.evaluate(FIND, RULES))
        if phone:
            before = self.page.viewport_size
            assert before is not None
            self.page.set_viewport_size(PHONE)
            self._accept(self.page.evaluate(FIND, RULES))
            self.page.set_viewport_size(before)
        if dark:
            self.page.emulate_media(color_scheme="dark")
            self._accept(self.page.evaluate(FIND, CONTRAST))

    def fits_a_phone(self, name: str = "") -> None:
        """At 360 pixels nothing makes the page itself scroll sideways, and what is in a table can be read.
        With a name it leaves a picture."""
        before = self.page.viewport_size
        self.page.set_viewport_size(PHONE)
        wide = self.page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        assert wide <= 0, (self.page.url, wide)
        if name:
            self.shoot(f"{name}-phone")
        squeezed = self.page.evaluate(SQUEEZED)
        assert squeezed == [], (self.page.url, squeezed)
        assert before is not None
        self.page.set_viewport_size(before)

    def went_well(self) -> None:
        assert self.user_errors == []

    def _accept(self, violations: list[dict[str, Any]]) -> None:
        told = [
            (one["id"], one["help"], [node["html"][:200] for node in one["nodes"][:3]]) for one in violations
        ]
        assert told == [], (self.page.url, told)

    def _heard(self, message: ConsoleMessage) -> None:
        # A test beside this one made a network of its own: Chromium drops what it loads, and loads it again.
        if message.type in {"error", "warning"} and "net::ERR_NETWORK_CHANGED" not in message.text:
            self.user_errors.append(f"console: {message.text}")

    def _asked(self, request: Request) -> None:
        ours = urlsplit(self.url).netloc
        if urlsplit(request.url).netloc != ours:
            self.user_errors.append(f"another host: {request.url}")


@dataclass(kw_only=True)
class Visit(Guest):
    """At a console."""

    env: ConsoleEnv
