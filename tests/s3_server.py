"""A real S3 server for a test: SeaweedFS from its wheel, on loopback, in a folder of its own."""

import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from fencepost.flows._bucket import Bucket as FlowBucket
from fencepost_judge._store import Keys
from tests.matrix.ports import free_port
from tests.server_process import hired_server

PROGRAM = Path(sys.executable).parent / "weed"
BUCKET = "judge-data"
ACCESS, SECRET = "test-access-key", "test-secret-key"
SOCKETS = Path("/tmp")  # noqa: S108 - The server puts them there; ours are named by their ports.
FORBIDDEN = 403
PORTS = (
    "master.port",
    "master.port.grpc",
    "volume.port",
    "volume.port.grpc",
    "filer.port",
    "filer.port.grpc",
    "s3.port",
    "s3.port.grpc",
    "admin.port",
    "admin.port.grpc",
    "metricsPort",
    "debug.port",
)


@dataclass(frozen=True)
class S3Server:
    process: subprocess.Popen[bytes]
    ports: Mapping[str, int]

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.ports['s3.port']}"

    def keys(self, secret: str = SECRET) -> Keys:
        return Keys(
            endpoint=self.endpoint,
            region="us-east-1",
            access_key=ACCESS,
            secret_key=secret,
            timeout_seconds=20,
        )

    def options(self, secret: str = SECRET) -> dict[str, str]:
        """What sources and sinks of flows reach it with."""
        return {
            "endpoint": self.endpoint,
            "region": "us-east-1",
            "access_key_id": ACCESS,
            "secret_access_key": secret,
        }

    def bucket(self, url: str) -> FlowBucket:
        return FlowBucket(url, self.options())

    def is_up(self) -> bool:
        """Whether it serves the bucket: 403 to a stranger, where 404 would say that it is not made yet."""
        try:
            return httpx.get(f"{self.endpoint}/{BUCKET}/x", timeout=5).status_code == FORBIDDEN
        except httpx.HTTPError:
            return False

    def stop(self) -> None:
        """With the sockets that it makes in a place of its own choice, named by our ports."""
        self.process.kill()
        self.process.wait()
        for port in self.ports.values():
            for path in SOCKETS.glob(f"seaweedfs-*-grpc-{port}.sock"):
                path.unlink(missing_ok=True)


@contextmanager
def s3_server(folder: Path) -> Generator[S3Server]:
    with hired_server(folder / "s3", _launch) as server:
        yield server


def _launch(place: Path) -> S3Server:
    ports = {name: free_port() for name in PORTS}
    with (place / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                PROGRAM,
                "mini",
                f"-dir={place}",
                "-ip=127.0.0.1",
                "-ip.bind=127.0.0.1",
                "-webdav=false",
                "-admin.ui=false",
                "-master.telemetry=false",
                "-s3.port.iceberg=0",
                "-s3.port.lance=0",
                f"-bucket={BUCKET}",
                f"-s3.localSocket={place / 's3.sock'}",
                f"-filer.localSocket={place / 'filer.sock'}",
                *(f"-{name}={port}" for name, port in ports.items()),
            ],
            cwd=place,
            env={"HOME": str(place), "AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET},
            stdout=subprocess.DEVNULL,
            stderr=log,
        )
    return S3Server(process, ports)
