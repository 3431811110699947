"""Response times of every console page over a million jobs, and the memory of an open live stream."""

from __future__ import annotations

import http.client
import json
import os
import re
import statistics
import time
from collections.abc import Iterator, Sequence
from urllib.parse import quote, urlsplit

from bench.bench_server import migrated_database, server_facts
from bench.console_fixture_data import FixtureData, fill
from bench.report import Goal, Report, Row, machine
from fencepost.client import Fencepost
from fencepost.embedded import Database
from fencepost.kernel.drivers import run as call
from fencepost_server.accounts.secret import new_secret
from fencepost_server.console._http_service import make_service
from fencepost_server.console._role import ACCOUNTS, Role
from fencepost_server.console._settings import ConsoleSettings
from fencepost_server.web._app import make_app
from fencepost_server.web._server import WebServer
from fencepost_server.web.settings import WebSettings

FULL = FixtureData(jobs=1_000_000, orders=100_000, leases=10_000, workflows=1_000_000)
QUICK = FixtureData(jobs=50_000, orders=5_000, leases=1_000, workflows=50_000)
FIRST_BYTE_MS = 200.0
PAGE_BYTES_MAX = 100_000
STREAM_KIB_MAX = 256.0


def pages(stock: FixtureData) -> Iterator[str]:
    """Every page, its filters, and a page far down its list."""
    middle = stock.jobs // 2
    yield from (
        "",
        "?span=day",
        "?span=week",
        "?queue=queue-0",
        "?kind=kind-7&span=week",
        "/queues",
        "/workers",
        "/batches",
        "/batches?open=true",
        "/jobs",
        f"/jobs?before={middle}",
        "/jobs?state=dead",
        "/jobs?state=running",
    )
    yield from (
        "/jobs?state=pending&queue=queue-0",
        "/jobs?kind=kind-7",
        "/jobs?kind=nothing",
        "/jobs?part=kind-7",
        "/jobs?part=nothing",
        "/jobs?state=retrying",
        "/jobs?owner=nothing",
        "/jobs?state=cancelled",
    )
    newest = stock.jobs + stock.workflows
    yield from (
        "/workflows",
        f"/workflows?before={newest - stock.workflows // 2}",
        "/workflows?state=dead",
        "/workflows?state=running&name=name-1",
        "/workflows?state=pending&name=name-3",
        "/workflows?state=cancelled",
        "/workflows?waits=event",
        "/workflows?waits=time&name=nothing",
        "/workflows?tag=import",
        "/workflows?tag=import&state=running",
        f"/workflows?arg=order_id={stock.workflows // 2}",
        "/workflows/preview?how=cancel&waits=event",
        "/workflows/preview?how=replay",
        f"/workflows/{newest}",
        # The one with ten thousand steps.
        f"/workflows/{stock.jobs + 1}",
    )
    yield from (
        f"/jobs/{middle}",
        "/dead",
        "/dead?queue=queue-0&cause=Error7",
        "/dead/preview?cause=Error7",
        "/schedules",
        "/leases",
        "/leases?after=signer:5",
        "/leases?taken_before=1000",
    )
    yield from (
        "/leases/signer:7",
        "/outbox",
        "/outbox?state=parked",
        "/outbox/100",
        "/orders",
        "/orders?status=parked",
    )
    yield from (
        "/orders/100",
        "/orders?status=sent",
        "/players",
        "/players/player-77",
        "/nonces",
        "/nonces?state=recovering",
        "/nonces/1/signer-00007",
        "/nonces/1/signer-00007?sent_before=1000",
        "/flows",
        "/flows/flow-07",
        "/flows/flow-07?dead_after=10&after=flow:flow-07/part/2",
        "/checkpoints",
        "/refusals",
        "/reports",
    )
    yield from ("/account", "/users", "/audit")
    yield from sorted_and_searched(stock)


