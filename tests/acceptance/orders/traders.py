"""What the worker processes of the storm run: the whole service, for several brokers at once."""

import asyncio
import sys
from typing import Any
from unittest import mock

from fencepost import Fencepost
from fencepost.logs import configure_logging
from fencepost.outbox.settings import OutboxSettings
from fencepost_orders import _sender
from fencepost_orders._settings import OrdersSettings
from fencepost_orders.broker import Promise
from fencepost_orders.brokers import Broker
from fencepost_orders.operator_calls import BrokerLimits
from fencepost_orders.service import Orders
from tests.integration.orders.broker_env import MARGIN_SECONDS, adapter_for

LIMITS = BrokerLimits(rate_per_second=1e6, burst=1e6, failures_max=1_000_000)
LEASE_SECONDS = 2.0


async def trade(url: str, brokers: dict[str, dict[str, Any]], retry_max: int) -> None:
    """Send and ask until told to stop."""
    configure_logging(level="error", form="json")
    async with Fencepost(url) as fp:
        orders = Orders(
            fp,
            {name: _broker(described) for name, described in brokers.items()},
            OrdersSettings(margin_seconds=MARGIN_SECONDS, ask_lease_seconds=2, ask_seconds=2),
            OutboxSettings(
                backoff_base_seconds=0.02,
                idle_seconds=0.05,
                lease_seconds=LEASE_SECONDS,
                retry_max=retry_max,
            ),
        )
        async with orders.running():
            say("trading")
            await asyncio.to_thread(sys.stdin.readline)
    say("stopped")


async def trade_late(*how: Any) -> None:
    """A planted bug: an order leaves however long ago it was taken."""
    with mock.patch.object(_sender, "time", mock.Mock(monotonic=lambda: 0.0)):
        await trade(*how)


def _broker(described: dict[str, Any]) -> Broker:
    promise = Promise(described["promise"])
    return Broker(adapter_for(described["url"], promise, valid_seconds=described["valid_seconds"]), LIMITS)


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()
