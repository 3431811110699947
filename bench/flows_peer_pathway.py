"""pathway: a keyed sum over rows of a Python source, committed once a second, to a callback.

It runs in an environment of its own, without fencepost. Nothing is persisted, which is its fastest
configuration.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Any


def main() -> None:
    # They are packages of that environment, which the type checkers here do not see.
    orjson: Any = importlib.import_module("orjson")
    pathway: Any = importlib.import_module("pathway")
    count = int(sys.argv[2])
    with Path(sys.argv[1]).open("rb") as file:
        lines = list(islice(file, count))
    totals: dict[str, int] = {}

    def feed(self: Any) -> None:
        for line in lines:
            order = orjson.loads(line)
            self.next(user=order["user"], amount=order["amount"])

    def keep(key: Any, row: Any, time: int, is_addition: bool) -> None:
        if is_addition:
            totals[row["user"]] = row["total"]

    source = type("Lines", (pathway.io.python.ConnectorSubject,), {"run": feed})
    schema = pathway.schema_from_types(user=str, amount=int)
    began, cpu = time.perf_counter(), time.process_time()
    orders = pathway.io.python.read(source(), schema=schema, autocommit_duration_ms=1000)
    sums = orders.groupby(orders.user).reduce(orders.user, total=pathway.reducers.sum(orders.amount))
    pathway.io.subscribe(sums, on_change=keep)
    pathway.run(monitoring_level=pathway.MonitoringLevel.NONE)
    figures = {
        "records": count,
        "wall_seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - cpu,
        "memory_mb": most_mb(),
        "total": sum(totals.values()),
    }
    sys.stdout.write(json.dumps(figures) + "\n")


def most_mb() -> float:
    """Peak resident memory; the value of `getrusage` starts with the size of the parent process."""
    status = Path("/proc/self/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) / 1024


if __name__ == "__main__":
    main()
