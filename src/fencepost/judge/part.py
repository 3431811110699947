"""The judge as a part of the house."""

from __future__ import annotations

from fencepost.house import Fencepost
from fencepost.judge.access import OWN_DOORS
from fencepost.judge.api import make_router
from fencepost.judge.service import Judging
from fencepost.judge.settings import JudgeSettings
from fencepost.web.part import Part
from fencepost.web.settings import WebSettings


def make_part(fp: Fencepost) -> Part:
    judging = Judging(fp, JudgeSettings.load())
    router = make_router(judging, house_token=WebSettings.load().token)
    return Part("judge", router, judging.running, own_doors=OWN_DOORS)
