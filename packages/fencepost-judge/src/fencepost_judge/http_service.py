"""The judge as a service of the server: its API and its pages."""

from __future__ import annotations

from fastapi import APIRouter

from fencepost.client import Fencepost
from fencepost_judge.access import OWN_AUTH_PATHS
from fencepost_judge.api import make_router
from fencepost_judge.pages.routes import make_pages
from fencepost_judge.role import ACCOUNTS
from fencepost_judge.service import Judging
from fencepost_judge.settings import JudgeSettings
from fencepost_server.web.http_service import HttpService
from fencepost_server.web.settings import WebSettings


def make_service(fp: Fencepost) -> HttpService:
    judging = Judging(fp, JudgeSettings.load())
    app_token = WebSettings.load().token
    router = APIRouter()
    router.include_router(make_router(judging, app_token=app_token))
    router.include_router(make_pages(judging, app_token=app_token))
    return HttpService(
        "judge",
        router,
        judging.running,
        own_auth_paths=OWN_AUTH_PATHS,
        has_accounts=lambda: fp.run(ACCOUNTS.has_users()),
    )
