"""What reading replies by our own HTTP/1 reader saves over h11, in CPU time of the sending process.

`python -m bench.http_framing` measures three times, each deeper: the framing alone, an exchange with a local
server, and an order through the whole service. CPU time, so that other load on the machine does not count.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median

import h11

from bench import orders_senders
from bench.bench_server import migrated_database
from bench.orders import local_broker
from fencepost import _http1 as http1
from fencepost.gc_tuning import freeze_collected_objects
from fencepost.http_client import HttpClient, Request

ROUNDS = 3
FRAMED = 20_000
EXCHANGED = 10_000
ORDERS = 3_000
ANSWER = (
    b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nDate: Wed, 18 Nov 2026 03:00:00 GMT\r\n"
    b"Server: broker\r\nX-Request-Id: 0f8fad5b-d9cb-469f-a165-70867728950e\r\nContent-Length: 61\r\n\r\n"
    b'{"id":"904837e3-3b76-47ec-b432-046db621571b","status":"new"}\n'
)
HEADERS = {"Content-Type": "application/json", "Idempotency-Key": "order-1", "Authorization": "Bearer 1234"}
BODY = json.dumps(orders_senders.order("order-1", 1)).encode()


class H11Reader:
    """The same reader over h11, with the same bounds and refusals as far as h11 tells them apart."""

    def __init__(self, body_bytes_max: int = http1.BODY_BYTES_MAX) -> None:
        self.reply: http1.ParsedReply | None = None
        self._body_bytes_max = body_bytes_max
        self._connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=http1.HEAD_BYTES_MAX)
        # It refuses a reply without a request. Which one it was matters for HEAD and CONNECT only.
        self._connection.send(h11.Request(method="GET", target="/", headers=[("Host", "x")]))
        self._connection.send(h11.EndOfMessage())
        self._head: h11.Response | None = None
        self._body = bytearray()

    def feed(self, data: bytes) -> None:
        if self.reply is not None:
            raise ValueError("there is more than one answer")
        self._connection.receive_data(data)
        self._read()

    def end(self) -> None:
        self._connection.receive_data(b"")
        self._read()
        if self.reply is None:
            raise ValueError("the answer was cut off")

    def _read(self) -> None:
        try:
            while (event := self._connection.next_event()) is not h11.NEED_DATA:
                match event:
                    case h11.Response():
                        self._head = event
                    case h11.Data():
                        self._body += event.data
                        if len(self._body) > self._body_bytes_max:
                            raise ValueError("the answer is too large")
                    case h11.EndOfMessage():
                        self._finish()
                        return
                    case h11.InformationalResponse(status_code=101) | h11.ConnectionClosed() | h11.PAUSED:
                        raise ValueError("this is no answer")
                    case _:
                        pass
        except h11.RemoteProtocolError as error:
            raise ValueError(str(error)) from error

    def _finish(self) -> None:
        assert self._head is not None
        headers: dict[str, str] = {}
        for name, value in self._head.headers:
            key, text = name.decode(), value.decode("latin-1")
            headers[key] = f"{headers[key]}, {text}" if key in headers else text
        keeps = self._connection.their_state is h11.DONE
        if keeps and self._connection.trailing_data[0]:
            raise ValueError("there is more than one answer")
        self.reply = http1.ParsedReply(self._head.status_code, headers, bytes(self._body), keeps)


def use(framing: str) -> None:
    """From here on, the client of this process reads replies by h11; or by its own reader, as it is.

    Requests are written by our one function for both, which favours h11.
    """
    if framing == "h11":
        http1.ReplyReader = H11Reader  # type: ignore[assignment,misc]


def frame(count: int) -> None:
    address = http1.address_of("http://127.0.0.1:8080/orders")
    for _ in range(count):
        http1.request_bytes("POST", address, HEADERS, BODY)
        reader = http1.ReplyReader()
        reader.feed(ANSWER)
        assert reader.reply is not None
        assert reader.reply.status == 201


async def exchange(url: str, count: int) -> None:
    async with HttpClient() as client:
        request = Request("POST", f"{url}/orders", HEADERS, BODY)
        for _ in range(count // 8):
            await asyncio.gather(*(client.exchange(request) for _ in range(8)))


class _Server(asyncio.Protocol):
    """Answers whatever comes: each request of this benchmark arrives in one piece."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(ANSWER)


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(_Server, "127.0.0.1", 0)
    sys.stdout.write(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)


def child(role: str, framing: str, *rest: str) -> None:
    """One measurement in a process of its own: CPU seconds for each thing that was done."""
    use(framing)
    freeze_collected_objects()
    began = time.process_time()
    if role == "framing":
        frame(FRAMED)
        done = FRAMED
    elif role == "exchange":
        asyncio.run(exchange(rest[0], EXCHANGED))
        done = EXCHANGED
    else:
        database, broker, prefix = rest
        asyncio.run(orders_senders.service(database, broker, ORDERS, prefix, 1))
        done = ORDERS + orders_senders.WARM_UP + 1
    sys.stdout.write(f"{(time.process_time() - began) / done}\n")


def measured(*arguments: str) -> float:
    command = [sys.executable, "-m", "bench.http_framing", *arguments]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def compare(role: str, arguments: Callable[[str], tuple[str, ...]], unit: str) -> None:
    """Both take turns; the figures are the medians."""
    spent: dict[str, list[float]] = {"ours": [], "h11": []}
    for number in range(ROUNDS):
        for framing, seconds in spent.items():
            seconds.append(measured(role, framing, *arguments(f"{framing}-{number}")))
    ours, theirs = median(spent["ours"]), median(spent["h11"])
    sys.stdout.write(
        f"{role}: ours {ours * 1e6:.1f} µs, {1 / ours:,.0f} {unit} per CPU second; "
        f"h11 {theirs * 1e6:.1f} µs, {1 / theirs:,.0f}; h11 costs {theirs / ours - 1:+.0%}\n"
    )
    sys.stdout.flush()


def main() -> None:
    if sys.argv[1:] == ["serve"]:
        asyncio.run(serve())
        return
    if sys.argv[1:]:
        child(*sys.argv[1:])
        return
    compare("framing", lambda _: (), "requests and replies")
    command = [sys.executable, "-m", "bench.http_framing", "serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        compare("exchange", lambda _: (url,), "exchanges")
        server.communicate()
    with migrated_database() as database, local_broker() as broker:
        compare("orders", lambda turn: (database.url, broker, turn), "orders")


if __name__ == "__main__":
    main()