def sorted_and_searched(stock: FixtureData) -> Iterator[str]:
    """Every long list in another order, a page behind the first of it, and its search."""
    for path, columns in (
        ("/jobs", ("jobs.tries", "-jobs.finished_at", "jobs.queue", "-jobs.error")),
        ("/jobs?state=dead", ("jobs.kind", "-jobs.submitted_at")),
        ("/jobs?queue=queue-0", ("-jobs.state",)),
        ("/jobs?part=kind-7", ("jobs.submitted_at",)),
        ("/workflows", ("-workflows.steps", "workflows.name", "-workflows.error")),
        ("/batches", ("-batches.dead", "batches.name", "-batches.completed_at")),
        ("/schedules", ("-schedules.next_tick", "schedules.kind")),
        ("/leases", ("leases.owner", "-leases.token", "-takeovers.resource")),
        ("/outbox", ("messages.key", "-messages.attempts")),
        ("/orders", ("orders.symbol", "-orders.quantity")),
        ("/players/player-77", ("history.method",)),
        ("/nonces", ("-signers.gaps", "signers.owner_node")),
        ("/nonces/1/signer-00007", ("-transactions.value",)),
        ("/flows/flow-07", ("-tasks.number", "dead.error")),
        ("/checkpoints", ("-checkpoints.state_bytes",)),
        ("/refusals", ("refusals.actor", "-refusals.reason")),
        ("/users", ("-users.made_at",)),
        ("/audit", ("entries.actor", "-entries.subject")),
        ("/webhooks", ("-webhooks.dead",)),
    ):
        for column in columns:
            yield f"{path}{'&' if '?' in path else '?'}sort={column}"
    behind = quote(json.dumps(["queue-1", str(stock.jobs + stock.workflows - 500)]))
    yield f"/jobs?sort=jobs.queue&onward={behind}"
    for path in (
        "/workflows?part=name-7",
        "/workflows?part=nothing",
        "/batches?part=batch-77",
        f"/batches/{stock.orders}?part=nothing",
        "/schedules?part=schedule-77",
        "/leases?part=node-7",
        "/leases?part=nothing",
        "/outbox?part=nothing",
        "/orders?part=nothing",
        "/players?part=nothing",
        "/players/player-77?part=nothing",
        "/nonces?part=signer-0007",
        "/nonces/1/signer-00007?part=nothing",
        "/flows/flow-07?part=nothing",
        "/checkpoints?part=nothing",
        "/refusals?part=nothing",
        "/refusals?kind=late&within=hour",
        "/users?part=user-77",
        "/audit?part=nothing",
        "/webhooks?part=hook-77",
    ):
        yield path
    middle = stock.jobs // 2
    yield from (
        f"/refusals?before={middle}",
        f"/audit?before={middle}",
        f"/batches?before={stock.orders // 2}",
        f"/batches/{stock.orders}",
        f"/batches/{stock.orders}?after={stock.orders // 2}",
        "/schedules?after=schedule-30",
        "/schedules/schedule-30",
        "/users?after=user-50",
        f"/players/player-77?before={stock.orders // 2}",
    )


def run(*, quick: bool) -> Report:
    stock, rounds = (QUICK, 5) if quick else (FULL, 10)
    with migrated_database() as database:
        fill(database, stock)
        fp = Fencepost(database.url)
        part = make_service(fp, database.viewer_url, loopback=True, settings=ConsoleSettings())
        server = WebServer(
            make_app([part], WebSettings(), opened_first=lambda: fp), address="127.0.0.1", port=0
        )
        server.start()
        try:
            token = _token(database)
            rows = by_page([_page(server.url, token, path, rounds) for path in pages(stock)])
            streams = _streams(server.url, token, 100 if quick else 1000)
        finally:
            server.stop()
        slowest = max(float(row["slowest p95 ms"]) for row in rows)
        largest = max(float(row["bytes"]) for row in rows)
        goals = [
            Goal("largest page in bytes", largest, PAGE_BYTES_MAX, at_most=True),
            Goal("slowest page, p95 of the first byte in ms", slowest, FIRST_BYTE_MS, at_most=True),
            Goal("memory of one open stream in KiB", streams, STREAM_KIB_MAX, at_most=True),
        ]
        facts = {
            "jobs": stock.jobs,
            "orders": stock.orders,
            "leases": stock.leases,
            "workflows": stock.workflows,
        }
        return Report("console", quick, rows, goals, machine(**server_facts(database), **facts))


