"""The broker of the orders benchmark, in a process of its own: it answers everything after 5 ms.

`python -m bench.orders_broker` prints its address and runs until its standard input ends.
"""

from __future__ import annotations

import sys

from fencepost_orders.broker import Promise
from fencepost_orders.testing.broker import HostileBroker

LATENCY_SECONDS = 0.005


def main() -> None:
    with HostileBroker(Promise.FOREVER, latency_seconds=LATENCY_SECONDS) as broker:
        sys.stdout.write(f"{broker.url}\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main()
