"""The players service in one object: mutations through the pipeline, and queries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from fencepost.client import Fencepost
from fencepost.kernel import migrate
from fencepost.kernel.eviction import EvictionDelay
from fencepost.loop import Loop
from fencepost.redis_streams.connection import connect
from fencepost.redis_streams.response_cache import ResponseCache
from fencepost.transaction import Transaction
from fencepost_players import _rules as rules
from fencepost_players._plan import PlayerPlan
from fencepost_players._player_store import SERVICE, PlayerStore
from fencepost_players._queries import Player, state
from fencepost_players._snapshot import PlayerSnapshot
from fencepost_players.catalog import missing
from fencepost_players.distributor import PlayerVersionBumper
from fencepost_players.mutations._cleaning import UnkeyedCleaner
from fencepost_players.mutations.blocker_eviction import BlockerEviction
from fencepost_players.mutations.errors import InvalidArgument
from fencepost_players.mutations.metrics import MutationMetrics
from fencepost_players.mutations.pipeline import MutationAnswer, Pipeline
from fencepost_players.mutations.planning import Mutation, mutations_of
from fencepost_players.mutations.settings import MutationSettings
from fencepost_players.requests import PlayerRequest

AnyMutation = Mutation[Any, PlayerSnapshot, PlayerPlan]
# How long a player's row may be held, and how long a mutation waits for it: the values of
# `functions/player_hold.sql` and `player_execute.sql`.
PATIENCE = EvictionDelay(first_pause_seconds=20.1, longest_pause_seconds=1, seconds_max=30)


class Players:
    """The service. `mutations` are found by their declarations; a request's type selects its mutation."""

    def __init__(
        self,
        fp: Fencepost,
        settings: MutationSettings | None = None,
        metrics: MutationMetrics | None = None,
        patience: EvictionDelay = PATIENCE,
    ) -> None:
        self.fp = fp
        self.settings = settings or MutationSettings()
        self.metrics = metrics or MutationMetrics.on(fp.metrics)
        self.mutations: Mapping[str, AnyMutation] = mutations_of(rules)
        self._by_request = {declared.request: declared for declared in self.mutations.values()}
        self.cache = _cache(fp, self.settings, self.metrics)
        blocker_eviction = BlockerEviction(fp.database_url, patience, self.metrics.evictions.labels(SERVICE))
        self.version_bumper = PlayerVersionBumper(blocker_eviction)
        self._pipeline = Pipeline(
            fp, PlayerStore(), self.settings, self.metrics, self.cache, blocker_eviction
        )

    async def run(
        self, request: PlayerRequest, *, request_id: str | None, actor: str | None = None
    ) -> MutationAnswer:
        """Perform the request, once for this request id. Raises MutationErrors."""
        return await self._pipeline.run(
            self._of(request), request.player_id, request, request_id=request_id, actor=actor
        )

    async def join(
        self, tx: Transaction, request: PlayerRequest, *, request_id: str, actor: str | None = None
    ) -> MutationAnswer:
        """The same inside the caller's transaction."""
        return await self._pipeline.join(
            tx, self._of(request), request.player_id, request, request_id=request_id, actor=actor
        )

    async def player(self, player_id: str) -> Player:
        """The player's state. Raises NoSuchThing if there is none."""
        found = await self.fp.run(state(player_id))
        if found is None:
            raise missing("player", player_id)
        return found

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[Players]:
        """Run the deletion loop beside the requests; refuse to start on a schema that does not match."""
        await asyncio.to_thread(migrate.require, self.fp.database_url, SERVICE)
        loop = Loop("mutations", UnkeyedCleaner(self.fp, self.settings).tick, self.metrics.loop_errors)
        async with self.fp.retention():
            loop.start()
            try:
                yield self
            finally:
                await loop.stop()
                await self.close()

    async def close(self) -> None:
        """Close the response cache."""
        if self.cache is not None:
            await self.cache.close()

    def _of(self, request: PlayerRequest) -> AnyMutation:
        declared = self._by_request.get(type(request))
        if declared is None:
            raise InvalidArgument(f"{type(request).__name__} is no mutation.", argument="request")
        return declared


def _cache(fp: Fencepost, settings: MutationSettings, metrics: MutationMetrics) -> ResponseCache | None:
    if fp.redis_url is None:
        return None
    return ResponseCache(
        connect(fp.redis_url, reply_seconds=settings.cache_wait_seconds),
        wait_seconds=settings.cache_wait_seconds,
        pending_seconds=settings.pending_seconds,
        keep_seconds=settings.answer_keep_seconds,
        on_error=lambda kind: metrics.cache_errors.labels(SERVICE, kind).inc(),
    )
