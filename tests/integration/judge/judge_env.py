"""The judge over HTTP in a test, without sandboxes: an application, its people, their tokens and browsers."""

import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from argon2 import PasswordHasher
from fastapi import APIRouter

from fencepost.client import Fencepost
from fencepost.embedded import Database
from fencepost_judge._access import OWN_AUTH_PATHS
from fencepost_judge._api import make_router
from fencepost_judge._direct_path import DirectPathSettings
from fencepost_judge._role import ACCOUNTS, JudgeRole
from fencepost_judge._service import Judging
from fencepost_judge._settings import JudgeSettings
from fencepost_judge.ccs._routes import make_router as make_contest_api
from fencepost_judge.pages._routes import make_pages
from fencepost_server.accounts.passwords import Passwords
from fencepost_server.accounts.secret import new_secret
from fencepost_server.web._app import make_app
from fencepost_server.web.http_service import HttpService
from fencepost_server.web.settings import WebSettings

Command = Callable[..., tuple[int, str]]
"""`judge(...)`: what an operator types behind `fencepost judge`; answers the exit code, and what was said."""
SERVER_TOKEN = "the-token-of-the-server"
PROGRAM = {"problem_id": "echo", "language": "python", "code": "print(input())"}
# As cheap as argon2 can be: these tests are about who may come in, not about how slowly.
CHEAP = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)


@dataclass(frozen=True)
class Browser:
    """The cookies of one account, and the forms of the pages that it has seen."""

    client: httpx.AsyncClient

    async def get(self, path: str) -> httpx.Response:
        return await self.client.get(path)

    async def form_token(self) -> str:
        """As it stands on a page that everybody may see."""
        page = (await self.get("/judge/login")).text
        found = re.search(r'name="form-token" content="([^"]+)"', page)
        assert found is not None, page
        return found[1]

    async def send(self, path: str, /, **fields: Any) -> httpx.Response:
        """Fill in a form of ours, and send it."""
        fields.setdefault("form_token", await self.form_token())
        return await self.client.post(path, data=fields)

    async def log_in(self, name: str, password: str) -> httpx.Response:
        return await self.send("/judge/login", name=name, password=password)


@dataclass(frozen=True)
class JudgeEnv:
    """`as_user` asks as an account: by name, with no token for None."""

    fp: Fencepost
    judging: Judging
    client: httpx.AsyncClient
    tokens: dict[str, str]
    transport: httpx.ASGITransport

    @asynccontextmanager
    async def browser(self, name: str | None = None) -> AsyncGenerator[Browser]:
        """A browser of its own: signed out, or signed in with the token of an account."""
        async with httpx.AsyncClient(transport=self.transport, base_url="http://localhost") as client:
            browser = Browser(client)
            if name is not None:
                entered = await browser.log_in(name, self.tokens[name])
                assert entered.status_code == 303, entered.text
            yield browser

    async def add(self, name: str, role: JudgeRole) -> str:
        await self.fp.run(ACCOUNTS.set_user(name, role, None, "test", by_service=True))
        token = ACCOUNTS.token_prefix + new_secret()
        await self.fp.run(
            ACCOUNTS.make_token(token, name, "test", None, lifetime_seconds=864_000, actor="test")
        )
        self.tokens[name] = token
        return token

    async def ask(self, who: str | None, method: str, path: str, **options: Any) -> httpx.Response:
        headers: Mapping[str, str] = options.pop("headers", {})
        bearer = {"Authorization": f"Bearer {self.tokens.get(who, who)}"} if who else {}
        return await self.client.request(method, path, headers={**headers, **bearer}, **options)


@asynccontextmanager
async def open_office(
    database: Database,
    folder: Path,
    *,
    app_token: str | None = SERVER_TOKEN,
    redis_url: str | None = None,
    direct: DirectPathSettings | None = None,
    **settings: Any,
) -> AsyncGenerator[JudgeEnv]:
    """With one problem, `echo`."""
    fp = Fencepost(database.url, redis_url=redis_url)
    judging = Judging(
        fp,
        JudgeSettings(workspace=folder / "workspace", store=folder / "store", **settings),
        direct_settings=direct,
    )
    router = APIRouter()
    router.include_router(make_router(judging, app_token=app_token))
    router.include_router(make_pages(judging, app_token=app_token, passwords=Passwords(CHEAP)))
    router.include_router(make_contest_api(judging, app_token=app_token, passwords=Passwords(CHEAP)))
    app = make_app(
        [HttpService("judge", router, own_auth_paths=OWN_AUTH_PATHS)], WebSettings(token=app_token)
    )
    transport = httpx.ASGITransport(app=app)
    async with fp, httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        await judging.import_problem(problem_folder(folder / "echo", "1\n"))
        yield JudgeEnv(fp, judging, client, {}, transport)


def problem_folder(folder: Path, answer: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "1.in").write_text("1\n")
    (folder / "1.ans").write_text(answer)
    return folder
