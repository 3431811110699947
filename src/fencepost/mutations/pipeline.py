"""One request from end to end. With Redis down, slow, wiped or wrong, the marker alone keeps every promise.

1  Redis      announced by us; or under way (Aborted); or done, with its answer
2  look       one snapshot of the marker and of what the plan needs
3  plan       pure, once, with the server's dice
4  execute    one transaction: marker, lock, version, checks, writes, audit; again while the version moves
5  Redis      the answer, after the commit and never before it
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from pydantic import BaseModel

from fencepost.crashpoints import crash_point
from fencepost.drive.answer_cache import Announced, AnswerCache, Answered, RequestName, UnderWay
from fencepost.kernel import marker
from fencepost.kernel.call import Call, Json, text
from fencepost.mutations import gate
from fencepost.mutations.declaration import Mutation
from fencepost.mutations.errors import (
    Aborted,
    AlreadyExists,
    Internal,
    InvalidArgument,
    KeyReused,
    MutationError,
)
from fencepost.mutations.execution import Execution, Outwait, Sender, explaining
from fencepost.mutations.ferry import CarriesMany, Ferry
from fencepost.mutations.ledger import Executed, Ledger, Ticket
from fencepost.mutations.metrics import MutationMetrics
from fencepost.mutations.planning import Planned, make_plan
from fencepost.mutations.settings import MutationSettings
from fencepost.mutations.vigil import Evicts, Vigil
from fencepost.tracing import span
from fencepost.transaction import Transaction

R = TypeVar("R", bound=BaseModel)
S = TypeVar("S")
P = TypeVar("P")
T = TypeVar("T")
KEY_BYTES_MAX = 256


class Database(Protocol):
    async def run(self, call: Call[T]) -> T: ...


@dataclass(frozen=True, slots=True)
class Answer:
    """What a mutation answers; `layer` says who knew it."""

    response: Json
    layer: str
    """`executed`, `cache`, or `marker`."""

    @property
    def is_replay(self) -> bool:
        return self.layer != "executed"


class Pipeline(Generic[S, P]):
    """The mutations of one service.

    `cache` is None where there is no Redis, `vigil` where nobody is ended.
    """

    def __init__(
        self,
        database: Database,
        ledger: Ledger[S, P],
        settings: MutationSettings,
        metrics: MutationMetrics,
        cache: AnswerCache | None = None,
        vigil: Vigil | None = None,
    ) -> None:
        self._database = database
        self._ledger = ledger
        self._settings = settings
        self._metrics = metrics
        self._cache = cache
        self._ferry: Ferry[P] | None = (
            Ferry(database, ledger, places=settings.ferry_places)
            if isinstance(ledger, CarriesMany) and settings.ferry_places > 1
            else None
        )
        self._outwait = _outwait(vigil, ledger) if vigil and isinstance(ledger, Evicts) else None

    async def run(
        self,
        mutation: Mutation[R, S, P],
        user: str,
        request: R,
        *,
        request_id: str | None,
        actor: str | None = None,
    ) -> Answer:
        """Do it, or answer what it answered the first time. Raises MutationErrors."""
        with (
            _Timing(self._metrics, self._ledger.service, mutation.method) as timing,
            span(f"mutation {mutation.method}", "internal", {}, service=self._ledger.service) as note,
        ):
            ticket = self._ticket(mutation, user, request, request_id, actor)
            if ticket.key is None:
                await self._pass_gate(ticket)
                answer = await self._settle(mutation, request, ticket, self._database)
            else:
                answer = await self._through_cache(mutation, request, ticket, ticket.key)
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
    ) -> Answer:
        """Do it inside the caller's transaction: it takes effect if that one commits.

        Redis is left out, because only the caller knows whether it committed. A replay says that an earlier
        transaction did all this: write nothing beside it.
        """
        with _Timing(self._metrics, self._ledger.service, mutation.method) as timing:
            ticket = self._ticket(mutation, user, request, request_id, actor)
            timing.answer = await self._settle(mutation, request, ticket, _Joined(tx))
            return timing.answer

    def _ticket(
        self, mutation: Mutation[R, S, P], user: str, request: R, request_id: str | None, actor: str | None
    ) -> Ticket:
        if request_id is not None:
            _check_key(request_id)
        return Ticket(
            user=text("user", user),
            scope=self._ledger.scope(user),
            key=request_id,
            digest=_digest(mutation.method, request),
            method=mutation.method,
            actor=actor,
        )

    async def _pass_gate(self, ticket: Ticket) -> None:
        with explaining():
            phase = await self._database.run(gate.note(self._ledger.service, ticket.method))
        outcome = "refused" if phase == 2 else "passed"
        self._metrics.unkeyed.labels(self._ledger.service, ticket.method, outcome).inc()
        if phase == 2:
            raise InvalidArgument(
                "request_id is required.", argument="request_id", reason="missing_request_id"
            )

    async def _through_cache(
        self, mutation: Mutation[R, S, P], request: R, ticket: Ticket, key: str
    ) -> Answer:
        name = RequestName(ticket.scope, key, ticket.digest)
        finding = await self._cache.begin(name) if self._cache else None
        crash_point("mutations.after_announce")
        if isinstance(finding, Answered):
            return Answer(finding.response, "cache")
        if isinstance(finding, UnderWay):
            return await self._settled_meanwhile(mutation, request, ticket, finding)
        async with self._announced(name, finding.token if isinstance(finding, Announced) else None):
            answer = await self._settle(mutation, request, ticket, self._database)
            crash_point("mutations.after_commit")
        if self._cache:
            await self._cache.complete(name, answer.response)
        crash_point("mutations.after_answer")
        return answer

    async def _settled_meanwhile(
        self, mutation: Mutation[R, S, P], request: R, ticket: Ticket, finding: UnderWay
    ) -> Answer:
        """Whoever announced it may have died after the commit, or Redis was late: then PostgreSQL knows."""
        with explaining():
            seen = await self._database.run(self._ledger.look(ticket, mutation.needs(request)))
        if seen.outcome != "open":
            return _answer(Executed(seen.outcome, seen.response))
        raise Aborted(
            "The request is under way; send it again shortly.",
            reason="pending",
            retry_seconds=finding.retry_seconds,
        )

    @asynccontextmanager
    async def _announced(self, name: RequestName, token: str | None) -> AsyncGenerator[None]:
        """What was announced and did not come to an answer is withdrawn, so that a retry need not wait."""
        try:
            yield
        except BaseException:
            if self._cache and token is not None:
                await self._cache.abandon(name, token)
            raise

    async def _settle(
        self, mutation: Mutation[R, S, P], request: R, ticket: Ticket, sender: Sender
    ) -> Answer:
        with explaining():
            needs = mutation.needs(request)
            # Inside somebody's transaction nothing is recalled: it sees what nobody else does.
            recalled = self._ledger.recall(ticket, needs) if sender is self._database else None
            seen = recalled if recalled is not None else await sender.run(self._ledger.look(ticket, needs))
            crash_point("mutations.after_look")
            if seen.outcome != "open":
                return _answer(Executed(seen.outcome, seen.response))
            try:
                planned = _planned(mutation, request, seen.snapshot)
            except MutationError:
                # What was recalled may be out of date. Or the same request has committed since: then its
                # answer is the answer.
                seen = await sender.run(self._ledger.look(ticket, needs))
                if seen.outcome != "open":
                    return _answer(Executed(seen.outcome, seen.response))
                planned = _planned(mutation, request, seen.snapshot)
            crash_point("mutations.before_execute")
            execution = Execution(
                sender,
                self._ledger,
                ticket,
                planned,
                self._settings.tries_max,
                self._count_conflict(ticket),
                # Somebody's transaction is nobody else's.
                self._ferry if sender is self._database else None,
                self._outwait,
                is_joined=sender is not self._database,
            )
            return _answer(await execution.settle(seen.version))

    def _count_conflict(self, ticket: Ticket) -> Callable[[], None]:
        return self._metrics.conflicts.labels(self._ledger.service, ticket.method).inc


@dataclass(frozen=True, slots=True)
class _Joined:
    """Calls in the caller's transaction, each in a savepoint: a try that fails is undone alone."""

    tx: Transaction

    async def run(self, call: Call[T]) -> T:
        async with self.tx.savepoint():
            return await self.tx.run(call)


