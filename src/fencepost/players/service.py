"""The players in one value: mutations through the pipeline, and what can be read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from fencepost.drive.answer_cache import AnswerCache
from fencepost.drive.connection import connect
from fencepost.house import Fencepost
from fencepost.kernel import migrate
from fencepost.kernel.eviction import Patience
from fencepost.loop import Loop
from fencepost.mutations.cleaning import GateCleaner
from fencepost.mutations.declaration import Mutation, mutations_of
from fencepost.mutations.errors import InvalidArgument
from fencepost.mutations.metrics import MutationMetrics
from fencepost.mutations.pipeline import Answer, Pipeline
from fencepost.mutations.settings import MutationSettings
from fencepost.mutations.vigil import Vigil
from fencepost.players import rules
from fencepost.players.accounting import SERVICE, PlayerLedger
from fencepost.players.catalog import missing
from fencepost.players.distributor import PlayerVersionBumper
from fencepost.players.plan import PlayerPlan
from fencepost.players.reading import Player, state
from fencepost.players.requests import PlayerRequest
from fencepost.players.snapshot import PlayerSnapshot
from fencepost.transaction import Transaction

AnyMutation = Mutation[Any, PlayerSnapshot, PlayerPlan]
# As long as a player may be held, and as long as a mutation waits: `functions/player_hold.sql` and
# `player_execute.sql` say so.
PATIENCE = Patience(first_pause_seconds=20.1, longest_pause_seconds=1, seconds_max=30)


class Players:
    """The service. `mutations` are found by their declarations; a request finds its own by its type."""

    def __init__(
        self,
        fp: Fencepost,
        settings: MutationSettings | None = None,
        metrics: MutationMetrics | None = None,
        patience: Patience = PATIENCE,
    ) -> None:
        self.fp = fp
        self.settings = settings or MutationSettings()
        self.metrics = metrics or MutationMetrics.on(fp.metrics)
        self.mutations: Mapping[str, AnyMutation] = mutations_of(rules)
        self._by_request = {declared.request: declared for declared in self.mutations.values()}
        self.cache = _cache(fp, self.settings, self.metrics)
        vigil = Vigil(fp.database_url, patience, self.metrics.evictions.labels(SERVICE))
        self.version_bumper = PlayerVersionBumper(vigil)
        self._pipeline = Pipeline(fp, PlayerLedger(), self.settings, self.metrics, self.cache, vigil)

    async def run(
        self, request: PlayerRequest, *, request_id: str | None, actor: str | None = None
    ) -> Answer:
        """Do what is asked, once for this request id. Raises MutationErrors."""
        return await self._pipeline.run(
            self._of(request), request.player_id, request, request_id=request_id, actor=actor
        )

    async def join(
        self, tx: Transaction, request: PlayerRequest, *, request_id: str, actor: str | None = None
    ) -> Answer:
        """The same inside a transaction of the caller's."""
        return await self._pipeline.join(
            tx, self._of(request), request.player_id, request, request_id=request_id, actor=actor
        )

    async def player(self, player_id: str) -> Player:
        found = await self.fp.run(state(player_id))
        if found is None:
            raise missing("player", player_id)
        return found

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[Players]:
        """Clean up beside the requests; refuse to start on a schema that does not fit."""
        await asyncio.to_thread(migrate.require, self.fp.database_url, SERVICE)
        loop = Loop("mutations", GateCleaner(self.fp, self.settings).tick, self.metrics.loop_errors)
        async with self.fp.upkeep():
            loop.start()
            try:
                yield self
            finally:
                await loop.stop()
                await self.close()

    async def close(self) -> None:
        if self.cache is not None:
            await self.cache.close()

    def _of(self, request: PlayerRequest) -> AnyMutation:
        declared = self._by_request.get(type(request))
        if declared is None:
            raise InvalidArgument(f"{type(request).__name__} is no mutation.", argument="request")
        return declared


def _cache(fp: Fencepost, settings: MutationSettings, metrics: MutationMetrics) -> AnswerCache | None:
    if fp.redis_url is None:
        return None
    return AnswerCache(
        connect(fp.redis_url, reply_seconds=settings.cache_wait_seconds),
        wait_seconds=settings.cache_wait_seconds,
        pending_seconds=settings.pending_seconds,
        keep_seconds=settings.answer_keep_seconds,
        on_error=lambda kind: metrics.cache_errors.labels(SERVICE, kind).inc(),
    )
