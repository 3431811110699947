"""Forgetting which requests came without an id, once the gate no longer asks about them; and recorded dice.

Markers are forgotten by every process that stays, whatever it serves: `fencepost.retention`.
"""

from __future__ import annotations

import random

from fencepost.retention import BATCH, TICK_SECONDS, RunsCalls, until_short
from fencepost.signals import announce
from fencepost_players.mutations import dice, request_id_policy
from fencepost_players.mutations.settings import MutationSettings


class GateCleaner:
    """One tick of the gate's loop."""

    def __init__(self, database: RunsCalls, settings: MutationSettings) -> None:
        self._database = database
        self._keep_seconds = settings.gate_window_seconds * 2

    async def tick(self) -> float:
        is_done = await until_short(self._database, request_id_policy.clean(self._keep_seconds, BATCH))
        are_dice_done = await until_short(self._database, dice.clean(BATCH))
        announce("mutations.cleaned")
        return TICK_SECONDS * random.uniform(0.8, 1.2) if is_done and are_dice_done else 0.0  # noqa: S311
