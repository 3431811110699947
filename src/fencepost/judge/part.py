"""The judge as a part of the house: its API and its pages."""

from __future__ import annotations

from fastapi import APIRouter

from fencepost.house import Fencepost
from fencepost.judge import people
from fencepost.judge.access import OWN_DOORS
from fencepost.judge.api import make_router
from fencepost.judge.pages.routes import make_pages
from fencepost.judge.service import Judging
from fencepost.judge.settings import JudgeSettings
from fencepost.web.part import Part
from fencepost.web.settings import WebSettings


def make_part(fp: Fencepost) -> Part:
    judging = Judging(fp, JudgeSettings.load())
    house_token = WebSettings.load().token
    router = APIRouter()
    router.include_router(make_router(judging, house_token=house_token))
    router.include_router(make_pages(judging, house_token=house_token))
    return Part(
        "judge",
        router,
        judging.running,
        own_doors=OWN_DOORS,
        has_accounts=lambda: fp.run(people.has_users()),
    )
