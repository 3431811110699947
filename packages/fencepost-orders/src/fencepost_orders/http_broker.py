"""The adapter for a broker that is described by data."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from urllib.parse import quote

from fencepost.http_client import HttpClient, MaybeSent, NotSent, Reply, Request
from fencepost_orders._json_api import network_failed, own_id
from fencepost_orders.broker import AnswerVerdict, Declaration, FoundOrder, LookupFinding, OutgoingOrder
from fencepost_orders.http_rules import (
    HttpBrokerConfig,
    body_of,
    classified,
    json_text,
    order_of,
    read_finding,
    with_secrets,
)


class HttpBroker:
    """Talks to one broker as its description says."""

    def __init__(
        self,
        config: HttpBrokerConfig,
        *,
        environ: Mapping[str, str] | None = None,
        client: HttpClient | None = None,
    ) -> None:
        self._config = config
        self._declaration = config.declaration
        self._base_url = config.base_url.rstrip("/")
        secrets = with_secrets(config.headers, environ, config.credentials)
        self._headers = {"Content-Type": "application/json", **secrets}
        self._client = client or HttpClient(
            connect_seconds=config.connect_seconds,
            reply_seconds=config.reply_seconds,
            loopback="named",
        )

    @property
    def declaration(self) -> Declaration:
        """What this broker promises: client ids, lookups, order types."""
        return self._declaration

    async def send_order(self, order: OutgoingOrder) -> Reply:
        """Send the order once. Raises NotSent or MaybeSent if there is no answer."""
        return await self._client.exchange(self.request(order))

    def request(self, order: OutgoingOrder) -> Request:
        """The request for one order; the same order makes the same request, except for its stamp."""
        headers = dict(self._headers)
        if self._config.key_header is not None:
            headers[self._config.key_header] = order.client_id
        if self._config.deadline_header is not None and self._config.request_valid_seconds is not None:
            # Counted from the take and not from now: a worker that stalled must not give itself more time.
            deadline = order.stamped_at + timedelta(seconds=self._config.request_valid_seconds)
            headers[self._config.deadline_header] = deadline.isoformat()
        return Request(
            "POST",
            self._url(self._config.send_path, order),
            headers,
            json_text(body_of(self._config, order.document)).encode(),
        )

    async def cancel_order(self, order: OutgoingOrder) -> Reply:
        """Ask the broker to cancel the order."""
        assert self._config.cancel_path is not None
        body = None if self._config.cancel_method == "DELETE" else b"{}"
        return await self._change(self._config.cancel_method, self._config.cancel_path, order, body)

    async def replace_order(self, order: OutgoingOrder, replacement: OutgoingOrder) -> Reply:
        """The replacement's document has its own client id."""
        assert self._config.replace_path is not None
        wanted = {**replacement.document, "idempotency_key": replacement.client_id}
        body = json_text(body_of(self._config, wanted)).encode()
        return await self._change(self._config.replace_method, self._config.replace_path, order, body)

    async def _change(self, method: str, path: str, order: OutgoingOrder, body: bytes | None) -> Reply:
        url = self._url(path.replace("{broker_order_id}", own_id(order)), order)
        return await self._client.exchange(Request(method, url, self._headers, body))

    def classify(self, order: OutgoingOrder, reply: Reply) -> AnswerVerdict:
        """What an answer to an order means, by the broker's rules."""
        return classified(self._config, reply)

    async def find_order(self, order: OutgoingOrder) -> FoundOrder:
        """Look the order up by its client id."""
        if self._config.find_path is None:
            return FoundOrder(LookupFinding.NO_ANSWER)
        request = Request("GET", self._url(self._config.find_path, order), self._headers)
        try:
            reply = await self._client.exchange(request)
        except (NotSent, MaybeSent) as error:
            return network_failed(error)
        return self.read_finding(reply)

    def read_finding(self, reply: Reply) -> FoundOrder:
        """Read the answer to a query."""
        return read_finding(reply, order_of(self._config, reply.json()))

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    def _url(self, path: str, order: OutgoingOrder) -> str:
        if "{" in path:
            for place, value in (("{client_id}", order.client_id), ("{account}", order.account)):
                path = path.replace(place, quote(value, safe=""))
        return self._base_url + path
