"""A storm: thousands of orders at brokers that do their worst, by workers that are killed and paused.

Afterwards the brokers' own books are compared with what the database says of every order.
"""

import random
import time
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import psycopg

from fencepost.embedded import Database
from fencepost.embedded._deadline import Deadline
from fencepost.kernel.drivers import run
from fencepost.testing import Child
from fencepost.webhooks import calls as webhooks
from fencepost_orders import _order_calls as order_calls
from fencepost_orders import operator_calls
from fencepost_orders.broker import Promise
from fencepost_orders.request import OrderRequest, by_account_and_symbol
from fencepost_orders.testing.broker import HostileBroker
from fencepost_orders.testing.broker_faults import FOUL
from tests.acceptance.orders.traders import LIMITS, trade
from tests.integration.orders.broker_env import VALID_SECONDS

BATCH = 200
SYMBOLS = 40
LIVE = (
    "select count(*) from fencepost.outbox_orders where settled_at is null and status <> 'parked'"
    " and coalesce(ready, true)"
)
BEHIND = (
    "select count(*) from fencepost.outbox_orders o where o.status in ('queued', 'failed') and not o.ready"
    " and not exists (select from fencepost.outbox_orders h where h.status = 'parked' and h.broker = o.broker"
    " and h.order_key = o.order_key)"
)
RETRY_MAX = 30
# Orders of which another number of events was put than transitions are in the audit, or whose events are not
# numbered from 1 on.
MISTOLD = """
with told as (
    select (payload -> 'order' ->> 'id')::bigint as id, split_part(payload ->> 'event', '.', 2) as event,
           (payload ->> 'sequence')::integer as sequence
    from fencepost.outbox_messages where channel = 'audit'
), counted as (
    select outbox_id as id, status_to as event, 1 as due, 0 as told from fencepost.outbox_audit
    where status_to in ('sent', 'dead', 'parked') and status_from is distinct from status_to
    union all select id, event, 0, 1 from told where event in ('sent', 'dead', 'parked')
)
select distinct o.broker, o.idempotency_key from (
    select id from counted group by id, event having sum(due) <> sum(told)
    union all
    select id from told group by id having max(sequence) <> count(*) or count(distinct sequence) <> count(*)
) wrong join fencepost.outbox_orders o using (id)
"""


@dataclass(frozen=True)
class Venue:
    """A broker of the storm. Without a validity nothing can be proved by absence."""

    name: str
    promise: Promise
    valid_seconds: float | None = VALID_SECONDS


VENUES = (
    Venue("forever", Promise.FOREVER),
    Venue("window", Promise.WINDOW),
    Venue("while-open", Promise.WHILE_OPEN),
    Venue("nothing", Promise.NOTHING),
    Venue("blind", Promise.NOTHING, None),
)


@dataclass
class Report:
    """What became of every order of one venue."""

    statuses: Counter[str] = field(default_factory=Counter[str])
    doubled: list[str] = field(default_factory=list[str])
    lost: list[str] = field(default_factory=list[str])
    dead_but_live: list[str] = field(default_factory=list[str])
    mistold: list[str] = field(default_factory=list[str])

    @property
    def breaches(self) -> list[str]:
        return [
            *(f"doubled: {key}" for key in self.doubled),
            *(f"lost: {key}" for key in self.lost),
            *(f"dead while live: {key}" for key in self.dead_but_live),
            *(f"events differ from the audit: {key}" for key in self.mistold),
        ]


