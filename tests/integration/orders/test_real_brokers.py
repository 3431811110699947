"""Alpaca's and OANDA's adapters against simulators that behave as documented, and lose what can be lost."""

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from fencepost.embedded import Database
from fencepost.errors import SettingsError
from fencepost.http_client import Reply
from fencepost_orders._alpaca import AlpacaBroker, alpaca_order
from fencepost_orders._oanda import OandaBroker, oanda_order
from fencepost_orders.broker import BrokerAdapter, Code, LookupFinding, Meaning, OutgoingOrder, Promise
from fencepost_orders.brokers import make_brokers
from fencepost_orders.testing._broker_book import Book, BookOrder
from fencepost_orders.testing.broker import HostileBroker
from fencepost_orders.testing.broker_dialect import Said
from fencepost_orders.testing.broker_faults import FRIENDLY, BrokerFaults
from tests.integration.orders.broker_env import open_floor
from tests.integration.orders.dialects import AlpacaDialect, OandaDialect

Make = Callable[[str, float | None], BrokerAdapter]
STAMP = datetime(2030, 1, 1, 12, tzinfo=UTC)


class CountingOanda(OandaDialect):
    lists = 0

    def answer(self, path: str, book: Book) -> Said:
        self.lists += "state=ALL" in path
        return super().answer(path, book)


def alpaca(url: str, valid_seconds: float | None) -> BrokerAdapter:
    return AlpacaBroker("key", "secret-of-alpaca", base_url=url, request_valid_seconds=valid_seconds)


def oanda(url: str, valid_seconds: float | None) -> BrokerAdapter:
    return OandaBroker("secret-of-oanda", base_url=url, request_valid_seconds=valid_seconds)


BOTH = pytest.mark.parametrize(
    ("make", "dialect"), [(alpaca, AlpacaDialect()), (oanda, OandaDialect())], ids=["alpaca", "oanda"]
)


@BOTH
async def test_an_order_is_placed_in_the_brokers_own_words(
    database: Database, make: Make, dialect: Any
) -> None:
    with HostileBroker(Promise.WHILE_OPEN, dialect=dialect) as broker:
        async with open_floor(database.url, make(broker.url, None)) as floor:
            order_id = await floor.place("first", limit_price="145.001", intent="SELL", account="101-1")
            found = await floor.until_status(order_id, "sent")
        assert found["broker_order_id"]
        assert found["result"]["result_digest"].startswith("sha256:")
        assert broker.client_ids() == {"first"}


@BOTH
async def test_lost_answers_are_found_again_and_no_order_is_doubled(
    database: Database, make: Make, dialect: Any
) -> None:
    broker_faults = (
        "lose_reply",
        "fail_after",
        "close_halfway",
        "garble",
        "echo_another",
        "duplicate",
        "accept_late",
    )
    with HostileBroker(Promise.WHILE_OPEN, dialect=dialect, late_seconds=0.1) as broker:
        async with open_floor(database.url, make(broker.url, 1.0)) as floor:
            for broker_fault in broker_faults:
                broker.faults = BrokerFaults(**{broker_fault: 100.0})
                await floor.until_status(await floor.place(broker_fault, symbol=broker_fault), "sent")
        assert broker.doubled() == []
        assert broker.client_ids() == set(broker_faults)


@BOTH
async def test_an_order_that_the_broker_knows_already_is_counted_as_such(
    database: Database, make: Make, dialect: Any
) -> None:
    """Neither shows the order with its refusal: it is asked about, and then it is `conflict_processed`."""
    with HostileBroker(Promise.WHILE_OPEN, dialect=dialect) as broker:
        broker.book.fill_chance = 0.0
        async with open_floor(database.url, make(broker.url, None)) as floor:
            known = alpaca_order(outgoing()) if make is alpaca else {"order": oanda_order(outgoing())}
            broker.book.place("key-1", known, time.monotonic())
            order_id = await floor.place("key-1", account="101-1")
            await floor.until_status(order_id, "sent")
            page = await floor.until_shown('fencepost_orders_sends_total{outcome="conflict_processed"} 1.0')
            steps = await floor.steps(order_id)
        assert broker.doubled() == []
    conflict = Code.CONFLICT_PROCESSED
    assert steps[-2:] == [("sending", "unknown", conflict), ("unknown", "sent", conflict)]
    assert 'fencepost_orders_sends_total{outcome="success"}' not in page


