"""One request from end to end.

With Redis down, slow, wiped or wrong, the idempotency key in PostgreSQL alone keeps every guarantee.

1  Redis      announced by this call; or under way (Aborted); or done, with its response
2  look       one snapshot of the idempotency key and of what the plan needs
3  plan       pure, with the request's Rng
4  execute    one transaction: idempotency key, lock, checks, writes, audit; a stale plan is made again,
              once, on the locked rows
5  Redis      the response, after the commit and never before it
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from fencepost.crashpoints import crash_point
from fencepost.database import AsyncDatabase
from fencepost.kernel import idempotency
from fencepost.kernel.call import Call, CallRunner, Json, document, text
from fencepost.logs import get_logger
from fencepost.redis_streams.response_cache import (
    Announced,
    CachedResponse,
    CacheKey,
    InProgress,
    ResponseCache,
)
from fencepost.tracing import span
from fencepost.transaction import Transaction
from fencepost_players.mutations import _recorded_seeds as recorded_seeds
from fencepost_players.mutations import _request_id_policy as request_id_policy
from fencepost_players.mutations._durations import Durations
from fencepost_players.mutations._execution import (
    BatchExecutor,
    CarriesMany,
    Execution,
    HeldExecution,
    Outwait,
    RowQueues,
    StalePlan,
    explaining,
)
from fencepost_players.mutations.blocker_eviction import BlockerEviction, Evicts
from fencepost_players.mutations.errors import (
    Aborted,
    AlreadyExists,
    Internal,
    InvalidArgument,
    KeyReused,
    MutationError,
)
from fencepost_players.mutations.metrics import MutationMetrics
from fencepost_players.mutations.planning import Mutation, Planned, Rng, make_plan
from fencepost_players.mutations.settings import MutationSettings
from fencepost_players.mutations.store import Executed, HoldsRows, Lookup, MutationStore, RequestContext

R = TypeVar("R", bound=BaseModel)
S = TypeVar("S")
P = TypeVar("P")
T = TypeVar("T")
KEY_BYTES_MAX = 256
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class MutationAnswer:
    """The response of a mutation; `layer` says where it comes from."""

    response: Json
    layer: str
    """`executed`, `cache`, or `repeat`."""
    body: str
    """The response as JSON text: a repeat has the same bytes as the first."""

    @property
    def is_replay(self) -> bool:
        """Whether the answer is that of an earlier execution."""
        return self.layer != "executed"


class Pipeline(Generic[S, P]):
    """The mutations of one service.

    `cache` is None without Redis, `blocker_eviction` where no backend is terminated.
    """

    def __init__(
        self,
        database: AsyncDatabase,
        store: MutationStore[S, P],
        settings: MutationSettings,
        metrics: MutationMetrics,
        cache: ResponseCache | None = None,
        blocker_eviction: BlockerEviction | None = None,
    ) -> None:
        self._database = database
        self._store = store
        self._settings = settings
        self._metrics = metrics
        self._cache = cache
        self._batch_executor: BatchExecutor[P] | None = (
            BatchExecutor(database, store, places=settings.batch_max)
            if isinstance(store, CarriesMany) and settings.batch_max > 1
            else None
        )
        self._blocker_eviction = blocker_eviction
        self._queues = RowQueues()
        self._durations = Durations()
        self._outwait = (
            _outwait(blocker_eviction, store) if blocker_eviction and isinstance(store, Evicts) else None
        )

    async def run(
        self,
        mutation: Mutation[R, S, P],
        user: str,
        request: R,
        *,
        request_id: str | None,
        actor: str | None = None,
    ) -> MutationAnswer:
        """Do it, or return the response of the first time. Raises MutationErrors."""
        with (
            _Timing(self._metrics, self._store.service, mutation.method) as timing,
            span(f"mutation {mutation.method}", "internal", {}, service=self._store.service) as note,
        ):
            context = self._context(mutation, user, request, request_id, actor)
            if context.key is None:
                await self._require_request_id(context)
                answer = await self._settle(mutation, request, context, self._database)
            else:
                answer = await self._through_cache(mutation, request, context, context.key)
            timing.answer = answer
            note(layer=answer.layer)
        return answer

    async def join(
        self,
        tx: Transaction,
        mutation: Mutation[R, S, P],
        user: str,
        request: R,
        *,
        request_id: str,
        actor: str | None = None,
    ) -> MutationAnswer:
        """Do it inside the caller's transaction: it takes effect if that transaction commits.

        Redis is not used, because only the caller knows whether it committed. A replay means that an earlier
        transaction did all this: the caller must not repeat its own writes.
        """
        with _Timing(self._metrics, self._store.service, mutation.method) as timing:
            context = self._context(mutation, user, request, request_id, actor)
            timing.answer = await self._settle(mutation, request, context, _Joined(tx))
            return timing.answer

    def _context(
        self, mutation: Mutation[R, S, P], user: str, request: R, request_id: str | None, actor: str | None
    ) -> RequestContext:
        if request_id is not None:
            _check_key(request_id)
            # A time-ordered id is the same in upper and lower case.
            request_id = request_id.lower() if self._settings.ordered_ids else request_id
        return RequestContext(
            user=text("user", user),
            scope=self._store.scope(user),
            key=request_id,
            digest=_digest(mutation.method, request),
            method=mutation.method,
            actor=actor,
            keep_seconds=self._settings.key_keep_seconds,
            is_ordered=self._settings.ordered_ids,
        )

    async def _require_request_id(self, context: RequestContext) -> None:
        with explaining():
            phase = await self._database.run(request_id_policy.note(self._store.service, context.method))
        outcome = "refused" if phase == 2 else "passed"
        self._metrics.unkeyed.labels(self._store.service, context.method, outcome).inc()
        if phase == 2:
            raise InvalidArgument(
                "request_id is required.", argument="request_id", reason="missing_request_id"
            )

    async def _through_cache(
        self, mutation: Mutation[R, S, P], request: R, context: RequestContext, key: str
    ) -> MutationAnswer:
        name = CacheKey(context.scope, key, context.digest)
        finding = await self._cache.begin(name) if self._cache else None
        crash_point("mutations.after_announce")
        if isinstance(finding, CachedResponse):
            return MutationAnswer(finding.response, "cache", finding.body)
        if isinstance(finding, InProgress):
            return await self._settled_meanwhile(mutation, request, context, finding)
        async with self._announced(name, finding.token if isinstance(finding, Announced) else None):
            answer = await self._settle(mutation, request, context, self._database)
            crash_point("mutations.after_commit")
        if self._cache:
            await self._cache.complete(name, answer.body)
        crash_point("mutations.after_answer")
        return answer

    async def _settled_meanwhile(
        self, mutation: Mutation[R, S, P], request: R, context: RequestContext, finding: InProgress
    ) -> MutationAnswer:
        """The node that announced it may have died after the commit, or Redis was late: ask PostgreSQL."""
        with explaining():
            seen = await self._database.run(self._store.look(context, mutation.needs(request)))
        if seen.outcome != "open":
            return _answer(_known(seen))
        raise Aborted(
            "The request is in progress; send it again shortly.",
            reason="pending",
            # An announcement may last longer than the work takes: a node that died leaves one.
            retry_seconds=min(finding.retry_seconds, self._durations.retry_seconds(context.method)),
        )

    @asynccontextmanager
    async def _announced(self, name: CacheKey, token: str | None) -> AsyncGenerator[None]:
        """Withdraws the announcement when the request fails, so that a retry need not wait."""
        try:
            yield
        except BaseException:
            if self._cache and token is not None:
                await self._cache.abandon(name, token)
            raise

    async def _settle(
        self, mutation: Mutation[R, S, P], request: R, context: RequestContext, sender: CallRunner
    ) -> MutationAnswer:
        """Plan and execute; make a stale plan again, once."""
        work = _Work(mutation, request, context, sender, Rng.throw())
        try:
            with explaining():
                begun = time.perf_counter()
                answer = await self._settle_once(work)
                self._durations.saw(context.method, time.perf_counter() - begun)
                return answer
        except MutationError as error:
            if error.is_retryable and error.retry_seconds is None:
                error.suggest(self._durations.retry_seconds(context.method))
            if error.is_retryable and work.is_by_chance and sender is self._database:
                await self._record_seed(work)
            raise

    async def _settle_once(self, work: _Work[R, S, P]) -> MutationAnswer:
        # Other requests are being planned on this row already: this plan would become stale too.
        is_ours = work.sender is self._database
        held = await self._settle_held(work) if is_ours and self._queues.is_busy(work.context.scope) else None
        if held is not None:
            return held
        try:
            return await self._settle_at_once(work)
        except StalePlan as stale:
            if stale.seed is not None:
                work.rng = Rng(stale.seed)
            held = await self._settle_held(work)
            if held is not None:
                return held
            if stale.seed is None:
                raise
            return await self._settle_at_once(work)

    async def _settle_at_once(self, work: _Work[R, S, P]) -> MutationAnswer:
        """Look, plan and execute, without a lock in between."""
        context, sender, needs = work.context, work.sender, work.needs
        is_ours = sender is self._database
        # Inside the caller's transaction the cache is not used: that transaction sees uncommitted rows.
        recalled = self._store.recall(context, needs) if is_ours else None
        seen = recalled if recalled is not None else await sender.run(self._store.look(context, needs))
        crash_point("mutations.after_look")
        if seen.outcome != "open":
            return _answer(_known(seen))
        try:
            planned = work.plan(seen.snapshot)
        except MutationError:
            # The cached snapshot may be out of date. Or the same request has committed since: then its
            # response is returned.
            seen = await sender.run(self._store.look(context, needs))
            if seen.outcome != "open":
                return _answer(_known(seen))
            planned = work.plan(seen.snapshot)
        execution = Execution(
            sender,
            self._store,
            context,
            _ready(planned),
            self._settings.tries_max,
            self._count_conflict(context),
            # A caller's transaction cannot share a batch with other requests.
            self._batch_executor if is_ours else None,
            self._outwait,
            is_joined=not is_ours,
        )
        return _answer(await execution.settle(seen.version))

    async def _settle_held(self, work: _Work[R, S, P]) -> MutationAnswer | None:
        """Plan on the locked rows, which cannot change any more; None if that is impossible or not needed."""
        store, context, sender = self._store, work.context, work.sender
        hold = store.hold(context, work.needs) if isinstance(store, HoldsRows) else None
        if hold is None or not isinstance(store, HoldsRows):
            return None
        self._metrics.replans.labels(store.service, context.method).inc()

        def evict() -> Call[list[int]]:
            return store.evict_holders(context, work.needs)

        async def wait(inside: CallRunner) -> Lookup[Any]:
            attempt = inside.run(hold)
            return await (self._blocker_eviction.keep(attempt, evict) if self._blocker_eviction else attempt)

        execution: HeldExecution[P] = HeldExecution(
            sender,
            self._store,
            context,
            None,
            self._settings.tries_max,
            self._count_conflict(context),
            is_joined=sender is not self._database,
            begin=sender.part if isinstance(sender, _Joined) else self._database.transaction,
            hold=wait,
            plan=lambda snapshot: _ready(work.plan(snapshot)),
        )
        if isinstance(sender, _Joined):
            # This transaction may hold the row itself: a request in the queue would wait for it.
            return _answer(await _with_recorded_seed(work, execution))
        async with self._queues.turn(context.scope):
            return _answer(await _with_recorded_seed(work, execution))

    async def _record_seed(self, work: _Work[R, S, P]) -> None:
        """Record the seed before the caller is told to send it again, so that the repeat draws the same."""
        context = work.context
        if context.key is None:
            return
        keep_seconds = self._settings.key_keep_seconds
        try:
            await self._database.run(recorded_seeds.note(context, context.key, work.rng.seed, keep_seconds))
        except Exception as error:
            # No caller has seen a result of this seed, so another one will do.
            _log.warning("seed_not_recorded", error=str(error))

    def _count_conflict(self, context: RequestContext) -> Callable[[], None]:
        return self._metrics.conflicts.labels(self._store.service, context.method).inc


@dataclass(slots=True)
class _Work(Generic[R, S, P]):
    """One request in the pipeline, with its Rng."""

    mutation: Mutation[R, S, P]
    request: R
    context: RequestContext
    sender: CallRunner
    rng: Rng
    is_by_chance: bool = False

    @property
    def needs(self) -> Any:
        return self.mutation.needs(self.request)

    def plan(self, snapshot: S) -> Planned[P]:
        planned = make_plan(lambda rng: self.mutation.plan(snapshot, self.request, rng), self.rng)
        self.is_by_chance = planned.is_by_chance
        return planned


async def _with_recorded_seed(work: _Work[Any, Any, P], execution: HeldExecution[P]) -> Executed:
    try:
        return await execution.settle(None)
    except StalePlan as stale:
        # On locked rows only the seed can differ: the recorded one is that of the request's first sending.
        if stale.seed is None:
            raise
        work.rng = Rng(stale.seed)
        return await execution.settle(None)


@dataclass(frozen=True, slots=True)
class _Joined:
    """Calls in the caller's transaction, each in a savepoint: an attempt that fails is rolled back alone."""

    tx: Transaction

    async def run(self, call: Call[T]) -> T:
        async with self.tx.savepoint():
            return await self.tx.run(call)

    @asynccontextmanager
    async def part(self) -> AsyncGenerator[CallRunner]:
        """Several calls that are rolled back together."""
        async with self.tx.savepoint():
            yield self.tx


