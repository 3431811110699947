"""The saga of the examples, over all services: it happens once, or every part of it is undone, once.

Orders are settled as the sender does, by the broker's answers that the test gives. No chain runs here: the
test moves transactions through their states as the owner of the signer does.
"""

import importlib
import re
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fencepost.embedded import Database
from fencepost_orders import _order_source as order_source
from fencepost_orders._order_source import OrderSettlement
from fencepost_orders.broker import Promise
from fencepost_orders.brokers import Broker
from fencepost_orders.operator_calls import BrokerLimits
from fencepost_orders.service import Orders
from fencepost_players import _queries as queries
from fencepost_players.requests import CreatePlayer
from fencepost_players.service import Players
from tests.integration.jobs.harness import JobHarness, open_harness
from tests.integration.kernel.caller import Caller
from tests.integration.nonces.operator import CHAIN, LONG, SIGNER, TX_BROADCAST, NonceOperator
from tests.integration.orders.broker_env import adapter_for
from tests.integration.players import env

ROOT = Path(__file__).parents[3]
MAKER = "0x" + "cd" * 20
BUSY_SECONDS = 180
"""Five services in one process: a busy machine takes its time."""


class Shop:
    """The saga on a worker, and what stands on the other side of the services."""

    def __init__(
        self, harness: JobHarness, saga: Any, module: Any, node: NonceOperator, players: Players
    ) -> None:
        self.players = players
        self.harness = harness
        self.fp = harness.fp
        self.saga = saga
        self.module = module
        self.node = node

    async def start(self, player: str = "ann") -> int:
        async with self.fp.transaction() as tx:
            submitted = await self.saga.start(tx, player=player, item="potion")
        return int(submitted.job_id)

    async def until_waits(self, job_id: int, event: str) -> None:
        await self.harness.until(
            f"it waits for {event}",
            lambda: (
                [
                    name
                    for (name,) in self.harness.rows(
                        "select split_part(event, ':', 1) from fencepost.workflow_waits where job_id = %s",
                        (job_id,),
                    )
                ]
                == [event]
            ),
            within=BUSY_SECONDS,
        )

    async def answer_order(self, outcome: Any, *, filled: bool = True) -> None:
        """What the broker says about the order that is due."""
        [taken] = await self.fp.run(order_source.take("acme", "me", 60, 10))
        result = {
            "broker_order_id": "brk-1",
            "status": "filled" if filled else "cancelled",
            "fills": [{"qty": "1"}] if filled else [],
            "digest": "sha256:" + "a" * 64,
            "open": False,
        }
        how: Any = {"result": result} if outcome == "sent" else {"fate": "not_this", "code": "BAD_REQUEST"}
        [settled] = await self.fp.run(
            order_source.settle("acme", "me", [OrderSettlement(taken.id, taken.take, outcome, **how)])
        )
        assert settled.refusal is None

    async def confirm_payment(self) -> None:
        """The owner of the signer takes, signs and sends the transaction, and its block is deep enough."""
        caller, key = self.node.caller, self.node.key
        caller.execute("select fencepost.nonce_tx_take(%s, %s, %s, %s, 10, 10)", *key)
        sent = caller.value("select max(transaction_id) from fencepost.managed_transaction")
        self.node.tx_signed(sent, "0xaa")
        caller.execute(TX_BROADCAST, *key, sent, 1)
        caller.execute("select fencepost.nonce_tx_confirm(%s, %s, %s, %s, %s, '0xaa', '{}')", *key, sent)
        assert await self.module.relay_payments(self.fp) == 1

    async def ended(self, job_id: int) -> str:
        """How the saga ended, when everything that it started has ended too."""
        await self.harness.until_all_ended(within=BUSY_SECONDS)
        return self.harness.job(job_id).state

    async def left(self) -> dict[str, Any]:
        value = self.harness.value
        return {
            "stock": value("select left_over from stock"),
            "orders": self.harness.rows(
                "select request_json ->> 'intent', status from fencepost.outbox_orders order by id"
            ),
            "payments": self.harness.rows("select state from fencepost.managed_transaction"),
            "refunds": value("select count(*) from fencepost.outbox_messages where channel = 'refunds'"),
            "potions": sum(one.count for one in await self.fp.run(queries.inventory("ann"))),
        }


@pytest.fixture
def app(database: Database) -> Iterator[Caller]:
    with closing(Caller(database.url)) as caller:
        yield caller


