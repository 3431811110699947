"""Orders at a hostile broker: it loses requests and answers, answers late, twice, or with nonsense."""

from __future__ import annotations

from pathlib import Path

from fencepost.cli.demo import DemoContext, DemoPart
from fencepost.outbox.settings import OutboxSettings
from fencepost_orders._settings import OrdersSettings
from fencepost_orders.broker import Promise
from fencepost_orders.brokers import Broker
from fencepost_orders.http_broker import HttpBroker
from fencepost_orders.http_rules import HttpBrokerConfig
from fencepost_orders.operator_calls import BrokerLimits
from fencepost_orders.request import OrderRequest
from fencepost_orders.service import Orders
from fencepost_orders.testing.broker import HostileBroker
from fencepost_orders.testing.broker_faults import FOUL

BROKER = "demo"
SYMBOLS = ("AAPL", "MSFT", "NVDA", "TSLA", "AMZN")
ACCOUNTS = ("demo-1", "demo-2", "demo-3")
REPEATS = 0.2
_QUICK = OutboxSettings(backoff_base_seconds=0.2, idle_seconds=0.2)


async def _run(context: DemoContext) -> None:
    with HostileBroker(Promise.FOREVER, faults=FOUL, seed=context.chance.randrange(1 << 30)) as broker:
        adapter = HttpBroker(
            HttpBrokerConfig(base_url=broker.url, promise=Promise.FOREVER, connect_seconds=1, reply_seconds=1)
        )
        limits = BrokerLimits(rate_per_second=20, burst=10, failures_max=50)
        orders = Orders(
            context.fp, {BROKER: Broker(adapter, limits)}, OrdersSettings(margin_seconds=0.3), _QUICK
        )
        async with orders.running():
            number = 0
            while True:
                number += 1
                request = _request(context, number)
                await orders.place(request)
                if context.chance.random() < REPEATS:
                    # A caller that lost its answer asks again, and gets the same one.
                    await orders.place(request)
                if doubled := broker.doubled():
                    context.say(f"The broker has two orders for {doubled[0]}: this must not happen.")
                await context.pause(0.2, 1.0)


def _request(context: DemoContext, number: int) -> OrderRequest:
    chance = context.chance
    return OrderRequest.of(
        {
            "idempotency_key": f"demo-{context.run}-{number}",
            "broker": BROKER,
            "account": chance.choice(ACCOUNTS),
            "symbol": chance.choice(SYMBOLS),
            "intent": chance.choice(("BUY", "SELL")),
            "qty": str(chance.randrange(1, 100)),
        }
    )


PART = DemoPart(
    name="orders",
    about="orders at a broker that loses, doubles and garbles two requests in five",
    path="/console/orders",
    run=_run,
    counts="""
        select status as name, count(*) from fencepost.outbox_orders where broker = 'demo' group by status
        union all select 'fills', count(*) from fencepost.exec_result r
          join fencepost.outbox_orders o on o.id = r.outbox_id
          where o.broker = 'demo' and jsonb_array_length(r.fills) > 0""",
    others="select exists (select 1 from fencepost.outbox_orders where broker <> 'demo')",
    clean=Path(__file__).parent / "demo.sql",
    channels=("orders:demo",),
)
