"""Every form of the judge's pages is sent to a route that exists."""

import re
from pathlib import Path

import pytest

import fencepost_judge.pages
from fencepost_judge._access import PAGES, PAGES_ROOT

TEMPLATES = Path(fencepost_judge.pages.__file__).parent / "templates"
ACTIONS = sorted(
    {
        (file.name, action)
        for file in TEMPLATES.glob("*.html")
        for action in re.findall(r'\b(?:form)?action="\{\{ paper\.home \}\}([^"]+)"', file.read_text())
    }
)
ROUTES = [re.sub(r"\{\w+\}", "[^/]+", path) for _, path in (*PAGES, ("POST", f"{PAGES_ROOT}/login"))]


@pytest.mark.parametrize(("template", "action"), ACTIONS)
def test_a_form_leads_to_a_route(template: str, action: str) -> None:
    path = PAGES_ROOT + re.sub(r"\{\{.*?\}\}", "x", action)
    assert any(re.fullmatch(route, path) for route in ROUTES), f"{template} is sent to {path}"