@pytest.fixture
async def shop(database: Database, app: Caller) -> AsyncIterator[Shop]:
    sys.path.insert(0, str(ROOT / "examples" / "saga"))
    try:
        item_saga: Any = importlib.import_module("item_saga")
    finally:
        sys.path.pop(0)
    with database.connect_admin() as admin:
        admin.execute("create table stock (item text primary key, left_over int not null)")
        admin.execute("grant select, update on stock to fencepost_app")
        admin.execute("insert into stock values ('potion', 2)")
    async with open_harness(database, None) as harness:
        adapter = adapter_for("http://127.0.0.1:9", Promise.FOREVER)
        orders = Orders(harness.fp, {"acme": Broker(adapter, BrokerLimits(rate_per_second=1e6, burst=1e6))})
        players = Players(harness.fp)
        await env.load(harness.fp)
        await players.run(CreatePlayer(player_id="ann"), request_id="enrol")
        node = NonceOperator(app, "a/boot-1", ttl=LONG)
        node.acquire()
        terms = item_saga.Terms("acme", "CARDS", CHAIN, SIGNER, MAKER, 5)
        saga = item_saga.declare(harness.fp, orders, players, terms)
        async with orders.serving(), harness.working():
            yield Shop(harness, saga, item_saga, node, players)


async def test_it_happens_once(shop: Shop) -> None:
    job_id = await shop.start()
    await shop.until_waits(job_id, "order")
    await shop.answer_order("sent")
    await shop.until_waits(job_id, "payment")
    await shop.confirm_payment()

    assert await shop.ended(job_id) == "finished"
    assert await shop.left() == {
        "stock": 1,
        "orders": [("BUY", "sent")],
        "payments": [("CONFIRMED",)],
        "refunds": 0,
        "potions": 1,
    }


@pytest.mark.parametrize(("outcome", "status"), [("dead", "dead"), ("sent", "sent")])
async def test_an_order_that_is_not_filled_gives_the_reservation_back(
    shop: Shop, outcome: str, status: str
) -> None:
    job_id = await shop.start()
    await shop.until_waits(job_id, "order")
    assert (await shop.left())["stock"] == 1
    await shop.answer_order(outcome, filled=False)

    assert await shop.ended(job_id) == "dead"
    assert await shop.left() == {
        "stock": 2,
        "orders": [("BUY", status)],
        "payments": [],
        "refunds": 0,
        "potions": 0,
    }


async def test_a_saga_that_is_cancelled_takes_its_payment_back_and_sells_what_it_bought(shop: Shop) -> None:
    job_id = await shop.start()
    await shop.until_waits(job_id, "order")
    await shop.answer_order("sent")
    await shop.until_waits(job_id, "payment")
    await shop.fp.jobs.cancel(job_id, actor="ann")

    assert await shop.ended(job_id) == "cancelled"
    assert await shop.left() == {
        "stock": 2,
        "orders": [("BUY", "sent"), ("SELL", "queued")],
        "payments": [("CANCELLED",)],
        "refunds": 0,
        "potions": 0,
    }
    undone = shop.harness.rows("select name from fencepost.workflow_undo order by job_id desc")
    assert [name for (name,) in undone] == ["pay", "buy", "reserve"]


async def test_a_grant_that_fails_after_the_payment_asks_for_a_refund(shop: Shop) -> None:
    job_id = await shop.start(player="nobody")
    await shop.until_waits(job_id, "order")
    await shop.answer_order("sent")
    await shop.until_waits(job_id, "payment")
    await shop.confirm_payment()

    assert await shop.ended(job_id) == "dead"
    assert await shop.left() == {
        "stock": 2,
        "orders": [("BUY", "sent"), ("SELL", "queued")],
        "payments": [("CONFIRMED",)],
        "refunds": 1,
        "potions": 0,
    }


def test_the_page_shows_the_code_that_runs_here() -> None:
    page = (ROOT / "docs" / "how-to" / "workflows-saga.md").read_text(encoding="utf-8")
    code = (ROOT / "examples" / "saga" / "item_saga.py").read_text(encoding="utf-8")
    shown = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert f"# item_saga.py\n{code}" in shown, "the whole program"
    flat = re.sub(r"^ +", "", code, flags=re.MULTILINE)
    parts = [block for block in shown if not block.startswith("# ")]
    assert len(parts) >= 3
    assert [block for block in parts if re.sub(r"^ +", "", block, flags=re.MULTILINE) not in flat] == []