def _outwait(blocker_eviction: BlockerEviction, store: Evicts) -> Outwait[Any]:
    return lambda attempt, planned: blocker_eviction.keep(attempt, lambda: store.evict(planned))


def _ready(planned: Planned[P]) -> Planned[P]:
    crash_point("mutations.before_execute")
    return planned


def _known(seen: Lookup[Any]) -> Executed:
    return Executed(seen.outcome, seen.response, seen.body)


def _answer(executed: Executed) -> MutationAnswer:
    match executed.outcome:
        case "claimed":
            return MutationAnswer(executed.response, "executed", _body(executed))
        case "replay":
            return MutationAnswer(executed.response, "repeat", _body(executed))
        case "duplicate":
            raise AlreadyExists("It has taken effect, and its answer was not kept. Read the present state.")
        case "mismatch":
            raise KeyReused(
                "This request id was used for another method or body. A new request needs a new id.",
                reason="mismatch",
                argument="request_id",
            )
        case "in_flight":
            raise Aborted("The request is in progress; send it again shortly.", reason="in_flight")
        case other:
            raise Internal(f"The database answered {other!r}.")


def _body(executed: Executed) -> str:
    return document("answer", executed.response) if executed.body is None else executed.body


def _digest(method: str, request: BaseModel) -> str:
    try:
        return idempotency.digest(method, request.model_dump(mode="json"))
    except ValueError:
        raise InvalidArgument(
            "The request contains a value that JSON cannot express.", argument="body"
        ) from None


def _check_key(request_id: str) -> None:
    if (
        not request_id.strip()
        or len(request_id.encode(errors="replace")) > KEY_BYTES_MAX
        or not request_id.isprintable()
    ):
        raise InvalidArgument(
            f"request_id must have 1 to {KEY_BYTES_MAX} printable bytes and must not be blank.",
            argument="request_id",
        )


class _Timing:
    """One request in the metrics."""

    def __init__(self, metrics: MutationMetrics, service: str, method: str) -> None:
        self._metrics = metrics
        self._labels = (service, method)
        self._started = time.perf_counter()
        self.answer: MutationAnswer | None = None

    def __enter__(self) -> _Timing:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        service, method = self._labels
        outcome = getattr(error, "code", "internal") if error else "ok"
        self._metrics.of_request(service, method, outcome).inc()
        self._metrics.of_seconds(service, method).observe(time.perf_counter() - self._started)
        if self.answer is not None:
            self._metrics.of_answer(service, self.answer.layer, outcome).inc()
