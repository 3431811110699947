"""The players as a part of the house: their routes, and the cleaning beside them."""

from __future__ import annotations

from fencepost.house import Fencepost
from fencepost.mutations.settings import MutationSettings
from fencepost.players.api import make_router
from fencepost.players.service import Players
from fencepost.web.part import Part


def make_part(fp: Fencepost) -> Part:
    players = Players(fp, MutationSettings.load())
    return Part("players", make_router(players), players.running)
