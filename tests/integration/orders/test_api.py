"""Orders over HTTP: what is right is accepted once, what is wrong is named and stored nowhere."""

import json
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import quote

import httpx
import psycopg
import pytest

from fencepost import Fencepost
from fencepost.embedded import Database
from fencepost.errors import SettingsError
from fencepost_orders._api import ACCESS, make_router
from fencepost_orders._settings import OrdersSettings
from fencepost_orders.broker import Promise
from fencepost_orders.brokers import Broker
from fencepost_orders.operator_calls import BrokerLimits
from fencepost_orders.service import Orders
from fencepost_orders.testing.broker import HostileBroker
from fencepost_orders.testing.broker_faults import BrokerFaults
from fencepost_server._callers import Callers
from fencepost_server.console._role import Role
from fencepost_server.web._app import make_app
from fencepost_server.web._server import WebServer
from fencepost_server.web.http_service import HttpService
from fencepost_server.web.settings import WebSettings
from tests.integration.orders.broker_env import QUICK, adapter_for
from tests.integration.orders.env import RESULT, OrdersEnv
from tests.integration.web.tokens import program_token, user_token

ORDER: dict[str, Any] = {
    "idempotency_key": "01JABC",
    "broker": "acme",
    "symbol": "USDJPY",
    "intent": "BUY",
    "qty": 10000,
    "limit_price": 145.001,
}


@pytest.fixture
def broker() -> Iterator[HostileBroker]:
    with HostileBroker(Promise.NOTHING, faults=BrokerFaults(limit=100), retry_after_seconds=3600) as broker:
        yield broker


@contextmanager
def serving(database: Database, broker: HostileBroker, settings: OrdersSettings) -> Generator[httpx.Client]:
    fp = Fencepost(database.url)
    brokers = {"acme": Broker(adapter_for(broker.url, Promise.NOTHING), BrokerLimits())}
    orders = Orders(fp, brokers, settings, QUICK)
    app = make_app(
        [HttpService("orders", make_router(orders), orders.running, access=ACCESS)],
        WebSettings(),
        opened_first=lambda: fp,
        authenticate=Callers(fp).authenticate,
    )
    server = WebServer(app, address="127.0.0.1", port=0)
    server.start()
    with httpx.Client(base_url=server.url) as client:
        yield client
    server.stop()


@pytest.fixture
def http(database: Database, broker: HostileBroker) -> Iterator[httpx.Client]:
    """The service, at a broker that takes nothing for an hour: orders stay where the test puts them."""
    with serving(database, broker, OrdersSettings()) as client:
        yield client


@pytest.fixture
def still(database: Database, broker: HostileBroker) -> Iterator[httpx.Client]:
    """The service on a node that sends nothing: the test takes orders itself, or they are not taken."""
    with serving(database, broker, OrdersSettings(sending=False)) as client:
        yield client


def post(
    http: httpx.Client, body: object = None, *, key: str | None = "01JABC", **fields: Any
) -> httpx.Response:
    content = body if isinstance(body, str | bytes) else json.dumps({**ORDER, **fields})
    headers = {"Content-Type": "application/json"} | ({"Idempotency-Key": key} if key else {})
    return http.post("/orders", content=content, headers=headers)


def stored(database: Database) -> int:
    with database.connect_admin() as admin:
        row = admin.execute(
            "select (select count(*) from fencepost.orders_order) + (select count(*) from fencepost.outbox)"
            " + (select count(*) from fencepost.orders_idempotency_key)"
        ).fetchone()
    assert row is not None
    return int(row[0])


def test_an_order_is_accepted_once_and_a_repeat_is_answered(http: httpx.Client) -> None:
    first = post(http)
    assert first.status_code == 202
    assert first.json()["request_json"]["limit_price"] == "145.001"
    again = post(http, limit_price="145.0010")
    assert (again.status_code, again.headers["Idempotency-Replayed"]) == (200, "true")
    assert again.json()["id"] == first.json()["id"]
    other = post(http, qty=1)
    assert (other.status_code, other.json()["code"]) == (422, "mismatch")

    assert http.get(first.headers["Location"]).json()["idempotency_key"] == "01JABC"
    assert http.get("/orders/by-key/01JABC").json()["id"] == first.json()["id"]
    assert [one["id"] for one in http.get("/orders").json()["orders"]] == [first.json()["id"]]
    assert http.get(f"{first.headers['Location']}/history").json()["history"][0]["status_to"] == "queued"


