"""quixstreams: a keyed sum over a topic of a mock broker, state in its RocksDB, changelog topics off.

It runs in an environment of its own, without fencepost. The mock broker cannot report how topics are
configured, so this script answers that request.
"""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

BROKER = Path(__file__).with_name("flows_peer_broker.py")
WAIT_SECONDS = 120
CONFIG = {"retention.ms": "604800000", "retention.bytes": "-1", "cleanup.policy": "delete"}


def main() -> None:
    # They are packages of that environment, which the type checkers here do not see.
    orjson: Any = importlib.import_module("orjson")
    quixstreams: Any = importlib.import_module("quixstreams")
    topics: Any = importlib.import_module("quixstreams.models.topics")
    admin: Any = importlib.import_module("quixstreams.models.topics.admin")
    count = int(sys.argv[2])

    def inspect(self: Any, names: list[str], timeout: float = 30) -> dict[str, Any]:
        found = self.list_topics(timeout=timeout)
        return {
            name: topics.TopicConfig(
                num_partitions=len(found[name].partitions), replication_factor=1, extra_config=CONFIG
            )
            for name in names
        }

    admin.TopicAdmin.inspect_topics = inspect
    totals: dict[Any, int] = {}

    def add(order: Any, state: Any) -> int:
        total = int(state.get("total", 0)) + int(order["amount"])
        state.set("total", total)
        return total

    def keep(total: int, key: Any, *_: Any) -> None:
        totals[key] = total

    command = [sys.executable, str(BROKER), sys.argv[1], str(count)]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as broker,
        tempfile.TemporaryDirectory() as folder,
    ):
        assert broker.stdout is not None
        app = quixstreams.Application(
            broker_address=broker.stdout.readline().strip(),
            consumer_group="bench",
            auto_offset_reset="earliest",
            state_dir=folder,
            loglevel="ERROR",
            auto_create_topics=False,
            use_changelog_topics=False,
        )
        topic = app.topic("orders", key_deserializer="str", value_deserializer="bytes")
        app.dataframe(topic).apply(orjson.loads).apply(add, stateful=True).update(keep, metadata=True)
        began, cpu = time.perf_counter(), time.process_time()
        app.run(count=count, timeout=WAIT_SECONDS)
        figures = {
            "records": count,
            "wall_seconds": time.perf_counter() - began,
            "cpu_seconds": time.process_time() - cpu,
            "memory_mb": most_mb(),
            "total": sum(totals.values()),
        }
        broker.kill()
    sys.stdout.write(json.dumps(figures) + "\n")


def most_mb() -> float:
    """Peak resident memory; the value of `getrusage` starts with the size of the parent process."""
    status = Path("/proc/self/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) / 1024


if __name__ == "__main__":
    main()
