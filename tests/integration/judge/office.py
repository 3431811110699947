"""The judge over HTTP in a test, without sandboxes: an application, its people, and their tokens."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from fencepost.embedded import Database
from fencepost.house import Fencepost
from fencepost.judge import people
from fencepost.judge.access import OWN_DOORS
from fencepost.judge.api import make_router
from fencepost.judge.role import Role
from fencepost.judge.service import Judging
from fencepost.judge.settings import JudgeSettings
from fencepost.web.app import make_app
from fencepost.web.part import Part
from fencepost.web.settings import WebSettings

HOUSE_TOKEN = "the-token-of-the-house"
PROGRAM = {"problem_id": "echo", "language": "python", "code": "print(input())"}


@dataclass(frozen=True)
class Office:
    """`as_user` asks as somebody: by name, with no token for None."""

    fp: Fencepost
    judging: Judging
    client: httpx.AsyncClient
    tokens: dict[str, str]

    async def add(self, name: str, role: Role) -> str:
        await self.fp.run(people.set_user(name, role, "test"))
        token = people.new_token()
        await self.fp.run(people.make_token(people.digest_of(token), name, "test", 864_000, "test"))
        self.tokens[name] = token
        return token

    async def ask(self, who: str | None, method: str, path: str, **options: Any) -> httpx.Response:
        headers: Mapping[str, str] = options.pop("headers", {})
        bearer = {"Authorization": f"Bearer {self.tokens.get(who, who)}"} if who else {}
        return await self.client.request(method, path, headers={**headers, **bearer}, **options)


@asynccontextmanager
async def open_office(
    database: Database, folder: Path, *, house_token: str | None = HOUSE_TOKEN, **settings: Any
) -> AsyncGenerator[Office]:
    """With one problem, `echo`."""
    fp = Fencepost(database.url)
    judging = Judging(fp, JudgeSettings(workspace=folder / "workspace", store=folder / "store", **settings))
    part = Part("judge", make_router(judging, house_token=house_token), own_doors=OWN_DOORS)
    app = make_app([part], WebSettings(token=house_token))
    transport = httpx.ASGITransport(app=app)
    async with fp, httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        await judging.import_problem(problem_folder(folder / "echo", "1\n"))
        yield Office(fp, judging, client, {})


def problem_folder(folder: Path, answer: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "1.in").write_text("1\n")
    (folder / "1.ans").write_text(answer)
    return folder
