"""The players as a service of the app: their routes, and the retention loop beside them."""

from __future__ import annotations

from fencepost.client import Fencepost
from fencepost_players._api import make_router
from fencepost_players.mutations.settings import MutationSettings
from fencepost_players.service import Players
from fencepost_server.web.authorization import Right
from fencepost_server.web.http_service import HttpService, access_of


def make_service(fp: Fencepost) -> HttpService:
    players = Players(fp, MutationSettings.load())
    router = make_router(players)
    return HttpService("players", router, players.running, access=access_of(router, Right.SUBMIT))
