"""What flows write to and read from, in the test's own process: a service that honours keys, and a Kafka."""

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from fencepost.flows.sources.kafka import client_library


@contextmanager
def service() -> Generator[tuple[str, dict[str, Any]]]:
    """Its address, and what it executed: an idempotency key once."""
    taken: dict[str, Any] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            taken.setdefault(self.headers["Idempotency-Key"], _document(body))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Tests are quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        # Its own default is half a second, and every test would wait for it.
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/", taken
        server.shutdown()
        thread.join()


def _document(body: bytes) -> Any:
    """Text comes as it is, everything else as JSON."""
    try:
        return json.loads(body)
    except ValueError:
        return body.decode()


@contextmanager
def kafka() -> Generator[str]:
    """The brokers' addresses. They live as long as the client that made them."""
    keeper = client_library().Producer({"test.mock.num.brokers": 1, "test.mock.broker.rtt": 0})
    brokers = keeper.list_topics(timeout=10).brokers.values()
    yield ",".join(f"{each.host}:{each.port}" for each in brokers)
    keeper.flush()


def committed(brokers: str, topic: str) -> list[str]:
    """Every message that a reader of committed ones gets, up to the end of every partition, in its order."""
    library = client_library()
    consumer = library.Consumer(
        {
            "bootstrap.servers": brokers,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    consumer.assign([library.TopicPartition(topic, partition, 0) for partition in partitions])
    found: list[str] = []
    ends = 0
    while ends < len(partitions):
        for message in consumer.consume(1000, 0.3):
            if message.error() is None:
                found.append(message.value().decode())
            else:
                assert message.error().name() == "_PARTITION_EOF"
                ends += 1
    consumer.close()
    return found
