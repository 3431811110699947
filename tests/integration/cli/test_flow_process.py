"""A process that runs a flow answers the same questions about its health as any other."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx

from fencepost.cli.exit_codes import ExitCode
from fencepost.embedded import Database

QUIET = """
from fencepost.flows import Flow, IterableSource, ListSink
flow = Flow("quiet").source(IterableSource([])).sink(ListSink())
"""
MAIN = "from fencepost.cli._app import main; main()"


def test_it_lives_and_says_whether_it_can_work(database: Database, tmp_path: Path) -> None:
    (tmp_path / "quiet.py").write_text(QUIET)
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "flows", "run", "quiet", "--json"],
        cwd=tmp_path,
        env={**os.environ, "DATABASE_URL": database.url, "REDIS_URL": "redis://127.0.0.1:1/0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        told = process.stdout.readline()
        with httpx.Client(base_url=json.loads(told or "{}")["url"], timeout=60) as client:
            assert client.get("/healthz").text == "ok\n"
            ready = client.get("/readyz")
            assert (ready.status_code, ready.json()["postgresql"]) == (200, "ok")
            assert "Connection refused" in ready.json()["redis"], "degraded, and said to be"
            assert "fencepost_database_reachable 1.0" in client.get("/metrics").text
            database.drop()
            assert (client.get("/readyz").status_code, client.get("/healthz").status_code) == (503, 200)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == ExitCode.OK
    finally:
        process.kill()
        process.communicate()
