"""A process of compose or of the chart on this machine, with our servers."""

import os
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from fencepost.embedded import Database
from tests.matrix.ports import free_port

TOKEN = "the-http-token-of-a-test"
MAIN = "from fencepost.cli._app import main; main()"
APPLICATION = """
import asyncio

from fencepost import Fencepost, Job
from fencepost.flows import Flow, ListSink
from fencepost.flows.sources.redis_streams import RedisStreams

fp = Fencepost.from_env()
flow = Flow("deployed").source(RedisStreams("in")).sink(ListSink())


@fp.job("mail")
async def send(job: Job) -> None: ...


@fp.job("mail", tries=1)
async def linger(job: Job, seconds: float) -> None:
    await asyncio.sleep(seconds)
"""
ENDS_WITHIN_SECONDS = 60


class Deployed:
    """A process with the command and variables of a deployment, our servers, and a free port of loopback."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        database: Database,
        redis_url: str,
    ) -> None:
        self._command = command
        self.port_name = "HTTP_PORT" if "HTTP_PORT" in environment else "METRICS_PORT"
        self.told_port, self.port = environment.get(self.port_name, ""), str(free_port())
        instead = {
            "DATABASE_URL": database.url,
            "MIGRATION_DATABASE_URL": database.admin_url,
            "CONSOLE_READ_DATABASE_URL": database.viewer_url,
            "REDIS_URL": redis_url,
            "HTTP_ADDRESS": "127.0.0.1",
            "METRICS_ADDRESS": "127.0.0.1",
            self.port_name: self.port,
            "JUDGE_STORE": str(folder / "store"),
            "JUDGE_WORKSPACE": str(folder / "workspace"),
        }
        machine = {key: os.environ[key] for key in ("PATH", "HOME", "LANG", "TMPDIR") if key in os.environ}
        self._environment = {
            **machine,
            **environment,
            **{k: v for k, v in instead.items() if k in environment},
        }
        (folder / "app.py").write_text(APPLICATION)
        self._folder = folder

    @contextmanager
    def running(self) -> Generator[subprocess.Popen[str]]:
        with (self._folder / "log").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", MAIN, *self._command],
                cwd=self._folder,
                env=self._environment,
                stdout=log,
                stderr=log,
                text=True,
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def log(self) -> str:
        return (self._folder / "log").read_text()

    def is_healthy(self, test: Sequence[str]) -> bool:
        """By the command that compose runs inside the container."""
        assert test[:3] == ["CMD", "python", "-c"]
        assert f":{self.told_port}/" in test[3], "it asks where the process listens"
        program = test[3].replace(f":{self.told_port}/", f":{self.port}/")
        return not subprocess.run(
            [sys.executable, "-c", program], capture_output=True, check=False
        ).returncode

    def answers(self, path: str) -> bool:
        """Whether a probe of Kubernetes is content."""
        try:
            return self.ask(path).is_success
        except httpx.TransportError:
            return False

    def ask(self, path: str, **headers: str) -> httpx.Response:
        return httpx.get(f"http://127.0.0.1:{self.port}{path}", headers=headers, timeout=30)