def test_a_key_that_is_being_accepted_says_when_to_come_back(http: httpx.Client, database: Database) -> None:
    with psycopg.connect(database.url) as other, other.transaction():
        other.execute("select pg_advisory_xact_lock(hashtextextended('orders' || chr(31) || '01JABC', 7411))")
        answer = post(http)
    assert (answer.status_code, answer.json()["code"]) == (409, "in_flight")
    assert int(answer.headers["Retry-After"]) >= 1


WRONG: list[tuple[str, dict[str, Any]]] = [
    ("symbol", {"symbol": 7}),
    ("symbol", {"symbol": ["USDJPY"]}),
    ("qty", {"qty": -1}),
    ("qty", {"qty": "many"}),
    ("limit_price", {"limit_price": 0}),
    ("intent", {"intent": "MAYBE"}),
    ("broker", {"broker": "nobody"}),
    ("expires_at", {"expires_at": "2020-01-01T00:00:00Z"}),
    ("colour", {"colour": "red"}),
]


def test_a_wrong_order_is_named_and_not_stored(http: httpx.Client, database: Database) -> None:
    for field, fields in WRONG:
        answer = post(http, **fields)
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_input"), fields
        assert answer.json()["field"] == field
    assert stored(database) == 0


def test_keys_bodies_and_headers_that_are_wrong_store_nothing(http: httpx.Client, database: Database) -> None:
    long = "k" * 300
    assert post(http, key=long, idempotency_key=long).json()["field"] == "idempotency_key"
    for key in ("another", None):
        answer = post(http, key=key)
        assert (answer.status_code, answer.json()["field"]) == (400, "idempotency_key")
    for body in ("", "{", "[]", '{"qty": NaN}', b"\xff"):
        answer = post(http, body)
        assert (answer.status_code, answer.json()["field"]) == (400, "body")
    large = post(http, json.dumps({**ORDER, "meta": {"note": "x" * 2_000_000}}))
    assert (large.status_code, large.json()["code"]) == (413, "too_large")
    assert stored(database) == 0


def test_a_queued_order_is_cancelled_and_its_key_stays_used(still: httpx.Client) -> None:
    order_id = post(still).json()["id"]
    assert still.post(f"/orders/{order_id}/cancel", json={}).status_code == 400
    done = still.post(f"/orders/{order_id}/cancel", json={"reason": "no more"})
    assert (done.status_code, done.json()["status"], done.json()["last_error"]) == (200, "dead", "CANCELLED")
    assert post(still).json()["status"] == "dead"
    again = still.post(f"/orders/{order_id}/cancel", json={"reason": "no more"})
    assert (again.status_code, again.json()["code"]) == (409, "already_finished")
    new = still.post(f"/orders/{order_id}/resend", json={"expected": "dead", "reason": "yes, please"})
    assert (new.status_code, new.json()["resend_of"]) == (202, order_id)


def test_an_order_whose_request_is_under_way_is_not_cancelled(
    still: httpx.Client, database: Database
) -> None:
    order_id = post(still).json()["id"]
    with closing(OrdersEnv(database.url)) as market:
        assert [taken.id for taken in market.take()] == [order_id]
    late = still.post(f"/orders/{order_id}/cancel", json={"reason": "no more"})
    assert (late.status_code, late.json()["code"]) == (409, "in_flight")
    assert still.get(f"/orders/{order_id}").json()["status"] == "sending"


def test_what_is_not_there_is_not_found(http: httpx.Client) -> None:
    for path in ("/orders/999", "/orders/999/history", "/orders/by-key/none"):
        assert http.get(path).status_code == 404
    assert http.get("/orders/zero").status_code == 400
    assert http.get("/orders?status=lost").json()["field"] == "status"
    for verb in ("halt", "resume"):
        assert http.post(f"/orders/brokers/nobody/{verb}", json={"reason": "x"}).status_code == 404
        slip = http.post(f"/orders/brokers/acme/{verb}", json={"reason": "x", "account": "mian"})
        assert (slip.status_code, slip.json()["code"]) == (404, "not_found")


