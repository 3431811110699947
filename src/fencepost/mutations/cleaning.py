"""Forgetting which requests came without an id, once the gate no longer asks about them; and recorded dice.

Markers are forgotten by every process that stays, whatever it serves: `fencepost.upkeep`.
"""

from __future__ import annotations

import random

from fencepost.mutations import dice, gate
from fencepost.mutations.settings import MutationSettings
from fencepost.signals import announce
from fencepost.upkeep import BATCH, TICK_SECONDS, Database, until_short


class GateCleaner:
    """One tick of the gate's loop."""

    def __init__(self, database: Database, settings: MutationSettings) -> None:
        self._database = database
        self._keep_seconds = settings.gate_window_seconds * 2

    async def tick(self) -> float:
        is_done = await until_short(self._database, gate.clean(self._keep_seconds, BATCH))
        are_dice_done = await until_short(self._database, dice.clean(BATCH))
        announce("mutations.cleaned")
        return TICK_SECONDS * random.uniform(0.8, 1.2) if is_done and are_dice_done else 0.0  # noqa: S311
