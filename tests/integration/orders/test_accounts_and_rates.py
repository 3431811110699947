"""Several accounts of one broker, each with its own credentials; and the rates that brokers document."""

from datetime import UTC, datetime
from typing import Any

import pytest

from fencepost import Fencepost
from fencepost.embedded import Database
from fencepost.errors import InvalidInput, SettingsError
from fencepost.http_client import NotSent, Reply
from fencepost.testing import Clock
from fencepost_orders import operator_calls
from fencepost_orders._accounts_broker import AccountsBroker
from fencepost_orders._alpaca import AlpacaBroker
from fencepost_orders.broker import BrokerAdapter, LookupFinding, Promise
from fencepost_orders.brokers import DOCUMENTED_RATES, Broker, make_brokers
from fencepost_orders.http_rules import told_to_wait_seconds
from fencepost_orders.operator_calls import BrokerLimits
from fencepost_orders.service import Orders
from fencepost_orders.testing.broker import HostileBroker
from fencepost_orders.testing.broker_dialect import Dialect
from tests.integration.orders.broker_env import QUICK, SOON_PARKED, BrokerEnv, adapter_for, open_floor
from tests.integration.orders.env import OrdersEnv
from tests.integration.orders.test_real_brokers import outgoing

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


class Keys(Dialect):
    """Remembers which credentials each order came with."""

    def __init__(self) -> None:
        self.seen: dict[str, str] = {}

    def heard(self, headers: dict[str, str], request: dict[str, Any]) -> None:
        self.seen[str(request["idempotency_key"])] = headers["authorization"]


def described(url: str, **accounts: Any) -> dict[str, Any]:
    return {
        "adapter": "http",
        "base_url": url,
        "promise": "forever",
        "headers": {"Authorization": "Bearer ${TOKEN}"},
        "accounts": accounts,
    }


async def test_each_account_has_credentials_of_its_own(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN_OF_MAIN", "one")
    monkeypatch.setenv("TOKEN_OF_HEDGE", "two")
    dialect = Keys()
    with HostileBroker(Promise.FOREVER, dialect=dialect) as broker:
        accounts = {
            "main": {"credentials": {"TOKEN": "TOKEN_OF_MAIN"}},
            "hedge": {"credentials": {"TOKEN": "TOKEN_OF_HEDGE"}},
        }
        acme = make_brokers({"acme": described(broker.url, **accounts)})["acme"]
        async with open_floor(database.url, acme.adapter) as floor:
            for account in accounts:
                await floor.until_status(await floor.place(account, account=account), "sent")
    assert dialect.seen == {"main": "Bearer one", "hedge": "Bearer two"}


async def test_an_account_that_is_not_configured_is_refused_before_it_is_accepted(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN_OF_MAIN", "one")
    main = {"main": {"credentials": {"TOKEN": "TOKEN_OF_MAIN"}}}
    brokers = make_brokers({"acme": described("http://127.0.0.1:1", **main)})
    async with Fencepost(database.url) as fp:
        floor = BrokerEnv(Orders(fp, brokers, SOON_PARKED, QUICK), fp)
        with pytest.raises(InvalidInput, match="Configured: main"):
            await floor.place("k", account="typo")
    await brokers["acme"].adapter.close()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"accounts": {}}, "at least one account"),
        ({"accounts": {"main": {}}}, "main needs credentials"),
        (
            {"accounts": {"main": {"credentials": {"TOKEN": "X"}}}, "credentials": {"TOKEN": "X"}},
            "not in both",
        ),
        ({"accounts": {"main": {"credentials": {"TOKEN": "MISSING_ONE"}}}}, "MISSING_ONE is not set"),
    ],
)
def test_accounts_that_are_described_wrongly_are_named(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], said: str
) -> None:
    monkeypatch.setenv("X", "x")
    with pytest.raises(SettingsError, match=said):
        make_brokers({"acme": {**described("http://nowhere"), **fields}})


