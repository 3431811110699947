"""A person at a browser: goes to pages, looks, and complains about what a page must not do."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import ConsoleMessage, Page, Request

from tests.integration.console.stage import Stage

# Tags of WCAG 2.1 A and AA.
RULES = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}}


@dataclass
class Visit:
    stage: Stage
    page: Page
    shots: Path
    complaints: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.complaints.append(f"script: {error}"))
        self.page.on("request", self._asked)

    def go(self, path: str) -> None:
        answer = self.page.goto(path)
        assert answer is not None
        assert answer.ok, (path, answer.status)

    def shoot(self, name: str) -> None:
        self.page.screenshot(path=self.shots / f"{name}.png", full_page=True)

    def is_accessible(self) -> None:
        """By axe, with the rules of WCAG 2.1 AA."""
        axe: Any = Axe()
        found: list[dict[str, Any]] = axe.run(self.page, options=RULES).response["violations"]
        told = [(one["id"], one["help"], [node["html"][:200] for node in one["nodes"][:3]]) for one in found]
        assert told == [], (self.page.url, told)

    def fits(self) -> None:
        """Nothing makes the page itself scroll sideways."""
        wide = self.page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        assert wide <= 0, (self.page.url, wide)

    def went_well(self) -> None:
        assert self.complaints == []

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.complaints.append(f"console: {message.text}")

    def _asked(self, request: Request) -> None:
        ours = urlsplit(self.stage.url).netloc
        if urlsplit(request.url).netloc != ours:
            self.complaints.append(f"another host: {request.url}")
