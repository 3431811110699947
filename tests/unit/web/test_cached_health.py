"""Whether we are ready is for everybody; why we are not, for who has the token."""

from collections.abc import Mapping

import httpx
import pytest

from fencepost.metrics_server import MetricsPage
from fencepost_server.web._app import make_app
from fencepost_server.web._cached_health import CachedHealth
from fencepost_server.web.settings import WebSettings

TOKEN = "0123456789abcdef"
WHY = b'{"postgresql": "the password of fencepost_service is wrong"}\n'


async def asked(settings: WebSettings, host: str, headers: Mapping[str, str], status: int) -> httpx.Response:
    pages = {"/readyz": lambda: MetricsPage(WHY, "application/json", status)}
    transport = httpx.ASGITransport(make_app([], settings, pages=pages))
    async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}") as client:
        return await client.get("/readyz", headers=headers)


@pytest.mark.parametrize(("status", "told"), [(200, "ok\n"), (503, "not ready\n")])
async def test_a_stranger_is_told_the_status_alone(status: int, told: str) -> None:
    closed = WebSettings(token=TOKEN)
    for headers in ({}, {"authorization": "Bearer wrong"}):
        answer = await asked(closed, "10.0.0.7:8080", headers, status)
        assert (answer.status_code, answer.text) == (status, told)
    known = await asked(closed, "10.0.0.7:8080", {"authorization": f"Bearer {TOKEN}"}, status)
    assert (known.status_code, known.content) == (status, WHY)


async def test_without_a_token_this_machine_is_told_everything_and_a_foreign_name_is_not() -> None:
    assert (await asked(WebSettings(), "127.0.0.1:8080", {}, 503)).content == WHY
    assert (await asked(WebSettings(), "evil.example", {}, 503)).text == "not ready\n"


def test_however_many_ask_it_looks_once_a_second() -> None:
    looks: list[int] = []
    time = [0.0]

    def look() -> MetricsPage:
        looks.append(1)
        return MetricsPage(b"why", status=200 if len(looks) == 1 else 503)

    cached_health = CachedHealth(look, now=lambda: time[0])
    assert {cached_health.page().status for _ in range(100)} == {200}
    time[0] = 1.0
    assert {cached_health.page().status for _ in range(100)} == {503}
    assert len(looks) == 2
