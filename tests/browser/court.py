"""A judge on a socket, with boxes that run: its people, and somebody's submissions."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psycopg
from fastapi import APIRouter

from fencepost.embedded import Database
from fencepost.house import Fencepost
from fencepost.judge import people
from fencepost.judge.access import OWN_DOORS
from fencepost.judge.api import make_router
from fencepost.judge.pages.routes import make_pages
from fencepost.judge.role import Role
from fencepost.kernel.call import Call
from fencepost.kernel.drivers import run
from fencepost.web.app import make_app
from fencepost.web.part import Part
from fencepost.web.server import WebServer
from fencepost.web.settings import WebSettings
from tests.acceptance.judge.bench_of_judges import BRISK, judging_of

T = TypeVar("T")


@dataclass(frozen=True)
class Court:
    url: str
    database: Database
    tokens: dict[str, str] = field(default_factory=dict[str, str])

    def call(self, call: Call[T]) -> T:
        with psycopg.connect(self.database.url, autocommit=True) as connection:
            return run(connection, call)

    def add(self, name: str, role: Role) -> None:
        token = people.new_token()
        self.call(people.set_user(name, role, "test"))
        self.call(people.make_token(people.digest_of(token), name, "test", 86_400, "test"))
        self.tokens[name] = token

    def submit(self, name: str, **body: Any) -> int:
        answer = httpx.post(
            f"{self.url}/submit",
            json={"problem_id": "fence-posts", "language": "python", **body},
            headers={"Authorization": f"Bearer {self.tokens[name]}"},
        )
        return int(answer.json()["job_id"])


@contextmanager
def court(database: Database, folder: Path) -> Generator[Court]:
    """With the samples, a contestant, a jury and an admin."""
    fp = Fencepost(database.url, job_settings=BRISK)
    judging = judging_of(fp, folder, "judge")
    router = APIRouter()
    router.include_router(make_router(judging))
    router.include_router(make_pages(judging))
    part = Part("judge", router, judging.running, own_doors=OWN_DOORS)
    server = WebServer(make_app([part], WebSettings(), ground=lambda: fp), address="127.0.0.1", port=0)
    try:
        server.start()
        here = Court(server.url, database)
        for name, role in (("con", Role.CONTESTANT), ("jo", Role.JURY), ("ada", Role.ADMIN)):
            here.add(name, role)
        yield here
    finally:
        server.stop()
