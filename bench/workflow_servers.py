"""Servers that peers of workflows need and that Python's registry does not have.

Each is found on the PATH, or installed below the benchmark's directory: Restate's from its npm package,
Temporal's development server by Go from the module proxy. Where neither is possible, the report says why.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.jobs_peers import CannotTakePart
from bench.report import DIRECTORY
from fencepost.embedded._deadline import Deadline
from fencepost.embedded._errors import BinaryMissingError
from fencepost.embedded._identity import ourselves
from fencepost.embedded._process import KeptProcess, StartPlan
from fencepost_nonces.testing.anvil import installed

PROGRAMS = DIRECTORY / "programs"
START_SECONDS_MAX = 60
BUILD_SECONDS_MAX = 3600
RESTATE = "@restatedev/restate-server-linux-x64"
TEMPORAL = "github.com/temporalio/cli/cmd/temporal"
_RESTATE_PORT = re.compile(r'"server.port":(\d+),"server_name":"(http-ingress|admin-api)-server"')
# A stopped worker is noticed as late as by every other library: after three seconds without an answer.
_RESTATE_ENVIRONMENT = {
    "RESTATE_DISABLE_TELEMETRY": "true",
    "RESTATE_LOG_FORMAT": "json",
    "RESTATE_WORKER__INVOKER__HTTP2_KEEP_ALIVE_INTERVAL": "1s",
    "RESTATE_WORKER__INVOKER__HTTP2_KEEP_ALIVE_TIMEOUT": "2s",
}

Addresses = Mapping[str, str]
"""What the roles of a peer are told, beside the databases."""


@dataclass(frozen=True, slots=True)
class ServerProgram:
    """The server of a peer, in one version."""

    name: str
    version: str
    program: str
    install: Callable[[str], Path]
    run: Callable[[Path, Path], Generator[Addresses]]

    @property
    def ready(self) -> bool:
        """Whether it is here already."""
        return self._found() is not None

    def make(self) -> Path:
        """The program, which is installed when it is missing."""
        return self._found() or self.install(self.version).absolute()

    @contextmanager
    def running(self, folder: Path) -> Generator[Addresses]:
        """The server with new data in the folder, while the block runs."""
        yield from self.run(self.make(), folder)

    def _found(self) -> Path | None:
        on_path = shutil.which(self.program)
        kept = sorted(path for path in PROGRAMS.absolute().glob(f"**/{self.program}") if path.is_file())
        return Path(on_path) if on_path else next(iter(kept), None)


def _install_restate(version: str) -> Path:
    if shutil.which("npm") is None:
        raise CannotTakePart("neither restate-server nor npm, which would bring it, is on the PATH")
    try:
        return installed(f"{RESTATE}@{version}", f"node_modules/{RESTATE}/bin/restate-server", PROGRAMS)
    except (BinaryMissingError, subprocess.TimeoutExpired) as error:
        raise CannotTakePart(str(error)[:200]) from error


def _install_temporal(version: str) -> Path:
    go = shutil.which("go")
    if go is None:
        raise CannotTakePart("neither temporal nor go, which would build it, is on the PATH")
    home = PROGRAMS.absolute() / "temporal"
    # The module cache is some gigabytes that nothing else needs: it goes when the program is built.
    cache = home / "cache"
    places = {"GOBIN": home, "GOPATH": cache / "path", "GOCACHE": cache / "build", "GOFLAGS": "-modcacherw"}
    environment = {**os.environ, **{name: str(value) for name, value in places.items()}}
    home.mkdir(parents=True, exist_ok=True)
    command = [go, "install", f"{TEMPORAL}@v{version}"]
    try:
        built = subprocess.run(
            command, env=environment, check=False, capture_output=True, text=True, timeout=BUILD_SECONDS_MAX
        )
    except subprocess.TimeoutExpired as error:
        raise CannotTakePart(f"go did not build it within {BUILD_SECONDS_MAX} s") from error
    finally:
        shutil.rmtree(cache, ignore_errors=True)
    if built.returncode != 0:
        lines = built.stderr.strip().splitlines() or [f"go ended with {built.returncode}"]
        raise CannotTakePart(f"go could not build it: {lines[-1][:200]}")
    return home / "temporal"


def _run_restate(program: Path, folder: Path) -> Generator[Addresses]:
    command: list[str | Path] = [
        program,
        "--base-dir",
        folder / "restate",
        "--no-logo",
        "--listen-mode",
        "tcp",
    ]
    command += ["--use-random-ports", "true", "--bind-ip", "127.0.0.1"]
    log = folder / "restate.log"

    def ports() -> dict[str, str]:
        return {name: port for port, name in _RESTATE_PORT.findall(log.read_text(errors="replace"))}

    with _kept(command, log, lambda: len(ports()) == 2, _RESTATE_ENVIRONMENT):
        found = ports()
        yield {
            "server_url": f"127.0.0.1:{found['http-ingress']}",
            "server_admin_url": f"127.0.0.1:{found['admin-api']}",
        }


def _run_temporal(program: Path, folder: Path) -> Generator[Addresses]:
    address = f"127.0.0.1:{_free_port()}"
    host, _, port = address.partition(":")
    command: list[str | Path] = [program, "server", "start-dev", "--headless", "--ip", host, "--port", port]
    command += ["--db-filename", folder / "temporal.sqlite", "--log-level", "error"]
    # Durable commits, as of all the others.
    command += ["--sqlite-pragma", "journal_mode=wal", "--sqlite-pragma", "synchronous=full"]
    with _kept(command, folder / "temporal.log", lambda: _answers(host, int(port)), {}):
        yield {"server_url": address}


SERVERS = {
    "restate": ServerProgram("Restate", "1.7.12", "restate-server", _install_restate, _run_restate),
    "temporal": ServerProgram("Temporal", "1.5.1", "temporal", _install_temporal, _run_temporal),
}


@contextmanager
def _kept(
    command: Sequence[str | Path], log: Path, listens: Callable[[], bool], environment: Mapping[str, str]
) -> Generator[None]:
    """Runs a server that dies with this process, and enters the block when it listens."""
    log.touch()
    process = KeptProcess(
        StartPlan(command, ourselves(), log, farewell=(signal.SIGKILL,), environment=environment)
    )
    try:
        Deadline(START_SECONDS_MAX, f"{command[0]} listens").wait(lambda: listens() or not process.is_alive())
        if not process.is_alive():
            lines = log.read_text(errors="replace").strip().splitlines() or ["without a word"]
            raise CannotTakePart(f"its server ended: {lines[-1][:200]}")
        yield
    finally:
        process.kill()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True
