"""Request ids: blank ones are refused, time-ordered ones are refused when they are too old to be known."""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import httpx
import pytest
from fastapi import FastAPI

from fencepost import Fencepost
from fencepost.embedded import Database
from fencepost.errors import Mismatch
from fencepost.redis_streams.response_cache import CacheKey
from fencepost.retention import Retention, RetentionMetrics
from fencepost.settings import Settings
from fencepost.testing import Clock
from fencepost_players._api import make_router
from fencepost_players.mutations import _request_id_policy as request_id_policy
from fencepost_players.mutations.errors import Aborted, FailedPrecondition, InvalidArgument
from fencepost_players.mutations.settings import MutationSettings
from fencepost_players.requests import GrantItems
from fencepost_players.service import Players
from tests.integration.kernel.test_idempotency_ring import ulid, uuid7
from tests.integration.players import env
from tests.integration.players.conftest import balances, enrol

GOLD = GrantItems(player_id="ann", resources={"gold": 1})
ORDERED = MutationSettings(ordered_ids=True)
PATH = "/players/ann/grant-items"


@pytest.fixture
async def http(players: Players) -> AsyncIterator[httpx.AsyncClient]:
    app = FastAPI()
    app.include_router(make_router(players))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        yield client


@pytest.mark.parametrize("blank", ["", " ", "   ", "\u3000"])
async def test_a_blank_id_is_refused_and_not_taken_for_none(
    players: Players, http: httpx.AsyncClient, blank: str
) -> None:
    await enrol(players, "ann")
    body = {"resources": {"gold": 1}}
    answers = [await http.post(PATH, json={**body, "request_id": blank})]
    if blank.isascii():
        answers.append(await http.post(PATH, json=body, headers={"Idempotency-Key": blank}))
    for answer in answers:
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_argument"), answer.text
        assert answer.json()["meta"]["argument"] == "request_id"
    with pytest.raises(InvalidArgument):
        await players.run(GOLD, request_id=blank)
    assert await balances(players, "ann") == {}
    assert await players.fp.run(request_id_policy.rate("players", 3600)) == [], (
        "it is no request without an id either"
    )


async def test_a_request_that_is_under_way_is_asked_about_again_as_soon_as_it_may_be_done(
    cached: Players,
) -> None:
    """Its announcement may stand for seconds, the work takes milliseconds."""
    await enrol(cached, "ann")
    assert cached.cache is not None
    digest = "sha256:" + "0" * 64
    await cached.cache.begin(CacheKey("player:ann", "r1", digest))
    with pytest.raises(Aborted) as told:
        await cached.run(GOLD, request_id="r1")
    assert told.value.meta["reason"] == "pending"
    assert told.value.retry_seconds is not None
    assert 0 < told.value.retry_seconds < 2
    assert int(told.value.meta["retry_after_ms"]) == round(told.value.retry_seconds * 1000)


async def test_requests_without_an_id_are_counted(players: Players) -> None:
    await enrol(players, "ann")
    for _ in range(3):
        await players.run(GOLD, request_id=None)
    with pytest.raises(Mismatch, match=r"3 requests without an id"):
        await players.fp.run(request_id_policy.set_phase("players", 2, 3600))


class Shop:
    """Ordered players whose clock is moved."""

    def __init__(self, players: Players, clock: Clock) -> None:
        self.players = players
        self.clock = clock
        self.retention = Retention(players.fp, Settings(), RetentionMetrics.on(players.fp.metrics))

    def id_of(self, kind: str, **ago: float) -> str:
        at: datetime = self.clock.now() - timedelta(**ago)
        return uuid7(at) if kind == "uuid7" else ulid(at)

    async def clean(self) -> None:
        await self.retention.delete_expired_keys()


@pytest.fixture
async def shop(database: Database) -> AsyncIterator[Shop]:
    with Clock(database.admin_url) as clock:
        async with Fencepost(database.url) as fp:
            await env.load(fp)
            players = Players(fp, ORDERED)
            await enrol(Players(fp, metrics=players.metrics), "ann")
            yield Shop(players, clock)


@pytest.mark.parametrize("kind", ["uuid7", "ulid"])
async def test_a_repeat_after_the_retention_is_refused_and_not_granted_again(shop: Shop, kind: str) -> None:
    key = shop.id_of(kind)
    first = await shop.players.run(GOLD, request_id=key)
    shop.clock.advance(3599)
    await shop.clean()
    again = await shop.players.run(GOLD, request_id=key.upper())
    assert (again.layer, again.body) == ("repeat", first.body)

    shop.clock.advance(2)
    await shop.clean()
    with pytest.raises(FailedPrecondition) as told:
        await shop.players.run(GOLD, request_id=key)

    assert told.value.meta["reason"] == "too_old"
    assert await balances(shop.players, "ann") == {"gold": 1}


async def test_without_the_setting_it_is_granted_again(shop: Shop) -> None:
    """What the setting is for: the same story with ids that are only texts."""
    players = Players(shop.players.fp, metrics=shop.players.metrics)
    key = shop.id_of("uuid7")
    await players.run(GOLD, request_id=key)
    shop.clock.advance(3601)
    await shop.clean()
    assert (await players.run(GOLD, request_id=key)).layer == "executed"


async def test_an_id_of_a_clock_that_runs_ahead_is_known_for_as_long_as_it_may_be_repeated(
    shop: Shop,
) -> None:
    key = shop.id_of("uuid7", minutes=-14)
    await shop.players.run(GOLD, request_id=key)
    shop.clock.advance(3600 + 13 * 60)
    await shop.clean()
    assert (await shop.players.run(GOLD, request_id=key)).layer == "repeat"
    shop.clock.advance(61)
    await shop.clean()
    with pytest.raises(FailedPrecondition):
        await shop.players.run(GOLD, request_id=key)
    assert await balances(shop.players, "ann") == {"gold": 1}


@pytest.mark.parametrize("ago", [{"seconds": 3601}, {"minutes": -16}, {"days": 4000}])
async def test_an_id_outside_the_window_is_refused_the_first_time_too(
    shop: Shop, ago: dict[str, float]
) -> None:
    with pytest.raises(FailedPrecondition) as told:
        await shop.players.run(GOLD, request_id=shop.id_of("uuid7", **ago))
    assert told.value.meta["reason"] == "too_old"
    assert await balances(shop.players, "ann") == {}


async def test_an_id_without_a_time_is_refused_where_one_is_asked_for(shop: Shop) -> None:
    with pytest.raises(InvalidArgument) as told:
        await shop.players.run(GOLD, request_id="r-1")
    assert told.value.meta["argument"] == "request_id"