async def test_an_order_of_an_account_that_has_gone_is_not_sent_and_nothing_is_said_about_it() -> None:
    adapters: dict[str, BrokerAdapter] = {"main": _alpaca()}
    gone = AccountsBroker(adapters)
    with pytest.raises(NotSent, match="no credentials"):
        await gone.send_order(outgoing())
    assert (await gone.find_order(outgoing())).finding is LookupFinding.NO_ANSWER
    await gone.close()


def _alpaca() -> BrokerAdapter:
    return AlpacaBroker("key", "secret", base_url="http://127.0.0.1:1")


def test_rates_are_those_that_the_brokers_document_unless_limits_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("APCA_API_KEY_ID", "APCA_API_SECRET_KEY"):
        monkeypatch.setenv(name, "x")
    alpaca: Broker = make_brokers({"a": {"adapter": "alpaca"}})["a"]
    assert alpaca.limits.burst + 60 * alpaca.limits.rate_per_second <= 200
    assert alpaca.limits == DOCUMENTED_RATES["alpaca"]
    paid = make_brokers({"a": {"adapter": "alpaca", "limits": {"rate_per_second": 15}}})["a"]
    assert (paid.limits.rate_per_second, paid.limits.burst) == (15, 20)


def test_the_throttle_lets_no_more_than_the_documented_requests_of_a_minute_pass(
    market: OrdersEnv, clock: Clock
) -> None:
    rates = DOCUMENTED_RATES["alpaca"]
    market.run(operator_calls.declare_broker("acme", rates))
    for number in range(250):
        market.accepted(symbol=f"S{number}")
    sent = len(market.take(limit=500))
    for _ in range(59):
        clock.advance(1)
        sent += len(market.take(limit=500))
    assert 190 <= sent <= 200


@pytest.mark.parametrize(
    ("status", "headers", "seconds"),
    [
        (429, {"retry-after": "7", "x-ratelimit-reset": "1893499260"}, 7),
        (429, {"x-ratelimit-reset": str(int(NOON.timestamp()) + 20)}, 20),
        (429, {"x-ratelimit-reset": str((int(NOON.timestamp()) + 20) * 1000)}, 20),
        (429, {"x-ratelimit-reset": "30"}, 30),
        (429, {"ratelimit-reset": "30"}, 30),
        (429, {"x-ratelimit-reset": str(int(NOON.timestamp()) - 20)}, 0),
        (429, {"x-ratelimit-reset": "soon"}, None),
        (429, {"x-ratelimit-reset": "9" * 400}, None),
        (429, {}, None),
        (200, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "30"}, 30),
        (200, {"x-ratelimit-remaining": "1", "x-ratelimit-reset": "30"}, None),
        (200, {"retry-after": "30"}, 30),
    ],
)
def test_the_reset_of_a_rate_limit_is_read(
    status: int, headers: dict[str, str], seconds: float | None
) -> None:
    assert told_to_wait_seconds(Reply(status, headers), NOON) == seconds


class LastOne(Dialect):
    """Takes an order, and says that nothing is left of the minute."""

    def headers(self) -> dict[str, str]:
        return {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "3600"}


async def test_an_answer_that_used_up_the_rate_limit_pauses_the_broker_until_its_reset(
    database: Database,
) -> None:
    with HostileBroker(Promise.FOREVER, dialect=LastOne()) as broker:
        adapter = adapter_for(broker.url, Promise.FOREVER)
        limits = BrokerLimits(rate_per_second=1e6, burst=1e6)
        async with open_floor(database.url, adapter, limits=limits) as floor:
            await floor.until_status(await floor.place("last"), "sent")
            (seen,) = await floor.orders.brokers()
            assert seen["paused_until"] is not None
            assert seen["ask_paused_until"] is not None
            # A limit that is kept is no reason to go slower.
            assert seen["rate"] == seen["rate_max"]
