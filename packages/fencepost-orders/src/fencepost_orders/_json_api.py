"""A broker's HTTP API that speaks JSON: its address, the headers of every request, and what a failed question
means."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from fencepost.http_client import HttpClient, MaybeSent, NotSent, Reply, Request
from fencepost.kernel.call import Json, document
from fencepost_orders.broker import Code, FoundOrder, LookupFinding, OutgoingOrder


class JsonApi:
    """Sends requests to the paths below one address."""

    def __init__(self, base_url: str, headers: Mapping[str, str], client: HttpClient | None) -> None:
        self._base_url = base_url.rstrip("/")
        self._headers = {**headers, "Content-Type": "application/json"}
        self._client = client or HttpClient(loopback="named")

    async def get(self, path: str) -> Reply:
        return await self._client.exchange(Request("GET", f"{self._base_url}/{path}", self._headers))

    async def post(self, path: str, order: dict[str, Json]) -> Reply:
        body = document("order", order).encode()
        return await self._client.exchange(Request("POST", f"{self._base_url}/{path}", self._headers, body))

    async def change(self, method: str, path: str, order: dict[str, Json] | None = None) -> Reply:
        body = None if order is None else document("order", order).encode()
        return await self._client.exchange(Request(method, f"{self._base_url}/{path}", self._headers, body))

    async def close(self) -> None:
        await self._client.close()


def own_id(order: OutgoingOrder) -> str:
    """The broker's id of an order, for a path; raises NotSent while it is not known."""
    if order.broker_order_id is None:
        raise NotSent("the broker's own id of the order is not known yet")
    return quote(order.broker_order_id, safe="")


def network_failed(error: NotSent | MaybeSent) -> FoundOrder:
    """Nothing is known about the order: the question was not sent, or not answered."""
    return FoundOrder(LookupFinding.NO_ANSWER, code=Code.NETWORK_TIMEOUT, detail=str(error))
