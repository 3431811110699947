"""Which process executes what: `serve` nothing, and each role its own work."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fencepost.client import Fencepost
from fencepost.embedded import Database
from fencepost.embedded._deadline import Deadline
from fencepost.errors import InvalidInput
from fencepost.jobs._worker import Worker
from fencepost.kernel.worker import listing
from fencepost.loop import Loop
from fencepost.metrics import Metrics
from fencepost.plugin import load, plugins
from fencepost.server_addresses import ServerAddresses
from fencepost.settings import Settings
from fencepost_server._web_service import web_service
from fencepost_server.web import _background as background
from tests.integration.outbox.receiver import receiving
from tests.waiting_for import found

HAND_OVER = "import sys; from fencepost.cli._app import main; sys.argv[0] = 'fencepost'; main()"
HANG_SECONDS = 240
# What every server does: it deletes what is old, keeps figures and its own membership.
HOUSEKEEPING = {
    "history",
    "idempotency_keys",
    "console-live",
    "console-minutes",
    "judge-custom-runs",
    "judge-errors",
    "judge-languages",
    "mutations",
    "nonces",
}
RELAY = ("fetch", "settlement", "keeper")
WORK = {
    "orders": {"orders.maintenance", "orders.probe"}
    | {f"orders{what}.{part}" for what in ("", ".unknown", ".following", ".changes") for part in RELAY},
    "nonces": {"transactions", "nonces_maintenance"},
    "webhooks": {"webhooks.registry"},
    "judge": {"judge-listing", "a worker of judge"},
}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of the loops and workers that were started; none of them runs."""
    names = set[str]()

    def start(loop: Loop) -> None:
        names.add(loop.name)

    async def run(worker: Worker) -> None:
        queues = worker._handlers.queues  # pyright: ignore[reportPrivateUsage]
        names.add(f"a worker of {', '.join(queues)}")

    monkeypatch.setattr(Loop, "start", start)
    monkeypatch.setattr(Worker, "run", run)
    return names


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, database: Database) -> ServerAddresses:
    """Every service has something that it could do."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OUTBOX_WEBHOOKS", "shop=http://127.0.0.1:9")
    monkeypatch.setenv("ORDERS_BROKERS", '{"acme": {"adapter": "alpaca"}}')
    monkeypatch.setenv("APCA_API_KEY_ID", "key")
    monkeypatch.setenv("APCA_API_SECRET_KEY", "secret")
    monkeypatch.setenv("DATABASE_URL", database.url)
    return ServerAddresses("a test", "", database.admin_url, database.url, database.viewer_url, None)


@contextmanager
def serving(addresses: ServerAddresses, *roles: str) -> Generator[None]:
    server = web_service(Settings.load(), addresses, Metrics(), roles=roles)
    server.start()
    try:
        yield
    finally:
        server.stop()


def executed(started: set[str]) -> set[str]:
    """What is not the housekeeping of a server."""
    return started - HOUSEKEEPING


def test_a_server_executes_nothing_that_it_was_not_told_to(
    configured: ServerAddresses, started: set[str]
) -> None:
    with serving(configured):
        assert executed(started) == set()
        assert started >= HOUSEKEEPING


@pytest.mark.parametrize("role", WORK)
def test_a_server_executes_the_roles_that_it_is_told_and_no_other(
    configured: ServerAddresses, started: set[str], role: str
) -> None:
    if role == "judge" and shutil.which("cc") is None:
        pytest.skip("the boxes need a C compiler: install gcc")
    with serving(configured, role):
        assert executed(started) == WORK[role]


def test_every_role_of_an_installed_service_is_known_here(configured: ServerAddresses) -> None:
    fp = Fencepost(configured.service_url)
    made = [load(str(plugin.http_service))(fp) for plugin in plugins().values() if plugin.http_service]
    services = [background.make_service(fp), *made]
    assert {one.name for one in services if one.working is not None} == set(WORK)


def test_a_role_that_no_service_has_is_refused_by_name(configured: ServerAddresses) -> None:
    with pytest.raises(InvalidInput, match=r"Unknown role 'jugde'. There is: webhooks, .*judge.*, all"):
        web_service(Settings.load(), configured, Metrics(), roles=["jugde"])


@contextmanager
def process(directory: Path, *arguments: str, **environ: str) -> Generator[dict[str, Any]]:
    """A `fencepost ...` in a process of its own: what it announces."""
    command = [sys.executable, "-c", HAND_OVER, *arguments, "--json"]
    inherited = {**os.environ, "METRICS_PORT": "0", **environ}
    with subprocess.Popen(
        command, cwd=directory, env=inherited, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        line = running.stdout.readline()
        try:
            assert line, running.communicate(timeout=HANG_SECONDS)[1]
            yield json.loads(line)
        finally:
            running.send_signal(signal.SIGTERM)
            assert running.wait(HANG_SECONDS) == 0


async def test_a_webhook_is_delivered_by_the_process_that_has_its_role(
    database: Database, tmp_path: Path
) -> None:
    async with receiving(0) as receiver, Fencepost(database.url) as fp:
        settings = {"DATABASE_URL": database.url, "REDIS_URL": "", "OUTBOX_WEBHOOKS": f"shop={receiver.url}"}
        async with fp.transaction() as tx:
            await fp.outbox.put(tx, "shop", {"event": "paid"})
        with process(tmp_path, "run", "webhooks", **settings) as told:
            assert told["roles"] == ["webhooks"]
            await asyncio.to_thread(Deadline(60, "it arrives").wait, lambda: len(receiver.got) >= 1)
    assert receiver.got[0][1] == {"event": "paid"}


def test_a_service_that_only_answers_has_no_role(database: Database, tmp_path: Path) -> None:
    command = [sys.executable, "-c", HAND_OVER, "run", "players"]
    environ = {**os.environ, "DATABASE_URL": database.url}
    ended = subprocess.run(
        command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=HANG_SECONDS, check=False
    )
    assert ended.returncode != 0
    assert "players executes nothing by itself" in ended.stderr


@pytest.mark.skipif(shutil.which("cc") is None, reason="the boxes need a C compiler: install gcc")
async def test_judge_work_judges_and_nothing_else(database: Database, tmp_path: Path) -> None:
    settings = {
        "DATABASE_URL": database.url,
        "REDIS_URL": "",
        "JUDGE_STORE": str(tmp_path / "store"),
        "JUDGE_LANGUAGES": "c",
    }
    with process(tmp_path, "judge", "work", **settings) as told:
        assert told["roles"] == ["judge"]
        async with Fencepost(database.url) as fp:
            (worker,) = await found(
                "it says what it serves",
                lambda: fp.run(listing()),
                lambda seen: any(one.queues for one in seen),
            )
    assert (worker.name, worker.queues, worker.offers) == ("judge", ["judge"], ["language:c"])