async def test_oandas_list_is_walked_back_to_before_the_first_request_and_no_further() -> None:
    """Orders of an hour ago lie behind the end; one of now, on the second page, is found."""
    dialect = CountingOanda()
    with HostileBroker(Promise.WHILE_OPEN, dialect=dialect) as broker:
        fill_list(broker, [3600] * 20 + [30] * 5)
        adapter = oanda(broker.url, None)
        wanted = replace(outgoing(), stamped_at=datetime.now(UTC), open_since=datetime.now(UTC))
        assert (await adapter.find_order(wanted)).finding is LookupFinding.ABSENT
        # Five of now and one that is too old, three a page, each of which begins with one that is known.
        assert dialect.lists == 3
        found = await adapter.find_order(replace(wanted, client_id="other-21"))
        assert found.finding is LookupFinding.FOUND
        await adapter.close()


async def test_oandas_list_ends_with_the_first_order_of_the_account() -> None:
    """Of a young account all orders are of now: what is behind them is the end, and not asked for again."""
    dialect = CountingOanda()
    with HostileBroker(Promise.WHILE_OPEN, dialect=dialect) as broker:
        fill_list(broker, [30] * 4)
        adapter = oanda(broker.url, None)
        wanted = replace(outgoing(), stamped_at=datetime.now(UTC), open_since=datetime.now(UTC))
        assert (await adapter.find_order(wanted)).finding is LookupFinding.ABSENT
        assert dialect.lists == 3
        await adapter.close()


async def test_an_order_in_oandas_list_that_cannot_be_read_may_be_the_one() -> None:
    class Unreadable(OandaDialect):
        def shown(self, order: BookOrder) -> dict[str, Any]:
            return {"id": "1", "clientExtensions": {"id": order.client_id}}

    with HostileBroker(Promise.WHILE_OPEN, dialect=Unreadable()) as broker:
        fill_list(broker, [30])
        adapter = oanda(broker.url, None)
        assert (await adapter.find_order(outgoing())).finding is LookupFinding.NO_ANSWER
        await adapter.close()


def fill_list(broker: HostileBroker, ages_seconds: list[int]) -> None:
    """Orders of others that were filled so long ago."""
    broker.book.fill_chance = 0.0
    now = time.monotonic()
    for number, age_seconds in enumerate(ages_seconds):
        order = {"order": {**oanda_order(outgoing()), "clientExtensions": {"id": f"other-{number}"}}}
        placed, _ = broker.book.place(f"other-{number}", order, now - age_seconds)
        placed.is_open = False


@BOTH
async def test_what_may_still_arrive_is_parked_unless_a_caller_says_how_long_it_can(
    database: Database, make: Make, dialect: Any
) -> None:
    with HostileBroker(Promise.WHILE_OPEN, dialect=dialect, faults=BrokerFaults(lose_request=100)) as broker:
        async with open_floor(database.url, make(broker.url, None)) as floor:
            order_id = await floor.place("lost")
            await floor.until_status(order_id, "parked")
            broker.faults = FRIENDLY
            await floor.orders.resolve(order_id, "parked", "queued", "ann", "the desk says it never came")
            await floor.until_status(order_id, "sent")
        assert broker.doubled() == []


@BOTH
async def test_a_refused_order_is_dead(database: Database, make: Make, dialect: Any) -> None:
    with HostileBroker(Promise.WHILE_OPEN, dialect=dialect, faults=BrokerFaults(change_mind=100)) as broker:
        async with open_floor(database.url, make(broker.url, None)) as floor:
            found = await floor.until_status(await floor.place("no"), "dead")
        assert found["last_error"] == "BAD_REQUEST"
        assert broker.orders == []


def outgoing(**fields: Any) -> OutgoingOrder:
    document = {"symbol": "USDJPY", "intent": "BUY", "qty": "10000", "time_in_force": "DAY", **fields}
    return OutgoingOrder("key-1", document, STAMP, "101-1", STAMP)


