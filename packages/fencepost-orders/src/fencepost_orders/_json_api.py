"""A broker's HTTP API that speaks JSON: its address, the headers of every request, and what a failed question
means."""

from __future__ import annotations

from collections.abc import Mapping

from fencepost.http_client import HttpClient, MaybeSent, NotSent, Reply, Request
from fencepost.kernel.call import Json, document
from fencepost_orders.broker import Code, FoundOrder, LookupFinding


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

    async def close(self) -> None:
        await self._client.close()


def network_failed(error: NotSent | MaybeSent) -> FoundOrder:
    """Nothing is known about the order: the question was not sent, or not answered."""
    return FoundOrder(LookupFinding.NO_ANSWER, code=Code.NETWORK_TIMEOUT, detail=str(error))
