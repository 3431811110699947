"""The proxy before a chain answers as a backend that lags would, and its faults come from a seed."""

import json
import urllib.error
import urllib.request
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from fencepost_nonces.testing import RpcProxy, Unevenness

HEAD = 100
BEHIND = Unevenness(blocks_behind=(18, 18))
NEWEST_OF_STALE = HEAD - 18


class Node(BaseHTTPRequestHandler):
    """A chain of a hundred blocks, where block n counts n, and has the transaction 0xn."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        body = json.dumps(
            {"id": asked["id"], "result": self._result(asked["method"], asked["params"])}
        ).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    @staticmethod
    def _result(method: str, params: list[Any]) -> Any:
        match method:
            case "eth_blockNumber":
                return hex(HEAD)
            case "eth_getTransactionCount":
                return hex(HEAD) if params[1] in ("latest", "pending") else params[1]
            case "eth_getBlockByNumber":
                return {"number": hex(HEAD) if params[0] == "latest" else params[0]}
            case "eth_getBlockByHash":
                return {"number": params[0]}
            case "eth_getTransactionReceipt" | "eth_getTransactionByHash":
                return {"blockNumber": None if params[0] == "0xpool" else params[0]}
            case _:
                return "done"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - As http.server calls it.
        """Nothing: a test has its own words."""


@pytest.fixture(scope="module")
def node() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Node) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def ask(url: str, method: str, *params: Any) -> Any:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": list(params)}).encode()
    request = urllib.request.Request(url, body, {"content-type": "application/json"})  # noqa: S310 - Loopback.
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - Loopback.
        return json.loads(answer.read())


@contextmanager
def stale(node: str, method: str) -> Generator[str]:
    with RpcProxy(node, unevenness=BEHIND) as proxy:
        proxy.always_stale = {method}
        yield proxy.url


@pytest.mark.parametrize(
    ("method", "params", "fresh", "lagging"),
    [
        ("eth_blockNumber", (), HEAD, NEWEST_OF_STALE),
        ("eth_getTransactionCount", ("0xa", "latest"), HEAD, NEWEST_OF_STALE),
        ("eth_getTransactionCount", ("0xa", "pending"), HEAD, NEWEST_OF_STALE),
        ("eth_getTransactionCount", ("0xa", hex(80)), 80, 80),
    ],
)
def test_numbers_are_those_of_the_snapshot(
    node: str, method: str, params: tuple[str, ...], fresh: int, lagging: int
) -> None:
    with RpcProxy(node) as proxy:
        assert int(ask(proxy.url, method, *params)["result"], 16) == fresh
    with stale(node, method) as url:
        assert int(ask(url, method, *params)["result"], 16) == lagging


@pytest.mark.parametrize(
    "method",
    ["eth_getBlockByNumber", "eth_getBlockByHash", "eth_getTransactionReceipt", "eth_getTransactionByHash"],
)
def test_what_is_beyond_the_snapshot_is_null(node: str, method: str) -> None:
    with stale(node, method) as url:
        assert ask(url, method, hex(NEWEST_OF_STALE))["result"] is not None
        assert ask(url, method, hex(NEWEST_OF_STALE + 1))["result"] is None
    with RpcProxy(node) as proxy:
        assert ask(proxy.url, method, hex(HEAD))["result"] is not None


def test_the_state_of_a_block_beyond_the_snapshot_is_an_error_and_a_pool_is_shared(node: str) -> None:
    with stale(node, "eth_getTransactionCount") as url:
        answer = ask(url, "eth_getTransactionCount", "0xa", hex(NEWEST_OF_STALE + 1))
        assert answer["error"]["message"] == "header not found"
    with stale(node, "eth_getTransactionByHash") as url:
        assert ask(url, "eth_getTransactionByHash", "0xpool")["result"] is not None
    with stale(node, "eth_getBlockByNumber") as url:
        assert ask(url, "eth_getBlockByNumber", "latest", False)["result"]["number"] == hex(NEWEST_OF_STALE)


def fates(node: str, seed: int) -> list[str]:
    """What fifty calls meet, one after another."""
    met: list[str] = []
    uneven = Unevenness(stale=0.3, lost=0.2, null=0.2, limited=0.2)
    with RpcProxy(node, seed=seed, unevenness=uneven) as proxy:
        for _ in range(50):
            try:
                answer = ask(proxy.url, "eth_getTransactionReceipt", hex(HEAD))
                met.append("null" if answer["result"] is None else "found")
            except urllib.error.HTTPError as error:
                met.append(str(error.code))
            except OSError:
                met.append("lost")
        assert proxy.met["eth_getTransactionReceipt"] == 50
    return met


def test_the_faults_come_from_the_seed(node: str) -> None:
    first = fates(node, 7)

    assert set(first) == {"null", "found", "429", "lost"}
    assert fates(node, 7) == first
    assert fates(node, 8) != first
