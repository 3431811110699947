"""The players as a part of the house: their routes, and the cleaning beside them."""

from __future__ import annotations

from fencepost.app import Fencepost
from fencepost.mutations.settings import MutationSettings
from fencepost.players.api import make_router
from fencepost.players.service import Players
from fencepost.web.http_service import HttpService


def make_service(fp: Fencepost) -> HttpService:
    players = Players(fp, MutationSettings.load())
    return HttpService("players", make_router(players), players.running)
