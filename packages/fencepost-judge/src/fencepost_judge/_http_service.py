"""The judge as a service of the server: its API and its pages; judging is the work of the role."""

from __future__ import annotations

from fastapi import APIRouter

from fencepost.client import Fencepost
from fencepost.jobs.settings import JobSettings
from fencepost_judge._access import ACCESS, CONTEST_API, OPEN_PAGES, OWN_AUTH_PATHS, PAGES
from fencepost_judge._api import make_router
from fencepost_judge._compatible_names import NAMES
from fencepost_judge._direct_path import DirectPathSettings
from fencepost_judge._role import ACCOUNTS
from fencepost_judge._service import Judging
from fencepost_judge._settings import JudgeSettings
from fencepost_judge.ccs._routes import make_router as make_contest_api
from fencepost_judge.pages._routes import make_pages
from fencepost_server.web.authorization import OPEN
from fencepost_server.web.http_service import HttpService
from fencepost_server.web.settings import WebSettings


def make_service(fp: Fencepost) -> HttpService:
    compatible = fp.settings.compatible_names
    judging = Judging(
        fp,
        JudgeSettings.load(),
        job_settings=JobSettings.load(also=NAMES.settings) if compatible else None,
        direct_settings=DirectPathSettings.load() if compatible else None,
    )
    app_token = WebSettings.load().token
    router = APIRouter()
    router.include_router(make_router(judging, app_token=app_token))
    router.include_router(make_pages(judging, app_token=app_token))
    router.include_router(make_contest_api(judging, app_token=app_token))
    return HttpService(
        "judge",
        router,
        judging.serving,
        own_auth_paths=OWN_AUTH_PATHS,
        has_accounts=lambda: fp.run(ACCOUNTS.has_users()),
        access={
            **dict.fromkeys((*OPEN_PAGES, *CONTEST_API), OPEN),
            **{route: f"judge {access.role.word}" for route, access in {**ACCESS, **PAGES}.items()},
        },
        working=judging.working,
    )
