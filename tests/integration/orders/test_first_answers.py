"""A broker that answers 200 with an error, or 409 for something else, is not believed to have the order; and
what it said is kept where a person looks."""

from typing import Any

from fencepost.embedded import Database
from fencepost_orders.broker import Promise
from fencepost_orders.http_broker import HttpBroker
from fencepost_orders.http_rules import HttpBrokerConfig
from fencepost_orders.testing._broker_book import Book, BookOrder
from fencepost_orders.testing.broker import HostileBroker
from fencepost_orders.testing.broker_dialect import Dialect, Said
from tests.integration.orders.broker_env import floor_with, open_floor


class SaysError(Dialect):
    """Refuses with a 200, and has no order."""

    def placed(self, order: BookOrder) -> Said:
        return 200, {"status": "error", "message": "insufficient funds"}

    def answer(self, path: str, book: Book) -> Said:
        return 404, {"error": "no such order"}


class MarketClosed(Dialect):
    """Uses 409 for what has nothing to do with duplicates."""

    def placed(self, order: BookOrder) -> Said:
        return 409, {"error": "market closed", "api_key": "secret-of-ours"}


async def test_an_error_in_a_200_is_asked_about_and_never_sent(database: Database) -> None:
    with HostileBroker(Promise.NOTHING, dialect=SaysError()) as broker:
        async with floor_with(database.url, broker) as floor:
            order_id = await floor.place("poor")
            await floor.until("asked about", lambda found: found["asks"] > 0, order_id)
            found = await floor.orders.get(order_id=order_id)
            steps = await floor.orders.history(order_id)
    assert found["status"] != "sent"
    assert found["broker_order_id"] is None
    assert any("insufficient funds" in str(step["detail"]) for step in steps)


async def test_a_first_409_at_a_broker_that_shows_and_promises_nothing_is_parked_with_its_body(
    database: Database,
) -> None:
    with HostileBroker(Promise.NOTHING, dialect=MarketClosed()) as broker:
        config = HttpBrokerConfig(base_url=broker.url, promise=Promise.NOTHING, find_path=None)
        async with open_floor(database.url, HttpBroker(config)) as floor:
            order_id = await floor.place("early")
            found: dict[str, Any] = await floor.until_status(order_id, "parked", "sent")
            steps = await floor.orders.history(order_id)
    assert (found["status"], found["last_error"]) == ("parked", "CONFLICT_PROCESSED")
    said = [step["detail"] for step in steps if step["status_to"] == "unknown"]
    assert "market closed" in str(said)
    assert "market closed" in found["last_answer"]
    assert "secret-of-ours" not in str(steps)
