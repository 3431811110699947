"""A storm of cancels and replacements, at brokers that lose them, make them late and fill orders first, by
workers that are killed and paused.

Afterwards the brokers' own books are compared with what the database says: an order that is reported
cancelled is not filled, a replacement is there once and known, and nothing is placed twice.
"""

import random
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg
import pytest

from fencepost.embedded import Database
from fencepost.embedded._deadline import Deadline
from fencepost.errors import FencepostError
from fencepost.kernel.drivers import run
from fencepost_orders import _change_source as change_source
from fencepost_orders.testing._broker_book import BookOrder
from fencepost_orders.testing.broker import HostileBroker
from fencepost_orders.testing.broker_faults import FOUL
from tests.acceptance.orders.storm import LIVE, VENUES, Storm

ASKED = tuple(venue for venue in VENUES if venue.name in {"forever", "while-open"})
UNSETTLED = "select count(*) from fencepost.orders_changes where settled_at is null"
CHANGES = """
select c.broker, c.kind, c.state, c.client_id, c.change_id, c.replaced_result ->> 'broker_order_id' as old,
       o.broker_order_id, x.status, o.idempotency_key
from fencepost.orders_changes c join fencepost.outbox_orders o on o.id = c.order_id
  left join fencepost.exec_result x on x.outbox_id = o.id
"""


class ChangeStorm(Storm):
    """The storm of orders, with changes of them in between."""

    def change(self, count: int, *, seed: int) -> Counter[str]:
        """Ask for so many changes of any orders; what cannot be asked for now is answered so."""
        chance = random.Random(seed)  # noqa: S311 - A repeatable storm.
        said: Counter[str] = Counter()
        with self._database.connect() as connection:
            connection.autocommit = True
            rows = connection.execute("select id, broker from fencepost.outbox_orders order by id").fetchall()
            for name in self._brokers:
                run(connection, change_source.declare_abilities(name, can_cancel=True, can_replace=True))
            for number in range(count):
                order_id, _ = chance.choice(rows)
                said[self._ask_for(connection, order_id, f"c{number}", chance)] += 1
        return said

    def _ask_for(
        self, connection: psycopg.Connection[Any], order_id: int, key: str, chance: random.Random
    ) -> str:
        try:
            if chance.random() < 0.5:
                return run(connection, change_source.cancel(order_id, key, "ann", "not wanted"))
            changes = {"qty": str(chance.randrange(1, 99))}
            return run(connection, change_source.replace_order(order_id, key, changes, "ann", "x")).outcome
        except FencepostError as error:
            return type(error).__name__

    def wait_until_changed(self, within: float) -> None:
        """Until every order and every change has ended: from now on the brokers fill what they are asked
        about, and no worker waits longer than a moment."""
        for broker in self._brokers.values():
            broker.book.fill_chance = 1.0
        with self._database.connect_admin() as admin:
            admin.autocommit = True

            def is_still() -> bool:
                admin.execute(
                    "update fencepost.orders_change set due_at = fencepost.clock()"
                    " where settled_at is null and state <> 'sending'"
                    " and due_at > fencepost.clock() + interval '3 seconds'"
                )
                rows = admin.execute(LIVE.encode()).fetchone(), admin.execute(UNSETTLED.encode()).fetchone()
                return rows == ((0,), (0,))

            try:
                Deadline(within, "no change is under way").wait(is_still)
            except TimeoutError as error:
                left = admin.execute(
                    "select c.kind, c.state, c.last_error, c.detail, c.requests, c.asks, o.status, c.due_at"
                    " from fencepost.orders_changes c join fencepost.outbox_orders o on o.id = c.order_id"
                    " where c.settled_at is null"
                ).fetchall()
                raise AssertionError(f"still under way: {left}") from error
        for broker in self._brokers.values():
            broker.quiet()

    def breaches(self) -> list[str]:
        """Everything that the books and the database do not agree about."""
        with self._database.connect_admin() as admin:
            changes = admin.execute(CHANGES).fetchall()
            orders = admin.execute(
                "select o.broker, o.idempotency_key, o.status, o.broker_order_id, x.status"
                " from fencepost.outbox_orders o"
                " left join fencepost.exec_result x on x.outbox_id = o.id"
            ).fetchall()
        found = [f"doubled: {key}" for broker in self._brokers.values() for key in broker.doubled()]
        books = {name: by_own_id(broker) for name, broker in self._brokers.items()}
        for name, kind, state, client_id, change_id, old, own_id, _status, _key in changes:
            book = books[name]
            if kind == "cancel" and state == "done" and own_id in book and not book[own_id].is_cancelled:
                found.append(f"reported cancelled and is not: change {change_id}, {book[own_id]}")
            if kind == "replace":
                made = [order for order in book.values() if order.client_id == client_id]
                if len(made) != (1 if state == "done" else 0):
                    found.append(f"replacement {change_id} is {state}, and there {len(made)} times")
                elif state == "done" and book[old].replaced_by != made[0].broker_order_id:
                    found.append(f"replacement {change_id} replaced another order")
        for name, key, status, own_id, reported in orders:
            last = last_of(books[name], key)
            if status == "sent" and last is not None and last.broker_order_id != own_id:
                found.append(f"{key} is {own_id} here, and {last.broker_order_id} at the broker")
            if status == "sent" and reported == "cancelled" and (last is None or not last.is_cancelled):
                found.append(f"{key} is reported cancelled, and is {last}")
            if status == "dead" and last is not None:
                found.append(f"dead while live: {key}")
        return found

    def tell_changes(self) -> str:
        with self._database.connect_admin() as admin:
            rows = admin.execute(
                "select kind, state, last_error, count(*) from fencepost.orders_changes"
                " group by 1, 2, 3 order by 1, 2, 3"
            ).fetchall()
        return "\n".join(str(row) for row in rows)


