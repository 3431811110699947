"""Orders at faulty brokers: the brokers' own records are compared with ours."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, LiteralString

from fencepost import Fencepost
from fencepost.kernel.drivers import run
from fencepost.logs import configure_logging
from fencepost.outbox.settings import OutboxSettings
from fencepost.testing import Breach
from fencepost_orders import _order_calls as order_calls
from fencepost_orders import operator_calls
from fencepost_orders._settings import OrdersSettings
from fencepost_orders.broker import Meaning, Promise
from fencepost_orders.brokers import Broker
from fencepost_orders.http_broker import HttpBroker
from fencepost_orders.http_rules import HttpBrokerConfig, Rule
from fencepost_orders.operator_calls import BrokerLimits
from fencepost_orders.request import OrderRequest, by_account_and_symbol
from fencepost_orders.service import Orders as OrdersService
from fencepost_orders.testing.broker import DEADLINE_HEADER, HostileBroker
from fencepost_orders.testing.broker_faults import FOUL
from fencepost_torture._child_setup import PATIENT, told_to_end
from fencepost_torture._effects import DOUBLED, LOST, in_order
from fencepost_torture._system_environment import Account, ProcessTask, SystemEnvironment

HELPING = 10
SYMBOLS = 32
VALID_SECONDS = 1.0
MARGIN_SECONDS = 0.3
RETRY_MAX = 60
BROKERS = {"forever": Promise.FOREVER, "while-open": Promise.WHILE_OPEN}
LIMITS = BrokerLimits(rate_per_second=1e6, burst=1e6, failures_max=1_000_000)
ENDED: LiteralString = "select count(*) from fencepost.outbox_orders where settled_at is not null"
STATUSES: LiteralString = "select broker, idempotency_key, status from fencepost.outbox_orders"


class OrdersSystem:
    """Senders for two brokers, one that remembers an id for ever and one that forgets it."""

    name = "orders"
    processes = 2
    uses_redis = False
    # A broker measures a request's age by its own clock: ours must not diverge from it.
    bears_clock_jumps = False
    points = (
        "outbox.after_take",
        "outbox.after_delivery",
        "outbox.before_settle",
        "outbox.after_settle",
        "orders.before_send",
        "orders.after_send",
        "orders.after_question",
    )

    def load(self) -> None:
        """Everything is loaded with this module."""

    @contextmanager
    def open(self, env: SystemEnvironment) -> Generator[Mapping[str, Any]]:
        self._asked = 0
        with ExitStack() as stack:
            self._brokers = {
                name: stack.enter_context(
                    HostileBroker(
                        promise,
                        faults=FOUL,
                        seed=env.chance.randrange(1 << 30),
                        retry_after_seconds=0,
                        late_seconds=0.3,
                        slow_seconds=0.1,
                    )
                )
                for name, promise in BROKERS.items()
            }
            with env.database.connect() as connection:
                for name in self._brokers:
                    run(connection, operator_calls.declare_broker(name, LIMITS))
            yield {name: broker.url for name, broker in self._brokers.items()}

    def serve(self, task: ProcessTask) -> None:
        configure_logging(level="error", form="json")
        asyncio.run(_trade(task))

    def ask(self, env: SystemEnvironment, turn: int) -> None:
        for number in range(turn * HELPING, (turn + 1) * HELPING):
            env.insist(partial(_place, env, number))
        self._asked += HELPING

    def account(self, env: SystemEnvironment) -> Account:
        return Account(self._asked, int(env.value(ENDED)))

    def judge(self, env: SystemEnvironment) -> Iterable[Breach]:
        for broker in self._brokers.values():
            broker.quiet()
        books = {name: broker.client_ids() for name, broker in self._brokers.items()}
        for name, broker in self._brokers.items():
            yield from (Breach(DOUBLED, key, f"has two orders at {name}") for key in broker.doubled())
            accepted = [(order.request["symbol"], _number(order.client_id)) for order in broker.orders]
            yield from in_order("order of a key", accepted)
        seen = Counter[str]()
        for name, key, status in env.rows(STATUSES):
            seen[key] += 1
            if status == "sent" and key not in books[name]:
                yield Breach(LOST, key, f"is sent, and {name} has no such order")
            if status == "dead" and key in books[name]:
                yield Breach(LOST, key, f"is dead, and {name} has it")
            if status not in ("sent", "dead"):
                yield Breach(LOST, key, f"is still {status}")
        for key in sorted({_key(number) for number in range(self._asked)} - seen.keys()):
            yield Breach(LOST, key, "was accepted, and is not there")

    def remains(self, env: SystemEnvironment) -> Iterable[Breach]:
        for status, count in env.rows(
            "select status, count(*) from fencepost.outbox_orders where settled_at is null group by status"
        ):
            yield Breach("left behind", "orders", f"{count} are {status}")


def _key(number: int) -> str:
    return f"{_broker_of(number)}:{number}"


def _broker_of(number: int) -> str:
    return list(BROKERS)[number % len(BROKERS)]


def _number(key: str) -> int:
    return int(key.rpartition(":")[2])


def _place(env: SystemEnvironment, number: int) -> None:
    """Place by key: a repeat of an accepted order returns its answer, and is not accepted again."""
    asked = OrderRequest.of(
        {
            "idempotency_key": _key(number),
            "broker": _broker_of(number),
            "symbol": f"S{number // len(BROKERS) % SYMBOLS}",
            "intent": "BUY" if number % 3 else "SELL",
            "qty": str(number + 1),
        }
    )
    with env.asking() as connection:
        run(connection, order_calls.accept(asked, by_account_and_symbol(asked)))


async def _trade(task: ProcessTask) -> None:
    stop = told_to_end()
    async with Fencepost(task.database_url, settings=PATIENT) as fp:
        orders = OrdersService(
            fp,
            {name: Broker(_adapter(url, BROKERS[name]), LIMITS) for name, url in task.more.items()},
            OrdersSettings(margin_seconds=MARGIN_SECONDS, ask_lease_seconds=task.lease_seconds),
            OutboxSettings(
                backoff_base_seconds=0.02,
                idle_seconds=0.05,
                lease_seconds=task.lease_seconds,
                retry_max=RETRY_MAX,
            ),
        )
        async with orders.running():
            await stop.wait()


def _adapter(url: str, promise: Promise) -> HttpBroker:
    return HttpBroker(
        HttpBrokerConfig(
            base_url=url,
            promise=promise,
            request_valid_seconds=VALID_SECONDS,
            deadline_header=DEADLINE_HEADER,
            rules=(Rule(status=400, contains="too old", meaning=Meaning.STALE),),
            connect_seconds=1,
            reply_seconds=1,
        )
    )


ORDERS = OrdersSystem
