"""A judge on a socket, with boxes that run: its accounts, and the submissions of one of them."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psycopg
from fastapi import APIRouter

from fencepost.client import Fencepost
from fencepost.embedded import Database
from fencepost.kernel.call import Call
from fencepost.kernel.drivers import run
from fencepost_judge._access import OWN_AUTH_PATHS
from fencepost_judge._api import make_router
from fencepost_judge._role import ACCOUNTS, JudgeRole
from fencepost_judge.ccs._routes import make_router as make_contest_api
from fencepost_judge.pages._routes import make_pages
from fencepost_server.accounts.secret import new_secret
from fencepost_server.web._app import make_app
from fencepost_server.web._server import WebServer
from fencepost_server.web.http_service import HttpService
from fencepost_server.web.settings import WebSettings
from tests.acceptance.judge.judge_workers import BRISK, judging_of

T = TypeVar("T")
SIGN_ON = {
    "public_url": "http://127.0.0.1",
    "oidc_issuer": "http://127.0.0.1:9",
    "oidc_client_id": "judge",
    "oidc_roles": {"staff": "jury"},
}
"""A provider that is asked nothing before a user chooses it."""


@dataclass(frozen=True)
class JudgeSite:
    url: str
    database: Database
    tokens: dict[str, str] = field(default_factory=dict[str, str])

    def call(self, call: Call[T]) -> T:
        with psycopg.connect(self.database.url, autocommit=True) as connection:
            return run(connection, call)

    def add(self, name: str, role: JudgeRole) -> None:
        token = ACCOUNTS.token_prefix + new_secret()
        self.call(ACCOUNTS.set_user(name, role, None, "test", by_service=True))
        self.call(ACCOUNTS.make_token(token, name, "test", None, lifetime_seconds=86_400, actor="test"))
        self.tokens[name] = token

    def submit(self, name: str, **body: Any) -> int:
        answer = httpx.post(
            f"{self.url}/submit",
            json={"problem_id": "fence-posts", "language": "python", **body},
            headers={"Authorization": f"Bearer {self.tokens[name]}"},
        )
        return int(answer.json()["job_id"])


@contextmanager
def judge_site(database: Database, folder: Path, web: WebSettings | None = None) -> Generator[JudgeSite]:
    """With the samples, a contestant, a jury and an admin."""
    fp = Fencepost(database.url, job_settings=BRISK)
    judging = judging_of(fp, folder, "judge", **SIGN_ON)
    router = APIRouter()
    router.include_router(make_router(judging))
    router.include_router(make_contest_api(judging))
    router.include_router(make_pages(judging))
    part = HttpService("judge", router, judging.running, own_auth_paths=OWN_AUTH_PATHS)
    app = make_app([part], web or WebSettings(), opened_first=lambda: fp)
    server = WebServer(app, address="127.0.0.1", port=0)
    try:
        server.start()
        here = JudgeSite(server.url, database)
        for name, role in (("con", JudgeRole.CONTESTANT), ("jo", JudgeRole.JURY), ("ada", JudgeRole.ADMIN)):
            here.add(name, role)
        yield here
    finally:
        server.stop()
