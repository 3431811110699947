"""HTTP requests with an idempotency key, for a service that honours it."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from fencepost.flows.errors import FlowError
from fencepost.flows.guarantee import AT_LEAST_ONCE, EXACTLY_ONCE, Promise
from fencepost.flows.sinks.kinds import StagedSink
from fencepost.flows.sinks.redis import as_bytes, as_record
from fencepost.flows.sinks.sink import CheckpointId
from fencepost.tracing import TRACEPARENT, current_place

COME_AGAIN = frozenset({409, 425, 429, 503})
TRIES_MAX = 10
WAIT_SECONDS_MAX = 30.0


class ComeAgain(NamedTuple):
    """The service has not taken it, and did not refuse it either."""

    status: int
    wait_seconds: float | None


class HttpSink(StagedSink):
    """One request a value. A repeat after a crash has the same Idempotency-Key and the same body.

    `honours_keys` is your word that the service executes a key once, also when it comes again after hours.
    A service that is at it already, or has no room, is asked again: 409, 425, 429 and 503, after Retry-After.
    Some say 409 for a key that they have executed: `already_done` tells these by the body of the answer.
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
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise FlowError(f"{url!r} is no address for HTTP: it must begin with http:// or https://.")
        self._url = url
        self._method = method
        self._headers = {"Content-Type": "application/json", **(headers or {})}
        self._encode = encode
        self._timeout_seconds = timeout_seconds
        self._concurrency = concurrency
        self._already_done = already_done
        self.promise = _HONOURED if honours_keys else _NOT_HONOURED

    async def deliver(self, checkpoint: CheckpointId, values: Sequence[Any]) -> None:
        gate = asyncio.Semaphore(self._concurrency)
        place = current_place()
        traced = {} if place is None else {TRACEPARENT: place}

        async def one(place: int, value: Any) -> None:
            record = as_record(value, checkpoint, place)
            async with gate:
                await self._until_done(record.id, self._encode(record.value), traced)

        await asyncio.gather(*(one(place, value) for place, value in enumerate(values)))

    async def _until_done(self, key: str, body: bytes, traced: Mapping[str, str]) -> None:
        status = 0
        for tries in range(TRIES_MAX):
            answer = await asyncio.to_thread(self._send, key, body, traced)
            if answer is None:
                return
            status, wait_seconds = answer
            await asyncio.sleep(min(wait_seconds or 0.1 * 2**tries, WAIT_SECONDS_MAX))
        # The task begins again, with the same keys and the same bodies.
        raise FlowError(
            f"{self._method} {self._url} answered {status} for {key}, {TRIES_MAX} times: it is still "
            "at it, or has no room. If it means that it has executed the key, say so with already_done=."
        )

    def _send(self, key: str, body: bytes, traced: Mapping[str, str]) -> ComeAgain | None:
        """None when the service has taken it."""
        headers = {**traced, **self._headers, "Idempotency-Key": key}
        request = urllib.request.Request(self._url, body, headers, method=self._method)  # noqa: S310 - Checked above.
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_seconds):  # noqa: S310
                return None
        except urllib.error.HTTPError as error:
            if error.code not in COME_AGAIN:
                raise FlowError(f"{self._method} {self._url} answered {error.code} for {key}.") from error
            if error.code == 409 and self._already_done is not None and self._already_done(error.read()):
                return None
            after = (error.headers.get("Retry-After") or "").strip()
            return ComeAgain(error.code, float(after) if after.isascii() and after.isdigit() else None)


_HONOURED = Promise(EXACTLY_ONCE, "the service executes an idempotency key once")
_NOT_HONOURED = Promise(
    AT_LEAST_ONCE,
    "a request is sent again after a crash, and nothing says that the service recognises its key",
    ("honours_keys=True if the service executes an Idempotency-Key once", "OutboxSink"),
)
