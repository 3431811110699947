"""bytewax: a keyed sum over the lines of a file, in batches, to a sink that keeps the last total of a key.

It runs in an environment of its own, without fencepost. No recovery store is set, which is its fastest
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
    op: Any = importlib.import_module("bytewax.operators")
    testing: Any = importlib.import_module("bytewax.testing")
    dataflow: Any = importlib.import_module("bytewax.dataflow")
    count = int(sys.argv[2])
    with Path(sys.argv[1]).open("rb") as file:
        lines = list(islice(file, count))
    totals: dict[str, int] = {}

    def keyed(line: bytes) -> tuple[str, int]:
        order = orjson.loads(line)
        return order["user"], order["amount"]

    def add(total: int | None, amount: int) -> tuple[int, int]:
        new = (total or 0) + amount
        return new, new

    def keep(step: str, pair: Any) -> None:
        totals[pair[0]] = pair[1]

    def never(pair: Any) -> bool:
        return False

    flow: Any = dataflow.Dataflow("bench")
    stream = op.input("in", flow, testing.TestingSource(lines, batch_size=1000))
    sums = op.stateful_map("sum", op.map("parse", stream, keyed), add)
    op.inspect("out", sums, keep)
    op.output("sink", op.filter("none", sums, never), testing.TestingSink([]))
    began, cpu = time.perf_counter(), time.process_time()
    testing.run_main(flow)
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