def by_page(rows: Sequence[Row]) -> list[Row]:
    """One row for each page, over its filters, orders, searches and places in the list; the slowest first."""
    of_page: dict[str, list[Row]] = {}
    for row in rows:
        of_page.setdefault(_page_name(str(row["page"])), []).append(row)
    told: list[Row] = []
    for name, together in of_page.items():
        slowest = max(together, key=lambda row: float(row["p95 ms"]))
        query = str(slowest["page"]).partition("?")[2]
        told.append(
            {
                "page": name,
                "addresses": len(together),
                "median ms": round(statistics.median(float(row["median ms"]) for row in together), 1),
                "slowest p95 ms": slowest["p95 ms"],
                "slowest": f"`?{query}`" if query else "",
                "bytes": max(int(row["bytes"]) for row in together),
            }
        )
    return sorted(told, key=lambda row: -float(row["slowest p95 ms"]))


def _page_name(address: str) -> str:
    """The address without what it is about: `/jobs/…` for `/jobs/7?part=x`."""
    first, *more = address.partition("?")[0].strip("/").split("/")
    return f"/{first}/{'preview' if more == ['preview'] else '…'}" if more else f"/{first}"


def _token(database: Database) -> str:
    secret = ACCOUNTS.token_prefix + new_secret()
    with database.connect() as connection:
        call(connection, ACCOUNTS.set_user("bench", Role.ADMIN, None, "bench", by_service=False))
        call(
            connection,
            ACCOUNTS.make_token(secret, "bench", "bench", Role.ADMIN, lifetime_seconds=86_400, actor="test"),
        )
    return secret


def _page(url: str, token: str, path: str, rounds: int) -> Row:
    """One connection, one request after another; the first byte is the status line's."""
    context = urlsplit(url)
    connection = http.client.HTTPConnection(context.hostname or "", context.port or 0)
    times: list[float] = []
    size = 0
    for _ in range(rounds + 1):
        began = time.perf_counter()
        connection.request("GET", f"/console{path}", headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        times.append((time.perf_counter() - began) * 1000)
        size = len(answer.read())
        assert answer.status == 200, (path, answer.status)
    connection.close()
    # The first request warms up the pool and the templates.
    warm = sorted(times[1:])
    return {
        "page": path or "/",
        "median ms": round(statistics.median(warm), 1),
        "p95 ms": round(warm[min(len(warm) - 1, int(len(warm) * 0.95))], 1),
        "bytes": size,
    }


def _streams(url: str, token: str, count: int) -> float:
    """How much the process grows for each open stream, with both ends: here they share one process."""
    context = urlsplit(url)
    before = _resident_kib()
    opened: list[http.client.HTTPConnection] = []
    for _ in range(count):
        connection = http.client.HTTPConnection(context.hostname or "", context.port or 0)
        connection.request("GET", "/api/events", headers={"Authorization": f"Bearer {token}"})
        assert connection.getresponse().status == 200
        opened.append(connection)
    after = _resident_kib()
    for connection in opened:
        connection.close()
    return max(0.0, (after - before) / count)


def _resident_kib() -> float:
    try:
        with open(f"/proc/{os.getpid()}/status", encoding="ascii") as status:  # noqa: PTH123 - Not a file.
            found = re.search(r"VmRSS:\s+(\d+) kB", status.read())
    except OSError:
        return 0.0
    return float(found[1]) if found else 0.0
