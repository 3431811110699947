"""The judge as a part of the house."""

from __future__ import annotations

from fencepost.house import Fencepost
from fencepost.judge.api import make_router
from fencepost.judge.service import Judging
from fencepost.judge.settings import JudgeSettings
from fencepost.web.part import Part


def make_part(fp: Fencepost) -> Part:
    judging = Judging(fp, JudgeSettings.load())
    return Part("judge", make_router(judging), judging.running)