def _outwait(vigil: Vigil, ledger: Evicts) -> Outwait[Any]:
    return lambda attempt, planned: vigil.keep(attempt, lambda: ledger.evict(planned))


def _planned(mutation: Mutation[R, S, P], request: R, snapshot: S) -> Planned[P]:
    return make_plan(lambda dice: mutation.plan(snapshot, request, dice))


def _answer(executed: Executed) -> Answer:
    match executed.outcome:
        case "claimed":
            return Answer(executed.response, "executed")
        case "replay":
            return Answer(executed.response, "marker")
        case "duplicate":
            raise AlreadyExists("It has taken effect, and its answer was not kept. Read the present state.")
        case "mismatch":
            raise KeyReused(
                "This request id was used for another method or body. A new request needs a new id.",
                reason="mismatch",
                argument="request_id",
            )
        case "in_flight":
            raise Aborted("The request is under way; send it again shortly.", reason="in_flight")
        case other:
            raise Internal(f"The database answered {other!r}.")


def _digest(method: str, request: BaseModel) -> str:
    try:
        return marker.digest(method, request.model_dump(mode="json"))
    except ValueError:
        raise InvalidArgument("The request holds what JSON cannot say.", argument="body") from None


def _check_key(request_id: str) -> None:
    if (
        not request_id
        or len(request_id.encode(errors="replace")) > KEY_BYTES_MAX
        or not request_id.isprintable()
    ):
        raise InvalidArgument(
            f"request_id must have 1 to {KEY_BYTES_MAX} printable bytes.", argument="request_id"
        )


class _Timing:
    """One request in the metrics."""

    def __init__(self, metrics: MutationMetrics, service: str, method: str) -> None:
        self._metrics = metrics
        self._labels = (service, method)
        self._started = time.perf_counter()
        self.answer: Answer | None = None

    def __enter__(self) -> _Timing:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        service, method = self._labels
        outcome = getattr(error, "code", "internal") if error else "ok"
        self._metrics.of_request(service, method, outcome).inc()
        self._metrics.of_seconds(service, method).observe(time.perf_counter() - self._started)
        if self.answer is not None:
            self._metrics.of_answer(service, self.answer.layer, outcome).inc()
