"""The guard lets the console's own paths through to its own doors, and nothing that only looks like them."""

import pytest

from fencepost_server.console._http_service import OWN_AUTH_PATHS
from fencepost_server.web._security_middleware import SecurityRules

RULES = SecurityRules("0123456789abcdef", 1024, OWN_AUTH_PATHS)


@pytest.mark.parametrize("path", ["/", "/console", "/console/jobs/7", "/api/jobs"])
def test_the_console_asks_for_itself(path: str) -> None:
    assert RULES.refusal("GET", path, {}) is None


@pytest.mark.parametrize(
    "path", ["/orders", "/consoles", "/apis/x", "/metrics", "/openapi.json", "//console"]
)
def test_everything_else_wants_the_houses_token(path: str) -> None:
    refusal = RULES.refusal("GET", path, {})
    assert refusal is not None
    assert refusal.status_code == 401


def test_a_page_of_another_site_changes_nothing_at_the_console_either() -> None:
    refusal = RULES.refusal("POST", "/console/login", {"sec-fetch-site": "cross-site"})
    assert refusal is not None
    assert refusal.status_code == 403
