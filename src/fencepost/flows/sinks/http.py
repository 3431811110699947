"""HTTP requests with an idempotency key, for a service that honours it."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fencepost.flows.errors import FlowError
from fencepost.flows.guarantee import AT_LEAST_ONCE, EXACTLY_ONCE, Promise
from fencepost.flows.sinks.kinds import StagedSink
from fencepost.flows.sinks.redis import as_bytes, as_record
from fencepost.flows.sinks.sink import CheckpointId
from fencepost.tracing import TRACEPARENT, current_place


class HttpSink(StagedSink):
    """One request a value. A repeat after a crash has the same Idempotency-Key and the same body.

    `honours_keys` is your word that the service executes a key once, also when it comes again after hours.
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
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise FlowError(f"{url!r} is no address for HTTP: it must begin with http:// or https://.")
        self._url = url
        self._method = method
        self._headers = {"Content-Type": "application/json", **(headers or {})}
        self._encode = encode
        self._timeout_seconds = timeout_seconds
        self._concurrency = concurrency
        self.promise = _HONOURED if honours_keys else _NOT_HONOURED

    async def deliver(self, checkpoint: CheckpointId, values: Sequence[Any]) -> None:
        gate = asyncio.Semaphore(self._concurrency)
        place = current_place()
        traced = {} if place is None else {TRACEPARENT: place}

        async def one(place: int, value: Any) -> None:
            record = as_record(value, checkpoint, place)
            async with gate:
                await asyncio.to_thread(self._send, record.id, self._encode(record.value), traced)

        await asyncio.gather(*(one(place, value) for place, value in enumerate(values)))

    def _send(self, key: str, body: bytes, traced: Mapping[str, str]) -> None:
        headers = {**traced, **self._headers, "Idempotency-Key": key}
        request = urllib.request.Request(self._url, body, headers, method=self._method)  # noqa: S310 - Checked above.
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_seconds):  # noqa: S310
                return
        except urllib.error.HTTPError as error:
            # A conflict says that the key was executed: that is what we want to hear.
            if error.code != 409:
                raise FlowError(f"{self._method} {self._url} answered {error.code} for {key}.") from error


_HONOURED = Promise(EXACTLY_ONCE, "the service executes an idempotency key once")
_NOT_HONOURED = Promise(
    AT_LEAST_ONCE,
    "a request is sent again after a crash, and nothing says that the service recognises its key",
    ("honours_keys=True if the service executes an Idempotency-Key once", "OutboxSink"),
)