class Storm:
    """Everything that takes part, from the first order to the report."""

    def __init__(self, database: Database, brokers: Mapping[str, HostileBroker], *, seed: int) -> None:
        self._database = database
        self._brokers = brokers
        self._chance = random.Random(seed)  # noqa: S311 - A repeatable storm.
        self._children: list[Child] = []
        self._stack = ExitStack()
        self._planned_faults: Counter[str] = Counter()

    def place(self, count: int) -> None:
        """Orders for every venue, before a worker starts."""
        with self._database.connect() as connection:
            run(connection, webhooks.add("audit", None, ["orders"], "the storm"))
            for name in self._brokers:
                run(connection, operator_calls.declare_broker(name, LIMITS))
            connection.commit()
            for number in range(count):
                for name in self._brokers:
                    asked = _order(name, number)
                    assert run(connection, order_calls.accept(asked, by_account_and_symbol(asked))).is_new
                if number % BATCH == 0:
                    connection.commit()

    @contextmanager
    def working(self, workers: int) -> Generator[None]:
        """So many worker processes, while the block runs."""
        with self._stack:
            self._children = [self._child() for _ in range(workers)]
            for child in self._children:
                child.line("trading", within=60)
            yield

    def rage(self, planned_faults: int, *, pause_seconds: float) -> None:
        """Kill workers and start others, pause them for longer than their takes last, restart brokers."""
        for fault in range(planned_faults):
            self._wait(self._chance.uniform(0.1, 0.5))
            which = self._chance.randrange(len(self._children))
            match fault % 3:
                case 0:
                    self._planned_faults["killed"] += 1
                    self._children[which].kill()
                    self._children[which] = self._child()
                    self._children[which].line("trading", within=60)
                case 1:
                    self._planned_faults["paused"] += 1
                    self._children[which].stop()
                    self._wait(self._chance.uniform(0.5, 1.5) * pause_seconds)
                    self._children[which].resume()
                case _:
                    self._planned_faults["brokers restarted"] += 1
                    self._chance.choice(list(self._brokers.values())).restart(0.1)

    def wait_until_still(self, within: float) -> None:
        """Until everything has ended, but for what is parked and what stands behind it."""
        with self._database.connect_admin() as admin:
            admin.autocommit = True

            def is_still() -> bool:
                return _number(admin, LIVE) + _number(admin, BEHIND) == 0

            try:
                Deadline(within, "no order is under way").wait(is_still)
            except TimeoutError as error:
                raise AssertionError(f"still under way: {_states(admin)}") from error
        for broker in self._brokers.values():
            broker.quiet()

    def report(self) -> dict[str, Report]:
        with self._database.connect_admin() as admin:
            rows = admin.execute(
                "select broker, idempotency_key, status from fencepost.outbox_orders"
            ).fetchall()
            mistold = admin.execute(MISTOLD).fetchall()
        reports = {name: Report(doubled=broker.doubled()) for name, broker in self._brokers.items()}
        books = {name: broker.client_ids() for name, broker in self._brokers.items()}
        for name, key, status in rows:
            report = reports[name]
            report.statuses[status] += 1
            if status == "sent" and key not in books[name]:
                report.lost.append(key)
            if status == "dead" and key in books[name]:
                report.dead_but_live.append(key)
        for name, key in mistold:
            reports[name].mistold.append(key)
        return reports

    def _child(self) -> Child:
        described = {
            venue.name: {
                "url": self._brokers[venue.name].url,
                "promise": venue.promise.value,
                "valid_seconds": venue.valid_seconds,
            }
            for venue in VENUES
            if venue.name in self._brokers
        }
        return self._stack.enter_context(Child(trade, self._database.url, described, RETRY_MAX))

    def tell(self, reports: Mapping[str, Report]) -> str:
        """The figures of the storm, for people."""
        troubles = sum((broker.broker_faults for broker in self._brokers.values()), Counter[str]())
        lines = [
            f"{name}: {dict(report.statuses)}, breaches {len(report.breaches)}"
            for name, report in reports.items()
        ]
        return "\n".join(
            [
                *lines,
                f"done to workers and brokers: {dict(self._planned_faults)}",
                f"to requests: {dict(troubles)}",
            ]
        )

    def _wait(self, seconds: float) -> None:
        # Real time: the workers are processes whose takes run out by the clock, and faults come between.
        time.sleep(seconds)


@contextmanager
def brewing(database: Database, *, seed: int) -> Generator[Storm]:
    """A storm over every venue."""
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
                )
            )
            for number, venue in enumerate(VENUES)
        }
        yield Storm(database, brokers, seed=seed)


def _order(broker: str, number: int) -> OrderRequest:
    return OrderRequest.of(
        {
            "idempotency_key": f"{broker}-{number}",
            "broker": broker,
            "symbol": f"S{number % SYMBOLS}" if broker != "blind" else f"S{number}",
            "intent": "BUY" if number % 2 else "SELL",
            "qty": str(number + 1),
        }
    )


def _number(admin: psycopg.Connection[tuple[object, ...]], query: str) -> int:
    row = admin.execute(query.encode()).fetchone()
    assert row is not None
    return int(str(row[0]))


def _states(admin: psycopg.Connection[tuple[object, ...]]) -> list[tuple[object, ...]]:
    return admin.execute(
        "select broker, status, last_error, count(*), max(retry_count), max(asks)"
        " from fencepost.outbox_orders"
        " where settled_at is null group by 1, 2, 3"
    ).fetchall()
