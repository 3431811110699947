"""A Kafka for peers that need one: the mock broker of librdkafka, filled with the records of a file.

It runs in a process of its own, so that its CPU is not counted for any peer; it prints its address when it is
filled, and ends with its input. A partition keeps at most 5 MB, which bounds the number of records.
"""

from __future__ import annotations

import importlib
import sys
from itertools import islice
from pathlib import Path
from typing import Any


def main() -> None:
    kafka: Any = importlib.import_module("confluent_kafka")
    orjson: Any = importlib.import_module("orjson")
    keeper = kafka.Producer({"test.mock.num.brokers": 1, "test.mock.broker.rtt": 0})
    brokers = keeper.list_topics(timeout=30).brokers.values()
    address = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    producer = kafka.Producer({"bootstrap.servers": address, "queue.buffering.max.messages": 1_000_000})
    with Path(sys.argv[1]).open("rb") as lines:
        for number, line in enumerate(islice(lines, int(sys.argv[2]))):
            record = line.rstrip(b"\n")
            producer.produce("orders", record, key=orjson.loads(record)["user"])
            if number % 10_000 == 0:
                producer.poll(0)
    producer.flush()
    sys.stdout.write(address + "\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
