"""Messages as HTTP requests: one POST each, under an idempotency key that is the same for every repeat.

Delivered at least once: a lost reply is followed by a repeat, which the receiver recognises by its key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set

from fencepost.backoff import Backoff, retry_after_seconds
from fencepost.http_client import HttpClient, MaybeSent, NotSent, Reply, Request
from fencepost.kernel.call import document
from fencepost.kernel.outbox import Message, Settlement
from fencepost.tracing import TRACEPARENT, current_traceparent

RETRIED = frozenset({408, 409, 425, 429})
"""The receiver asks to wait, or still processes the first request under this key."""
RETRIED_SIGNED = RETRIED | {401, 403}
"""Also a receiver that does not have the new secret yet: a rotation must lose nothing."""


class Webhook:
    """A destination: `headers` are sent with every request, and those that `sign` makes of its body;
    `key_header` names the header of the key. If there are spans, the request carries the delivery's."""

    def __init__(
        self,
        client: HttpClient,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        key_header: str = "Idempotency-Key",
        key_prefix: str = "fencepost-outbox-",
        tries_max: int = 9,
        backoff: Backoff | None = None,
        sign: Callable[[bytes], Mapping[str, str]] | None = None,
        retried: Set[int] = RETRIED,
    ) -> None:
        self._client = client
        self._url = url
        self._headers = dict(headers or {})
        self._key_header = key_header
        self._key_prefix = key_prefix
        self._tries_max = tries_max
        self._backoff = backoff or Backoff()
        self._sign = sign
        self._retried = retried

    async def deliver(self, message: Message) -> Settlement:
        try:
            reply = await self._client.exchange(self.request(message))
        except (NotSent, MaybeSent) as error:
            # Either way the repeat carries the same key: the receiver recognises it.
            return self.failed(message, error)
        return self.settlement(message, reply)

    def request(self, message: Message) -> Request:
        key = message.headers.get("idempotency_key") or f"{self._key_prefix}{message.id}"
        traceparent = current_traceparent()
        traced = {} if traceparent is None else {TRACEPARENT: traceparent}
        body = document("payload", message.payload).encode()
        signed: Mapping[str, str] = {} if self._sign is None else self._sign(body)
        return Request(
            "POST",
            self._url,
            {
                "Content-Type": "application/json",
                **traced,
                **self._headers,
                **signed,
                self._key_header: str(key),
            },
            body,
        )

    def settlement(self, message: Message, reply: Reply) -> Settlement:
        """2xx is delivered; 4xx is a definite failure, except for the statuses that ask to wait; all others
        are retried."""
        if 200 <= reply.status < 300:
            return Settlement(message.id, message.take, "sent", result={"status": reply.status})
        error = f"{reply.status}: {reply.excerpt()}"
        if 400 <= reply.status < 500 and reply.status not in self._retried:
            return Settlement(message.id, message.take, "dead", error)
        return self._again(message, error, retry_after_seconds(reply.headers.get("retry-after")))

    def failed(self, message: Message, error: BaseException) -> Settlement:
        return self._again(message, str(error)[:1000], None)

    def _again(self, message: Message, error: str, wait_seconds: float | None) -> Settlement:
        if message.attempts >= self._tries_max:
            return Settlement(message.id, message.take, "dead", error)
        if wait_seconds is None:
            wait_seconds = self._backoff.seconds(message.attempts)
        return Settlement(message.id, message.take, "failed", error, wait_seconds)
