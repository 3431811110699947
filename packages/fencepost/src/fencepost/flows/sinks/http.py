"""HTTP requests with an idempotency key, for a service that honours it.

When a request fails, only that request is repeated: the same key with the same body, over kept-alive
connections. A repeat of the whole checkpoint, after a persistent error, skips the requests that this process
knows to be done.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from fencepost import _http1 as http1
from fencepost.flows._errors import FlowError
from fencepost.flows._guarantee import AT_LEAST_ONCE, EXACTLY_ONCE, Promise
from fencepost.flows._record import IdempotentRecord
from fencepost.flows.sinks._rejecting import (
    STOP,
    UNFIT,
    OnReject,
    Rejected,
    Rejection,
    Rejections,
    halves,
    rejection,
)
from fencepost.flows.sinks._sink import CheckpointId
from fencepost.flows.sinks._sink_types import StagedSink
from fencepost.flows.sinks.redis import as_bytes, as_record
from fencepost.http_client import HttpClient, MaybeSent, NotSent, Reply, Request
from fencepost.kernel.call import Json
from fencepost.tracing import TRACEPARENT, current_traceparent

AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
"""The service is executing the key, is overloaded, or failed: the same request may succeed later."""
REJECTS = frozenset({400, 412, 413, 415, 422, 451})
"""The service will never accept this body. Other statuses report a wrong login, path or method, for any
body."""
TRIES_MAX = 10
WAIT_SECONDS_MAX = 30.0
ANSWER_LENGTH = 4_000


class Verdict(Enum):
    """What a response means for its request."""

    DONE = "done"
    AGAIN = "again"
    REJECTED = "rejected"
    REFUSED = "refused"


def verdict_of(status: int, rejects: Collection[int] = REJECTS) -> Verdict:
    """What a status of the receiver means for the values that were sent."""
    if 200 <= status < 300:
        return Verdict.DONE
    if status in rejects:
        return Verdict.REJECTED
    return Verdict.AGAIN if status in AGAIN else Verdict.REFUSED


def wait_seconds(tries: int, retry_after: str = "") -> float:
    """How long to wait after `tries` tries: what the service asks for, or twice as long each time."""
    asked = retry_after.strip()
    named = float(asked) if asked.isascii() and asked.isdigit() else 0.0
    return min(named or 0.1 * 2.0**tries, WAIT_SECONDS_MAX)


def as_list(values: Sequence[Any]) -> bytes:
    """Many values as one body: a JSON list."""
    return as_bytes(list(values))


class Lot(NamedTuple):
    """Values that are sent in one request, and the index of the first of them in the checkpoint."""

    start: int
    values: Sequence[Any]

    def key(self, checkpoint: CheckpointId) -> str:
        """Names these values permanently: another lot of the same checkpoint has another key."""
        if len(self.values) == 1:
            return as_record(self.values[0], checkpoint, self.start).id
        last = self.start + len(self.values) - 1
        return f"{checkpoint.resource}#{checkpoint.number}/{self.start}-{last}"

    def halved(self) -> tuple[Lot, Lot]:
        """Both halves, to find the value that a receiver refuses."""
        first, second = halves(self.values)
        return Lot(self.start, first), Lot(self.start + len(first), second)


class HttpSink(StagedSink):
    """One request per value, or with `batch=` one per that many values. A repeat has the same
    Idempotency-Key and the same body.

    `honours_keys` declares that the service executes a key once, also when it is sent again after hours. A
    lost response, and a service that is overloaded, still executing the key, or failing (408, 409, 425, 429,
    500, 502, 503, 504), repeat only that request, after Retry-After. Some services return 409 for a key that
    they have executed: `already_done` recognises these by the body of the response. A body that the service
    will never take (`rejects`: 400, 412, 413, 415, 422 and 451) is handled by `on_reject`. Any other status
    concerns every request, as a wrong login does, and stops the task.

    A batch that is rejected is sent in halves until the rejected value is found, so the service must take all
    of a batch or nothing of it. For a service that takes a part, `rejected_in` reads the indexes of the
    rejected values, and the reasons, from the body of a successful response. At most `concurrency` requests,
    over as many connections, are in flight for all tasks of a worker.
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
        self._slots: asyncio.Semaphore | None = None
        self._done: dict[str, tuple[int, set[bytes]]] = {}

    async def close(self) -> None:
        client, self._client, self._slots = self._client, None, None
        if client is not None:
            await client.close()

    async def begin(self, checkpoint: CheckpointId) -> Json:
        """The number of values per request is stored in the checkpoint: a repeat by a newer version of the
        code splits them as the first try did; otherwise one key would have two bodies."""
        return {"batch": self._batch} if self._batch > 1 else None

    async def finish(self, checkpoint: CheckpointId, handle: Json, values: Sequence[Any]) -> Rejections:
        size = 1 if handle is None else int(handle["batch"])
        return await self._deliver(checkpoint, values, size)

    async def deliver(self, checkpoint: CheckpointId, values: Sequence[Any]) -> Rejections:
        return await self._deliver(checkpoint, values, self._batch)

    async def _deliver(self, checkpoint: CheckpointId, values: Sequence[Any], size: int) -> Rejections:
        """Send all lots, `concurrency` at once. After a lot that fails permanently no other is begun."""
        delivery = _Delivery(checkpoint, self._done_of(checkpoint), _traced())
        slots = self._slots = self._slots or asyncio.Semaphore(self._concurrency)
        failures: list[FlowError] = []
        rejected: list[tuple[int, Rejection]] = []

        async def settle(lot: Lot) -> None:
            async with slots:
                if failures:
                    return
                try:
                    rejected.extend(await self._settle(delivery, lot))
                except FlowError as error:
                    failures.append(error)

        lots = [Lot(start, values[start : start + size]) for start in range(0, len(values), size)]
        await asyncio.gather(*map(settle, lots))
        if failures:
            # The task starts again, with the same keys and the same bodies.
            raise failures[0]
        return [each for _, each in sorted(rejected, key=lambda pair: pair[0])]

    async def _settle(self, delivery: _Delivery, lot: Lot) -> list[tuple[int, Rejection]]:
        """Send until the service has every value of the lot except those that it rejects; return these with
        their indexes."""
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
        """Return the rejected values of a lot that was taken; the rejection of a single value; None for a
        lot whose rejected values are not known."""
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
        """The request body. For an IdempotentRecord it holds the value: the id is the key of the request;
        within a batch `encode_batch` handles the ids."""
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
        """Return the response that settles the request, after as many tries as it takes. Raises FlowError
        for one that concerns every request, and when the tries are used up."""
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
        """What this process knows to be done of a checkpoint. A task has one checkpoint at a time."""
        known = self._done.get(checkpoint.resource)
        if known is None or known[0] != checkpoint.number:
            known = self._done[checkpoint.resource] = (checkpoint.number, set[bytes]())
        return known[1]


class _Delivery(NamedTuple):
    checkpoint: CheckpointId
    done: set[bytes]
    traced: Mapping[str, str]


class _Unsendable(Exception):
    """The value cannot be sent as a request: for example, its key contains a line break."""


def _traced() -> Mapping[str, str]:
    traceparent = current_traceparent()
    return {} if traceparent is None else {TRACEPARENT: traceparent}


_HONOURED = Promise(EXACTLY_ONCE, "the service executes an idempotency key once")
_NOT_HONOURED = Promise(
    AT_LEAST_ONCE,
    "a request is sent again after a crash, and nothing says that the service recognises its key",
    ("honours_keys=True if the service executes an Idempotency-Key once", "OutboxSink"),
)