def test_a_program_places_and_withdraws_and_decides_nothing(still: httpx.Client, database: Database) -> None:
    still.headers["authorization"] = f"Bearer {program_token(database, 'orders')}"
    order_id = post(still).json()["id"]
    assert still.post("/orders/brokers/acme/halt", json={"reason": "stop"}).status_code == 403
    resolve = {"expected": "queued", "outcome": "dead", "reason": "x"}
    assert still.post(f"/orders/{order_id}/resolve", json=resolve).status_code == 403
    assert still.post(f"/orders/{order_id}/cancel", json={"reason": "no more"}).status_code == 200
    assert still.get(f"/orders/{order_id}/history").json()["history"][-1]["actor"] == "checkout@orders"


def test_the_kill_switch_is_pulled_and_seen_over_http(http: httpx.Client, database: Database) -> None:
    seen = http.post("/orders/brokers/acme/halt", json={"reason": "stop"}).json()
    assert seen["brokers"][0]["halted_by"] == "http 127.0.0.1"
    headers = {"authorization": f"Bearer {user_token(database, Role.OPERATOR)}", "x-actor": "ann"}
    seen = http.post("/orders/brokers/acme/halt", json={"reason": "stop"}, headers=headers).json()
    assert seen["brokers"][0]["halted_by"] == "operator@console"
    seen = http.post("/orders/brokers/acme/resume", json={"reason": "go"}).json()
    assert seen["brokers"][0]["halted_at"] is None
    assert http.get("/orders/brokers").json()["brokers"][0]["breaker"] == "closed"


@pytest.mark.parametrize("key", ["a/b", "/leading", "trailing/", "a//b", "strategy/7?x=1#y", "100%25", ".."])
def test_an_order_is_found_by_its_key_whatever_is_in_it(still: httpx.Client, key: str) -> None:
    placed = post(still, key=key, idempotency_key=key)
    assert placed.status_code == 202
    by_option = still.get("/orders/by-key", params={"key": key})
    assert (by_option.status_code, by_option.json().get("id")) == (200, placed.json()["id"])
    if key != "..":
        by_path = still.get("/orders/by-key/" + quote(key, safe=""))
        assert (by_path.status_code, by_path.json().get("id")) == (200, placed.json()["id"])
    assert still.get("/orders/by-key", params={"key": "another/one"}).status_code == 404


def test_a_key_that_begins_as_ours_do_is_refused(still: httpx.Client, database: Database) -> None:
    answer = post(still, key="resend-of-7", idempotency_key="resend-of-7")
    assert (answer.status_code, answer.json()["field"]) == (400, "idempotency_key")
    assert stored(database) == 0


def test_a_request_that_names_no_broker_goes_to_the_default_one(
    database: Database, broker: HostileBroker
) -> None:
    body = {
        "idempotency_key": "01JKEY-ULID-1",
        "symbol": "EURUSD",
        "intent": "SELL",
        "qty": 2500,
        "limit_price": 1.08125,
        "trace_id": "trace-01JT...",
        "meta": {"source": "desk"},
    }
    with serving(database, broker, OrdersSettings(sending=False, default_broker="acme")) as http:
        placed = post(http, json.dumps(body), key="01JKEY-ULID-1")
        assert placed.status_code == 202
        wanted = placed.json()["request_json"]
        assert (wanted["broker"], wanted["qty"], wanted["limit_price"]) == ("acme", "2500", "1.08125")
        same = post(http, json.dumps({**body, "broker": "acme", "qty": "2500"}), key="01JKEY-ULID-1")
        assert same.status_code == 200
        assert "broker" not in _required(http)