def by_own_id(broker: HostileBroker) -> Mapping[str, BookOrder]:
    return {order.broker_order_id: order for order in broker.orders}


def last_of(book: Mapping[str, BookOrder], key: str) -> BookOrder | None:
    """The order that the broker has for a key now, after all replacements."""
    order = next((one for one in book.values() if one.client_id == key), None)
    while order is not None and order.replaced_by is not None:
        order = book[order.replaced_by]
    return order


@contextmanager
def brewing_changes(database: Database, *, seed: int) -> Generator[ChangeStorm]:
    with ExitStack() as stack:
        brokers = {
            venue.name: stack.enter_context(
                HostileBroker(
                    venue.promise,
                    faults=FOUL,
                    seed=seed + number,
                    retry_after_seconds=0,
                    late_seconds=0.3,
                    slow_seconds=0.1,
                    lazy_changes=venue.name == "while-open",
                )
            )
            for number, venue in enumerate(ASKED)
        }
        for broker in brokers.values():
            broker.book.fill_chance = 0.05
        yield ChangeStorm(database, brokers, seed=seed)


def storm(database: Database, *, orders: int, changes: int, faults: int, workers: int, seed: int) -> str:
    with brewing_changes(database, seed=seed) as brewing:
        brewing.place(orders)
        with brewing.working(workers):
            said: Counter[str] = Counter()
            for part in range(faults):
                said += brewing.change(changes // faults, seed=seed + part)
                brewing.rage(3, pause_seconds=2.5)
            said += brewing.change(changes // faults, seed=seed + faults)
            brewing.wait_until_changed(600)
        assert brewing.breaches() == [], brewing.tell_changes()
        return f"asked for: {dict(said)}\n{brewing.tell_changes()}\n{brewing.tell(brewing.report())}"


@pytest.mark.timeout(900)
def test_a_small_storm_of_changes_breaks_nothing(database: Database) -> None:
    print(storm(database, orders=40, changes=60, faults=1, workers=2, seed=3))  # noqa: T201


@pytest.mark.full
@pytest.mark.timeout(2400)
def test_a_storm_of_changes_at_full_size_breaks_nothing(database: Database) -> None:
    told = storm(database, orders=1000, changes=3000, faults=10, workers=3, seed=5)
    print(told)  # noqa: T201 - The figures of a storm are read by people.