def test_alpaca_is_told_amounts_as_text() -> None:
    assert alpaca_order(outgoing(limit_price="1.5", intent="SELL")) == {
        "symbol": "USDJPY",
        "qty": "10000",
        "side": "sell",
        "type": "limit",
        "time_in_force": "day",
        "limit_price": "1.5",
        "client_order_id": "key-1",
    }
    assert alpaca_order(outgoing())["type"] == "market"


def test_oanda_is_told_pairs_and_signed_units() -> None:
    market = oanda_order(outgoing(intent="SELL"))
    assert (market["instrument"], market["units"], market["timeInForce"]) == ("USD_JPY", "-10000", "FOK")
    limit = oanda_order(outgoing(limit_price="145.001"))
    assert (limit["type"], limit["timeInForce"], limit["price"]) == ("LIMIT", "GFD", "145.001")


@pytest.mark.parametrize(
    ("make", "status", "body", "meaning", "code"),
    [
        (
            alpaca,
            403,
            b'{"code": 40310000, "message": "insufficient buying power"}',
            "refused",
            "BAD_REQUEST",
        ),
        (alpaca, 403, b"forbidden", "refused", "UNAUTHORIZED"),
        (alpaca, 422, b'{"code": 40010001, "message": "client_order_id must be unique"}', "duplicate", None),
        (alpaca, 422, b'{"code": 42210000, "message": "qty must be > 0"}', "refused", "BAD_REQUEST"),
        (alpaca, 200, b"{}", "unknown", "UNKNOWN"),
        (alpaca, 504, b"", "unknown", "BROKER_5XX"),
        (oanda, 409, b"{}", "unknown", "UNKNOWN"),
        (oanda, 200, b"{}", "unknown", "UNKNOWN"),
        (oanda, 401, b'{"errorMessage": "Insufficient authorization"}', "refused", "UNAUTHORIZED"),
        (oanda, 429, b"", "limited", "RATE_LIMITED"),
    ],
)
def test_a_status_means_what_the_broker_documents(
    make: Make, status: int, body: bytes, meaning: str, code: str | None
) -> None:
    verdict = make("http://nowhere", None).classify(outgoing(), Reply(status, {}, body))
    assert verdict.meaning == Meaning(meaning)
    if code is not None:
        assert verdict.code == Code(code)


async def test_a_server_that_is_away_is_no_word_about_absence() -> None:
    for make in (alpaca, oanda):
        adapter = make("http://127.0.0.1:1", None)
        found = await adapter.find_order(outgoing())
        assert found.finding is LookupFinding.NO_ANSWER
        await adapter.close()


def test_credentials_come_from_the_environment_and_a_missing_one_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("APCA_API_KEY_ID", "APCA_API_SECRET_KEY", "OANDA_API_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SettingsError, match="APCA_API_KEY_ID and APCA_API_SECRET_KEY"):
        make_brokers({"a": {"adapter": "alpaca"}})
    with pytest.raises(SettingsError, match="OANDA_API_TOKEN"):
        make_brokers({"o": {"adapter": "oanda"}})
    with pytest.raises(SettingsError, match="allowed: http, alpaca, oanda"):
        make_brokers({"x": {"adapter": "telex"}})
    with pytest.raises(SettingsError, match="base_url"):
        make_brokers({"x": {"base_url": "ftp://x", "promise": "nothing"}})
    monkeypatch.setenv("OANDA_API_TOKEN", "secret-of-oanda")
    broker = make_brokers({"o": {"adapter": "oanda", "limits": {"rate_per_second": 50}}})["o"]
    assert broker.limits.rate_per_second == 50
    assert "secret-of-oanda" not in repr(broker)


async def test_no_secret_reaches_an_error() -> None:
    with HostileBroker(
        Promise.WHILE_OPEN, dialect=OandaDialect(), faults=BrokerFaults(lose_request=100)
    ) as broker:
        adapter = oanda(broker.url, None)
        with pytest.raises(Exception, match="orders") as caught:
            await adapter.send_order(outgoing())
        await adapter.close()
    assert "secret-of-oanda" not in str(caught.value)