def _required(http: httpx.Client) -> list[str]:
    document = http.get("/openapi.json").json()
    schema = document["paths"]["/orders"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    required: list[str] = schema["required"]
    return required


def test_without_a_default_a_request_names_its_broker(still: httpx.Client) -> None:
    nameless = {name: value for name, value in ORDER.items() if name != "broker"}
    answer = post(still, json.dumps(nameless))
    assert (answer.status_code, answer.json()["field"]) == (400, "broker")
    assert "ORDERS_DEFAULT_BROKER" in answer.json()["message"]


def test_a_default_broker_must_be_one_of_the_brokers(database: Database) -> None:
    with pytest.raises(SettingsError, match=r"ORDERS_DEFAULT_BROKER.*Allowed: none"):
        Orders(Fencepost(database.url), {}, OrdersSettings(default_broker="acme"))


def test_an_order_over_a_limit_is_refused_with_the_limit_and_its_number(http: httpx.Client) -> None:
    """Amounts of limits are text: a float is not exact."""
    limits = {"account": "default", "reason": "the rules of the desk", "qty_max": "500"}
    wrong = http.put("/orders/brokers/acme/limits", json={**limits, "qty_max": 0.5})
    assert wrong.status_code == 400, wrong.text
    assert http.put("/orders/brokers/acne/limits", json=limits).status_code == 404
    held = http.put("/orders/brokers/acme/limits", json=limits).json()["limits"]
    assert [(one["account"], one["qty_max"]) for one in held] == [("default", 500)]
    answer = http.post("/orders", json=ORDER, headers={"Idempotency-Key": "01JABC"})
    assert (answer.status_code, answer.json()["code"]) == (409, "over_limit")
    assert "10000" in answer.json()["message"]
    assert "qty_max" in answer.json()["message"]
    assert http.get("/orders/by-key/01JABC").status_code == 404
    priced = http.put("/orders/brokers/acme/prices", json={"prices": {"USDJPY": "145.001"}})
    assert priced.status_code == 204, priced.text
    assert http.put("/orders/brokers/acme/limits", json={**limits, "qty_max": None}).json() == {"limits": []}
    accepted = http.post("/orders", json=ORDER, headers={"Idempotency-Key": "01JABC"})
    assert accepted.status_code == 202


def test_an_order_that_the_broker_cannot_place_is_refused_with_its_field(http: httpx.Client) -> None:
    order = {**ORDER, "stop_price": "144"}
    answer = http.post("/orders", json=order, headers={"Idempotency-Key": "01JABC"})
    assert (answer.status_code, answer.json()["field"]) == (400, "stop_price")


def test_a_change_at_the_broker_needs_a_key_and_is_made_once(still: httpx.Client, database: Database) -> None:
    order_id = post(still).json()["id"]
    with closing(OrdersEnv(database.url)) as market:
        market.settle(market.take_one(), "sent", result={**RESULT, "open": True})
    cancel = {"kind": "cancel", "reason": "not wanted"}
    path = f"/orders/{order_id}/changes"
    assert still.post(path, json=cancel).status_code == 400
    assert still.post(path, json={**cancel, "qty": "1"}, headers={"Idempotency-Key": "c"}).status_code == 400
    for _ in range(2):
        answer = still.post(path, json=cancel, headers={"Idempotency-Key": "c"})
        assert answer.status_code == 202
        assert [(one["kind"], one["state"]) for one in answer.json()["changes"]] == [("cancel", "queued")]
    replace = {"kind": "replace", "reason": "less", "qty": "1"}
    refused = still.post(path, json=replace, headers={"Idempotency-Key": "r"})
    assert (refused.status_code, refused.json()["code"]) == (409, "in_flight")
    halted = still.post("/orders/brokers/acme/halt", json={"reason": "stop", "cancel_open": True}).json()
    assert halted["cancelled"] == {"dead": 0, "requested": 0, "left_open": 0}


def test_a_program_that_places_orders_may_not_change_them_at_the_broker(
    still: httpx.Client, database: Database
) -> None:
    order_id = post(still).json()["id"]
    headers = {"Authorization": f"Bearer {program_token(database, 'orders')}", "Idempotency-Key": "c"}
    body = {"kind": "cancel", "reason": "mine"}
    assert still.post(f"/orders/{order_id}/changes", json=body, headers=headers).status_code == 403
