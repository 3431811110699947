"""The nonces over HTTP, by real servers: what is answered, and what a wrong node does."""

import socket
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import count

import httpx
import pytest

from fencepost import Fencepost
from fencepost.embedded import Database
from fencepost.embedded._deadline import Deadline
from fencepost.errors import ServerUnavailable
from fencepost_nonces._http_service import make_service
from fencepost_nonces._request_forwarder import FORWARDED
from fencepost_nonces._routing import home_of
from fencepost_nonces._settings import NoncesSettings
from fencepost_server.roles import with_work
from fencepost_server.web._app import make_app
from fencepost_server.web._server import WebServer
from fencepost_server.web.settings import WebSettings

SIGNER = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
PATH = f"/nonces/1/{SIGNER}"
HASH = "0x" + "ab" * 32
# The houses of a pair want one: what is carried from one to the other has its caller's.
TOKEN = "0123456789abcdef"


def free_port() -> int:
    """A node must know its address before it listens. Another process may take it before it does."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def served(
    database: Database,
    settings: NoncesSettings,
    port: int = 0,
    token: str | None = None,
    roles: Sequence[str] = (),
) -> Generator[httpx.Client]:
    fp = Fencepost(database.url)
    app = make_app(
        with_work([make_service(fp, settings)], roles), WebSettings(token=token), opened_first=lambda: fp
    )
    server = WebServer(app, address="127.0.0.1", port=port)
    server.start()
    try:
        shown = {} if token is None else {"authorization": f"Bearer {token}"}
        with httpx.Client(base_url=server.url, timeout=30, headers=shown) as client:
            yield client
    finally:
        server.stop()


@pytest.fixture
def client(database: Database) -> Iterator[httpx.Client]:
    with served(database, NoncesSettings()) as client:
        yield client


def test_a_nonce_is_reserved_used_and_shown(client: httpx.Client) -> None:
    (nonce,) = client.post(f"{PATH}/reserve", json={"request_id": "pay-7"}).json()["nonces"]
    assert (nonce["nonce"], nonce["hold"], nonce["status"]) == (0, 1, "HELD")

    used = client.post(f"{PATH}/0/used", json={"hold": 1, "tx_hash": HASH})

    assert used.json() == {"chain_id": 1, "signer": SIGNER.lower(), "nonce": 0, "status": "CONSUMED"}
    shown = client.get(PATH).json()
    assert (shown["next_nonce"], shown["held"], shown["nonces"][0]["tx_hash"]) == (1, True, HASH)
    assert [one["signer"] for one in client.get("/nonces/signers").json()] == [SIGNER.lower()]
    assert len(client.get("/nonces/nodes").json()) == 1


def test_a_block_is_reserved_with_one_request_and_again_with_the_same(client: httpx.Client) -> None:
    body = {"request_id": "block-1", "count": 5}
    first = client.post(f"{PATH}/reserve", json=body).json()["nonces"]
    again = client.post(f"{PATH}/reserve", json=body).json()["nonces"]

    assert [one["nonce"] for one in first] == [0, 1, 2, 3, 4]
    assert first == again


def test_a_block_is_ended_with_one_request_and_each_is_answered(client: httpx.Client) -> None:
    client.post(f"{PATH}/reserve", json={"request_id": "block-1", "count": 3})
    ended = [
        {"nonce": 2, "hold": 1, "event": "used", "tx_hash": HASH},
        {"nonce": 0, "hold": 1, "event": "recyclable"},
        {"nonce": 1, "hold": 7, "event": "used"},
    ]

    answer = client.post(f"{PATH}/endings", json={"endings": ended}).json()["endings"]

    assert {one["nonce"]: one["refusal"] for one in answer} == {0: None, 1: "stale_attempt", 2: None}
    (again,) = client.post(f"{PATH}/reserve", json={"request_id": "next"}).json()["nonces"]
    assert (again["nonce"], again["hold"]) == (0, 2)


def test_the_signed_way_and_its_refusal(client: httpx.Client) -> None:
    client.post(f"{PATH}/reserve", json={"request_id": "pay-7"})
    assert client.post(f"{PATH}/0/signing", json={"hold": 1}).status_code == 200
    refused = client.post(f"{PATH}/0/recyclable", json={"hold": 1})
    assert (refused.status_code, refused.json()["code"]) == (422, "mismatch")
    signed = client.post(f"{PATH}/0/signed", json={"hold": 1, "tx_hash": HASH, "raw": "0x02aa"})
    assert signed.json()["status"] == "SIGNED"
    assert client.post(f"{PATH}/0/broadcast", json={"hold": 1}).json()["status"] == "BROADCAST"


BAD: list[tuple[str, dict[str, object], str]] = [
    (f"/nonces/0/{SIGNER}/reserve", {"request_id": "r"}, "chain_id"),
    (f"/nonces/one/{SIGNER}/reserve", {"request_id": "r"}, "chain_id"),
    (f"/nonces/1/{SIGNER[:-1]}e/reserve", {"request_id": "r"}, "signer"),
    (f"/nonces/1/{SIGNER}00/reserve", {"request_id": "r"}, "signer"),
    (f"{PATH}/reserve", {}, "request_id"),
    (f"{PATH}/reserve", {"request_id": ""}, "request_id"),
    (f"{PATH}/reserve", {"request_id": "tx:7"}, "request_id"),
    (f"{PATH}/reserve", {"request_id": "ü" * 150}, "request_id"),
    (f"{PATH}/reserve", {"request_id": "r", "count": 0}, "count"),
    (f"{PATH}/reserve", {"request_id": "r", "count": 1001}, "count"),
    (f"{PATH}/reserve", {"request_id": "r", "reqest": 1}, "reqest"),
    (f"{PATH}/endings", {"endings": []}, "endings"),
    (f"{PATH}/-1/used", {"hold": 1}, "nonce"),
    (f"{PATH}/0/used", {"hold": 0}, "hold"),
    (f"{PATH}/0/used", {"hold": 1, "tx_hash": "0xab"}, "tx_hash"),
    (f"{PATH}/0/signed", {"hold": 1, "tx_hash": HASH, "raw": "0xabc"}, "raw"),
]


def test_bad_input_is_400_and_names_the_field(client: httpx.Client) -> None:
    for path, body, field in BAD:
        answer = client.post(path, json=body)
        assert (answer.status_code, answer.json()["field"]) == (400, field), (path, body, answer.text)
    assert client.get("/nonces/signers").json() == []


def test_a_signer_that_no_caller_asked_for_is_404(client: httpx.Client) -> None:
    answer = client.get("/nonces/1/nobody")

    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


@dataclass
class Pair:
    home: httpx.Client
    stranger: httpx.Client
    home_address: str


def queue_node(database: Database, routing: str, stack: ExitStack) -> tuple[str, httpx.Client]:
    """A node that knows its own address; where another process took the port first, at another one."""
    while True:
        port = free_port()
        address = f"http://127.0.0.1:{port}"
        settings = NoncesSettings.model_validate(
            {"mode": "queue", "routing": routing, "node_address": address, "idle_seconds": 0.05}
        )
        with suppress(ServerUnavailable):
            return address, stack.enter_context(served(database, settings, port, TOKEN))


@contextmanager
def queue_pair(database: Database, routing: str) -> Generator[Pair]:
    """Two nodes in queue mode that know of each other; which of them is the signer's home."""
    with ExitStack() as stack:
        clients = dict(queue_node(database, routing, stack) for _ in range(2))
        home = home_of(f"signer:1:{SIGNER.lower()}", clients)
        assert home is not None
        (stranger,) = (client for address, client in clients.items() if address != home)
        # Asked of another signer of that home: a node that does not know yet that there is one serves it
        # by itself.
        others = (f"0x{number:040x}" for number in count(1))
        other = next(one for one in others if home_of(f"signer:1:{one}", clients) == home)
        Deadline(60, "both know of both").wait(
            lambda: (
                "not_owner"
                in stranger.post(
                    f"/nonces/1/{other}/reserve", json={"request_id": "probe"}, headers={FORWARDED: "1"}
                ).text
            )
        )
        yield Pair(clients[home], stranger, home)


