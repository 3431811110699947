"""The judge as a part of the house: its API and its pages."""

from __future__ import annotations

from fastapi import APIRouter

from fencepost.app import Fencepost
from fencepost.judge import accounts
from fencepost.judge.access import OWN_AUTH_PATHS
from fencepost.judge.api import make_router
from fencepost.judge.pages.routes import make_pages
from fencepost.judge.service import Judging
from fencepost.judge.settings import JudgeSettings
from fencepost.web.http_service import HttpService
from fencepost.web.settings import WebSettings


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
        has_accounts=lambda: fp.run(accounts.has_users()),
    )
