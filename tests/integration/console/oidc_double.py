"""An OpenID provider for tests, as a process of its own, and the users that it knows."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from fencepost_server.console._role import Role
from fencepost_server.console._settings import ConsoleSettings

ADA: dict[str, Any] = {"sub": "ada-1", "email": "ada@house.example", "groups": ["staff", "ops"]}
BOB: dict[str, Any] = {"sub": "bob-1", "email": "bob@house.example", "groups": ["guests"]}
EVE: dict[str, Any] = {"sub": "eve-1", "email": "eve@house.example", "email_verified": False, "groups": "ops"}
FAKE: dict[str, Any] = {"sub": "fake-1", "email": "admin", "groups": ["ops"]}
PUBLIC_URL = "https://console.example"


@contextmanager
def openid_provider() -> Generator[str]:
    """The address of a provider that knows these people."""
    known = [argument for one in (ADA, BOB, EVE, FAKE) for argument in ("--user-claims", json.dumps(one))]
    process = subprocess.Popen(
        [sys.executable, "-m", "oidc_provider_mock", "-p", "0", *known], stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        seen = ""
        for line in process.stderr:
            seen += line
            if found := re.search(r"running on (http://127\.0\.0\.1:\d+)", line):
                break
        else:
            raise AssertionError(seen)
        yield found[1]
    finally:
        process.kill()
        process.communicate()


def trusting(issuer: str) -> ConsoleSettings:
    """A console that admits the users that the provider names."""
    return ConsoleSettings(
        look_seconds=0.2,
        public_url=PUBLIC_URL,
        oidc_issuer=issuer,
        oidc_client_id="fencepost",
        oidc_client_secret="known to two",
        oidc_roles={"ops": Role.OPERATOR, "chiefs": Role.ADMIN},
    )