def marks(nonce: int, last: str = "used") -> list[tuple[str, dict[str, object]]]:
    """Every route that marks, in an order in which each may happen; the last ends it."""
    ended = {"nonce": nonce, "hold": 1, "event": "used", "tx_hash": HASH}
    ends: dict[str, tuple[str, dict[str, object]]] = {
        "used": (f"{PATH}/{nonce}/used", {"hold": 1, "tx_hash": HASH}),
        "endings": (f"{PATH}/endings", {"endings": [ended]}),
    }
    return [
        (f"{PATH}/{nonce}/signing", {"hold": 1}),
        (f"{PATH}/{nonce}/signed", {"hold": 1, "tx_hash": HASH, "raw": "0x02aa"}),
        (f"{PATH}/{nonce}/broadcast", {"hold": 1}),
        ends[last],
    ]


def test_a_wrong_node_answers_with_the_owner_and_when_to_ask_again(database: Database) -> None:
    with queue_pair(database, "answer") as pair:
        pair.home.post(f"{PATH}/reserve", json={"request_id": "r0"})
        reserve: tuple[str, dict[str, object]] = (f"{PATH}/reserve", {"request_id": "r1"})
        release: tuple[str, dict[str, object]] = (f"{PATH}/0/recyclable", {"hold": 1})
        for path, body in (reserve, release, *marks(0), *marks(0, "endings")):
            answer = pair.stranger.post(path, json=body)

            assert (answer.status_code, answer.json()["code"]) == (409, "not_owner"), path
            assert answer.json()["owner"] == pair.home_address
            assert int(answer.headers["Retry-After"]) >= 1
        shown = pair.home.get(PATH).json()
        assert [(one["nonce"], one["status"]) for one in shown["nonces"]] == [(0, "HELD")]
        assert shown["fencing_token"] == 1, "the home has kept its lease"


def test_a_wrong_node_carries_the_request_home_when_it_may(database: Database) -> None:
    with queue_pair(database, "forward") as pair:
        first = pair.stranger.post(f"{PATH}/reserve", json={"request_id": "r1"})
        again = pair.home.post(f"{PATH}/reserve", json={"request_id": "r1"})

        assert first.status_code == 200, first.text
        assert first.json()["nonces"][0]["nonce"] == again.json()["nonces"][0]["nonce"]
        pair.home.post(f"{PATH}/reserve", json={"request_id": "r2"})
        for path, body in (*marks(0), *marks(1, "endings")):
            carried = pair.stranger.post(path, json=body)
            assert carried.status_code == 200, (path, carried.text)
        shown = pair.home.get(PATH).json()
        assert [one["status"] for one in shown["nonces"]] == ["CONSUMED", "CONSUMED"]
        assert shown["fencing_token"] == 1, "the home has kept its lease"
