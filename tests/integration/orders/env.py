"""One connection to a database with a broker: accepts, takes and settles orders as the workers do."""

import itertools
from collections.abc import Mapping
from typing import Any, LiteralString, TypeVar

import psycopg

from fencepost.kernel.call import Call
from fencepost.kernel.drivers import run
from fencepost_orders import _order_calls as order_calls
from fencepost_orders import _order_source as order_source
from fencepost_orders import operator_calls
from fencepost_orders._order_calls import Accepted
from fencepost_orders._order_source import OrderSettlement, Settled, TakenOrder
from fencepost_orders.request import OrderRequest, by_account_and_symbol

T = TypeVar("T")
BROKER = "acme"
RESULT: dict[str, Any] = {
    "broker_order_id": "brk-1",
    "status": "accepted",
    "fills": [],
    "digest": "sha256:" + "a" * 64,
}


def request(key: str = "key-1", **fields: Any) -> OrderRequest:
    return OrderRequest.of(
        {
            "idempotency_key": key,
            "broker": BROKER,
            "account": "main",
            "symbol": "USDJPY",
            "intent": "BUY",
            "qty": "10000",
            "limit_price": "145.001",
            **fields,
        }
    )


class OrdersEnv:
    """Each call is a transaction of its own, unless it stands in a `connection.transaction()` block."""

    def __init__(self, url: str) -> None:
        self.connection: psycopg.Connection[Any] = psycopg.connect(url, autocommit=True)
        self._numbers = itertools.count(1)

    def run(self, call: Call[T]) -> T:
        return run(self.connection, call)

    def declare(self, broker: str = BROKER, **limits: Any) -> None:
        self.run(operator_calls.declare_broker(broker, operator_calls.BrokerLimits(**limits)))

    def accept(self, key: str | None = None, *, keep_seconds: float = 3600, **fields: Any) -> Accepted:
        asked = request(key or f"key-{next(self._numbers)}", **fields)
        return self.run(order_calls.accept(asked, by_account_and_symbol(asked), keep_seconds=keep_seconds))

    def accepted(self, key: str | None = None, **fields: Any) -> int:
        answer = self.accept(key, **fields)
        assert answer.is_new, answer
        assert answer.order_id is not None
        return answer.order_id

    def take(self, owner: str = "worker-1", limit: int = 10, lease_seconds: float = 60) -> list[TakenOrder]:
        return self.run(order_source.take(BROKER, owner, lease_seconds, limit))

    def take_one(self, owner: str = "worker-1") -> TakenOrder:
        (taken,) = self.take(owner)
        return taken

    def ask(self, owner: str = "asker-1", limit: int = 10) -> list[TakenOrder]:
        return self.run(order_source.take_unknown(BROKER, owner, 60, limit))

    def settle(
        self, taken: TakenOrder, outcome: order_source.Outcome, owner: str = "worker-1", **how: Any
    ) -> Settled:
        if outcome == "sent":
            how.setdefault("result", RESULT)
        (settled,) = self.run(
            order_source.settle(BROKER, owner, [OrderSettlement(taken.id, taken.take, outcome, **how)])
        )
        return settled

    def get(self, order_id: int) -> dict[str, Any]:
        found = self.run(order_calls.get(order_id=order_id))
        assert found is not None
        return found

    def status(self, order_id: int) -> str:
        return str(self.get(order_id)["status"])

    def steps(self, order_id: int) -> list[tuple[str | None, str, str | None]]:
        """The audit: from, to and code of every transition."""
        return [
            (row["status_from"], row["status_to"], row["last_error"])
            for row in self.run(order_calls.history(order_id))
        ]

    def rows(self, query: LiteralString, *values: Any) -> list[Mapping[str, Any]]:
        cursor = self.connection.execute(query, values)
        names = [column.name for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def close(self) -> None:
        self.connection.close()
