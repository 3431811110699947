"""Deletes counts of requests without an id that are older than the policy's window, and expired seeds.

Every long-running process deletes expired idempotency keys, whatever it serves: `fencepost.retention`.
"""

from __future__ import annotations

import random

from fencepost.kernel.call import CallRunner
from fencepost.retention import BATCH, TICK_SECONDS, until_short
from fencepost.signals import announce
from fencepost_players.mutations import _recorded_seeds as recorded_seeds
from fencepost_players.mutations import _request_id_policy as request_id_policy
from fencepost_players.mutations.settings import MutationSettings


class UnkeyedCleaner:
    """One tick of the deletion loop."""

    def __init__(self, database: CallRunner, settings: MutationSettings) -> None:
        self._database = database
        self._keep_seconds = settings.unkeyed_window_seconds * 2

    async def tick(self) -> float:
        is_done = await until_short(self._database, request_id_policy.clean(self._keep_seconds, BATCH))
        are_seeds_done = await until_short(self._database, recorded_seeds.clean(BATCH))
        announce("mutations.cleaned")
        return TICK_SECONDS * random.uniform(0.8, 1.2) if is_done and are_seeds_done else 0.0  # noqa: S311
