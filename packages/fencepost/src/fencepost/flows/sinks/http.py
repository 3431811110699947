"""HTTP requests with an idempotency key, for a service that honours it.

What fails is one request, and what is repeated is that request: the same key with the same body, over
connections that are kept. A repeat of the whole checkpoint, after an error that lasted, passes over what this
process knows to be done.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from fencepost.flows.errors import FlowError
from fencepost.flows.guarantee import AT_LEAST_ONCE, EXACTLY_ONCE, Promise
from fencepost.flows.record import IdempotentRecord
from fencepost.flows.sinks.redis import as_bytes, as_record
from fencepost.flows.sinks.rejecting import (
    STOP,
    UNFIT,
    OnReject,
    Rejected,
    Rejection,
    Rejections,
    halves,
    rejection,
)
from fencepost.flows.sinks.sink import CheckpointId
from fencepost.flows.sinks.sink_types import StagedSink
from fencepost.kernel.call import Json
from fencepost.outbox import http1
from fencepost.outbox.http_client import HttpClient, MaybeSent, NotSent, Reply, Request
from fencepost.tracing import TRACEPARENT, current_place

AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
"""It is at it already, has no room, or broke: the same request may succeed."""
REJECTS = frozenset({400, 412, 413, 415, 422, 451})
"""About this body, for ever. That a login, a path or a method is wrong is said by others, of every body."""
TRIES_MAX = 10
WAIT_SECONDS_MAX = 30.0
ANSWER_LENGTH = 4_000


class Verdict(Enum):
    """What an answer means for its request."""

    DONE = "done"
    AGAIN = "again"
    REJECTED = "rejected"
    REFUSED = "refused"


def verdict_of(status: int, rejects: Collection[int] = REJECTS) -> Verdict:
    if 200 <= status < 300:
        return Verdict.DONE
    if status in rejects:
        return Verdict.REJECTED
    return Verdict.AGAIN if status in AGAIN else Verdict.REFUSED


def wait_seconds(tries: int, retry_after: str = "") -> float:
    """How long to wait after so many tries: what the service asks for, or twice as long each time."""
    asked = retry_after.strip()
    named = float(asked) if asked.isascii() and asked.isdigit() else 0.0
    return min(named or 0.1 * 2.0**tries, WAIT_SECONDS_MAX)


def as_list(values: Sequence[Any]) -> bytes:
    """Many values as one body: a JSON list."""
    return as_bytes(list(values))


class Lot(NamedTuple):
    """Values that go with one request, and the place of the first of them in the checkpoint."""

    start: int
    values: Sequence[Any]

    def key(self, checkpoint: CheckpointId) -> str:
        """Names these values for ever: another lot of the same checkpoint has another key."""
        if len(self.values) == 1:
            return as_record(self.values[0], checkpoint, self.start).id
        last = self.start + len(self.values) - 1
        return f"{checkpoint.resource}#{checkpoint.number}/{self.start}-{last}"

    def halved(self) -> tuple[Lot, Lot]:
        first, second = halves(self.values)
        return Lot(self.start, first), Lot(self.start + len(first), second)


class HttpSink(StagedSink):
    """One request a value, or with `batch=` one for so many. A repeat has the same Idempotency-Key and the
    same body.

    `honours_keys` is your word that the service executes a key once, also when it comes again after hours.
    A reply that is lost, and a service that has no room, is at it already or breaks (408, 409, 425, 429, 500,
    502, 503, 504), cost that one request again, after Retry-After. Some say 409 for a key that they have
    executed: `already_done` tells these by the body of the answer. A body that the service will never take
    (`rejects`: 400, 412, 413, 415, 422 and 451) is what `on_reject` is for. Whatever else it answers is about
    every request, as a wrong login is, and stops the task.

    A batch that is rejected is sent in halves until it is known which value it is, so the service must take
    all of a batch or nothing of it. One that takes a part tells so: `rejected_in` reads the places of the
    rejected values, and why, from the body of a successful answer. At most `concurrency` requests, over as
    many connections, are under way for all tasks of a worker.
    """

    def __init__(
        self,
        url: str,
        *,
        honours_keys: bool = False,
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
        encode: Callable[[Any], bytes] = as_bytes,
        timeout_seconds: float = 30,
        concurrency: int = 8,
        already_done: Callable[[bytes], bool] | None = None,
        batch: int = 1,
        encode_batch: Callable[[Sequence[Any]], bytes] = as_list,
        rejected_in: Callable[[bytes], Mapping[int, str]] | None = None,
        rejects: Collection[int] = REJECTS,
        on_reject: OnReject = STOP,
    ) -> None:
        try:
            http1.address_of(url)
        except ValueError:
            raise FlowError(
                f"{url!r} is no address for HTTP: it must begin with http:// or https:// and name a host."
            ) from None
        for name, given in (("batch", batch), ("concurrency", concurrency)):
            if given < 1:
                raise FlowError(f"{name} of HttpSink is {given}; allowed: 1 and more.")
        self._url = url
        self._method = method
        self._headers = {"Content-Type": "application/json", **(headers or {})}
        self._encode = encode
        self._timeout_seconds = timeout_seconds
        self._concurrency = concurrency
        self._already_done = already_done
        self._batch = batch
        self._encode_batch = encode_batch
        self._rejected_in = rejected_in
        self._rejects = frozenset(rejects)
        self.on_reject = on_reject
        self.promise = _HONOURED if honours_keys else _NOT_HONOURED
        self._client: HttpClient | None = None
        self._gate: asyncio.Semaphore | None = None
        self._done: dict[str, tuple[int, set[bytes]]] = {}

    async def close(self) -> None:
        client, self._client, self._gate = self._client, None, None
        if client is not None:
            await client.close()

    async def begin(self, checkpoint: CheckpointId) -> Json:
        """How many values go with one request lies in the checkpoint: a repeat by a newer version of the code
        cuts them as the first try did, or keys would carry two bodies."""
        return {"batch": self._batch} if self._batch > 1 else None

    async def finish(self, checkpoint: CheckpointId, handle: Json, values: Sequence[Any]) -> Rejections:
        size = 1 if handle is None else int(handle["batch"])
        return await self._deliver(checkpoint, values, size)

    async def deliver(self, checkpoint: CheckpointId, values: Sequence[Any]) -> Rejections:
        return await self._deliver(checkpoint, values, self._batch)

    async def _deliver(self, checkpoint: CheckpointId, values: Sequence[Any], size: int) -> Rejections:
        """All lots, so many at once. After one that fails for good no other is begun."""
        delivery = _Delivery(checkpoint, self._done_of(checkpoint), _traced())
        gate = self._gate = self._gate or asyncio.Semaphore(self._concurrency)
        failures: list[FlowError] = []
        rejected: list[tuple[int, Rejection]] = []

        async def settle(lot: Lot) -> None:
            async with gate:
                if failures:
                    return
                try:
                    rejected.extend(await self._settle(delivery, lot))
                except FlowError as error:
                    failures.append(error)

        lots = [Lot(start, values[start : start + size]) for start in range(0, len(values), size)]
        await asyncio.gather(*map(settle, lots))
        if failures:
            # The task begins again, with the same keys and the same bodies.
            raise failures[0]
        return [each for _, each in sorted(rejected, key=lambda pair: pair[0])]

    async def _settle(self, delivery: _Delivery, lot: Lot) -> list[tuple[int, Rejection]]:
        """Until the service has every value of the lot but those that it rejects, with their places."""
        rejected: list[tuple[int, Rejection]] = []
        waiting = [lot]
        while waiting:
            part = waiting.pop()
            found = await self._settle_one(delivery, part)
            if isinstance(found, Rejection):
                rejected.append((part.start, found))
            elif found is None:
                first, second = part.halved()
                waiting += [second, first]
            else:
                rejected += [(part.start + at, each) for at, each in found.items()]
        return rejected

    async def _settle_one(self, delivery: _Delivery, lot: Lot) -> Mapping[int, Rejection] | Rejection | None:
        """The rejected values of a lot that was taken; the rejection of a single value; None for a lot of
        which it is not known."""
        single = len(lot.values) == 1
        try:
            body = self._body(lot)
        except (Rejected, *UNFIT) as error:
            return rejection(lot.values[0], error) if single else None
        key = lot.key(delivery.checkpoint)
        mark = hashlib.blake2b(key.encode(errors="replace") + b"\0" + body, digest_size=16).digest()
        if mark in delivery.done:
            return {}
        try:
            reply = await self._answered(key, body, delivery.traced)
        except _Unsendable as error:
            return Rejection(lot.values[0], str(error), body) if single else None
        if verdict_of(reply.status, self._rejects) is Verdict.REJECTED:
            if not single:
                return None
            told = f"{self._method} {self._url} answered {reply.status} for {key}."
            return Rejection(lot.values[0], told, body, reply.excerpt(ANSWER_LENGTH))
        rejected = self._rejected_of(lot, reply)
        if not rejected:
            delivery.done.add(mark)
        return rejected

    def _body(self, lot: Lot) -> bytes:
        """Of IdempotentRecords the values: their ids are the keys of their requests, or within a batch your
        `encode_batch` sees to them."""
        if len(lot.values) > 1:
            return self._encode_batch(lot.values)
        record = IdempotentRecord[Any].of(lot.values[0])
        return self._encode(lot.values[0] if record is None else record.value)

    def _rejected_of(self, lot: Lot, reply: Reply) -> Mapping[int, Rejection]:
        if self._rejected_in is None or verdict_of(reply.status, self._rejects) is not Verdict.DONE:
            return {}
        told = self._rejected_in(reply.body)
        return {
            at: Rejection(
                lot.values[at], reason, self._body(Lot(0, [lot.values[at]])), reply.excerpt(ANSWER_LENGTH)
            )
            for at, reason in told.items()
            if 0 <= at < len(lot.values)
        }

    async def _answered(self, key: str, body: bytes, traced: Mapping[str, str]) -> Reply:
        """The answer that settles the request, after as many tries as it takes. Raises FlowError for one that
        is about every request, and when tries are at their end."""
        request = Request(self._method, self._url, {**traced, **self._headers, "Idempotency-Key": key}, body)
        trouble = ""
        for tries in range(TRIES_MAX):
            retry_after = ""
            try:
                reply = await self._exchange(request)
            except (NotSent, MaybeSent) as error:
                if isinstance(error.__cause__, ValueError) and isinstance(error, NotSent):
                    raise _Unsendable(str(error)) from error
                trouble = f"{error} for {key}, {TRIES_MAX} times: it is away, or its replies are lost."
            else:
                verdict = verdict_of(reply.status, self._rejects)
                if verdict is Verdict.REFUSED:
                    raise FlowError(
                        f"{self._method} {self._url} answered {reply.status} for {key}, which is about every "
                        f"request and not about this one: {reply.excerpt()} Check the address, the login and "
                        "the method of the sink. If it is about this value, name the status in rejects=."
                    )
                if verdict is not Verdict.AGAIN or self._is_done(reply):
                    return reply
                retry_after = reply.headers.get("retry-after", "")
                trouble = (
                    f"{self._method} {self._url} answered {reply.status} for {key}, {TRIES_MAX} times: it is "
                    "still at it, has no room, or is broken. If it means that it has executed the key, say "
                    "so with already_done=."
                )
            if tries + 1 < TRIES_MAX:
                await asyncio.sleep(wait_seconds(tries, retry_after))
        raise FlowError(trouble)

    async def _exchange(self, request: Request) -> Reply:
        if self._client is None:
            self._client = HttpClient(connections_max=self._concurrency, reply_seconds=self._timeout_seconds)
        return await self._client.exchange(request)

    def _is_done(self, reply: Reply) -> bool:
        return reply.status == 409 and self._already_done is not None and self._already_done(reply.body)

    def _done_of(self, checkpoint: CheckpointId) -> set[bytes]:
        """What this process knows to be done of a checkpoint. Of a task there is one at a time."""
        known = self._done.get(checkpoint.resource)
        if known is None or known[0] != checkpoint.number:
            known = self._done[checkpoint.resource] = (checkpoint.number, set[bytes]())
        return known[1]


class _Delivery(NamedTuple):
    checkpoint: CheckpointId
    done: set[bytes]
    traced: Mapping[str, str]


class _Unsendable(Exception):
    """No request can be made of it: a line break in its key, say."""


def _traced() -> Mapping[str, str]:
    place = current_place()
    return {} if place is None else {TRACEPARENT: place}


_HONOURED = Promise(EXACTLY_ONCE, "the service executes an idempotency key once")
_NOT_HONOURED = Promise(
    AT_LEAST_ONCE,
    "a request is sent again after a crash, and nothing says that the service recognises its key",
    ("honours_keys=True if the service executes an Idempotency-Key once", "OutboxSink"),
)
