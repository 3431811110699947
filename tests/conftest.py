"""What every test may ask for: real servers, a fresh database, an empty Redis.

One PostgreSQL and one Valkey serve a whole run (one of each for every xdist worker). A database is a copy of
a template that was migrated once. A test that kills, freezes or wipes a server takes one of its own.
"""

import functools
import gc
import logging
import os
import ssl
import sys
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Any, LiteralString, cast

import hypothesis
import jinja2
import psycopg
import pytest
import structlog
from _pytest.terminal import TerminalReporter
from psycopg import sql

from fencepost.embedded import Database, PostgresServer, ValkeyServer
from fencepost.testing import Clock
from tests.matrix import choice
from tests.matrix.cluster_node import ClusterNode
from tests.matrix.pooler import PooledDatabase, Pooler
from tests.matrix.sentinel import Watched, watched
from tests.reused_databases import Kind, ReusedDatabase, ReusedDatabases, furnish
from tests.scheduling import dealt
from tests.tmp_dirs import server_directory

TEMPLATE = "fencepost_template"

# No test of power cuts uses the shared server, so it need not wait for the disk.
FAST_SETTINGS: dict[str, str | int] = {
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "32MB",
    "max_connections": 200,
    "max_prepared_transactions": 20,
    "log_checkpoints": "off",
}


@pytest.fixture(scope="session", autouse=True)
def chosen_servers() -> Iterator[None]:
    """`make test-matrix` names servers by environment variables; otherwise they are found as usual."""
    with pytest.MonkeyPatch.context() as patch:
        choice.use_chosen_servers(patch)
        yield


@pytest.fixture(scope="session", autouse=True)
def one_trust() -> Iterator[None]:
    """httpx reads all authorities of the world for a client, in 40 ms. Ours speak plain HTTP: once will do.

    It asks with their file alone; a call with other arguments gets a context of its own, as ever.
    """
    make = ssl.create_default_context

    @functools.cache
    def made(file: str) -> ssl.SSLContext:
        return make(cafile=file)

    def shared(*arguments: Any, **options: Any) -> ssl.SSLContext:
        if arguments or options.keys() != {"cafile"}:
            return make(*arguments, **options)
        return made(options["cafile"])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", shared)
        yield


@pytest.fixture(scope="session", autouse=True)
def compiled_templates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """To compile a page takes longer than to show it: once for all applications that the tests start."""
    templating = sys.modules.get("fencepost_server.web.templating")
    if templating is None:
        yield
        return
    cache = jinja2.FileSystemBytecodeCache(str(tmp_path_factory.mktemp("templates")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(templating, "Environment", functools.partial(jinja2.Environment, bytecode_cache=cache))
        yield


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    """What a test or a command in it says of logging is not said of the next test."""
    root, configured = logging.getLogger(), structlog.get_config()
    handlers, level = root.handlers, root.level
    yield
    root.handlers = handlers
    root.setLevel(level)
    structlog.configure(**configured)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """The shared PostgreSQL. Tests leave it running."""
    with PostgresServer(server_directory(), settings=FAST_SETTINGS, ephemeral=True) as server:
        yield server


@pytest.fixture(scope="session")
def template_database(postgres: PostgresServer) -> Database:
    """A migrated database without connections: `database` copies it."""
    from fencepost.kernel.migrate import migrate

    template = Database(postgres, TEMPLATE)
    template.create()
    migrate(template.admin_url)
    template.create_logins()
    _shrink(template)
    return template


def _shrink(template: Database) -> None:
    """Thousands of copies are made of it, file by file: without what its catalogs keep from the migrations.

    The tables of the product stay as they are: a table that was vacuumed is planned for in another way.
    """
    catalogs = "select relname from pg_class where relnamespace = 11 and relkind = 'r' and not relisshared"
    with template.connect_admin() as admin:
        for (name,) in admin.execute(catalogs).fetchall():
            admin.execute(sql.SQL("vacuum (full) pg_catalog.{}").format(sql.Identifier(name)))
    # The next one to connect writes the file from which all later ones read the catalogs' descriptions.
    template.connect_admin().close()


@pytest.fixture(scope="session")
def pooler(postgres: PostgresServer) -> Iterator[Pooler | None]:
    """PgBouncer in front of the shared PostgreSQL, in that cell of the matrix only."""
    program = choice.chosen_pgbouncer()
    if program is None:
        yield None
        return
    with Pooler(program, postgres) as pooler:
        yield pooler


@pytest.fixture(scope="session")
def registrar(postgres: PostgresServer) -> Iterator[psycopg.Connection[Any]]:
    """Makes and drops the databases: to connect for each would take as long as half the copying."""
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        yield connection


@pytest.fixture(scope="session")
def reused_databases(
    template_database: Database, registrar: psycopg.Connection[Any]
) -> Iterator[ReusedDatabases]:
    """Those that serve one test after the other."""
    with closing(ReusedDatabases(template_database, registrar)) as databases:
        yield databases


@pytest.fixture(scope="session")
def user_tables() -> LiteralString:
    """What a database begins with beside the product: a folder whose tests share tables overrides it."""
    return ""


@pytest.fixture
def reused_database(
    request: pytest.FixtureRequest, reused_databases: ReusedDatabases, user_tables: LiteralString
) -> Iterator[ReusedDatabase]:
    """A database of the test's own until it ends, with a settable clock if the test asks for one."""
    asked = request.fixturenames
    reused = reused_databases.take(Kind("clock" in asked, "kept_sessions" in asked, user_tables))
    yield reused
    reused_databases.give_back(reused)


@pytest.fixture
def database(
    request: pytest.FixtureRequest, pooler: Pooler | None, user_tables: LiteralString
) -> Iterator[Database]:
    """A migrated database of the test's own."""
    if pooler is None:
        reused: ReusedDatabase = request.getfixturevalue("reused_database")
        yield reused.database
        return
    # A pooler keeps sessions that it will give to the next client: their end is not that of the test.
    databases: ReusedDatabases = request.getfixturevalue("reused_databases")
    copy = databases.copy()
    if user_tables:
        furnish(copy, user_tables)
    yield PooledDatabase(copy.server, copy.name, pooler)
    databases.drop(copy)


@pytest.fixture
def clock(request: pytest.FixtureRequest, database: Database, pooler: Pooler | None) -> Clock:
    """The time of the test's database, in the test's hand. It goes away with the database."""
    if pooler is None:
        reused: ReusedDatabase = request.getfixturevalue("reused_database")
        if reused.clock is not None:
            return reused.clock
    return Clock(database.admin_url).install()


@pytest.fixture
def session_url(database: Database) -> str:
    """Past any pooler, for a test that ends a backend and expects its client to notice."""
    return Database(database.server, database.name).url


@pytest.fixture(scope="session")
def group() -> Iterator[Watched | None]:
    """A shared primary that a Sentinel watches, in that cell of the matrix only."""
    if not choice.watched():
        yield None
        return
    with watched() as group:
        yield group


@pytest.fixture(scope="session")
def valkey(group: Watched | None) -> Iterator[ValkeyServer]:
    """The shared Valkey. Tests leave it running."""
    if group is not None:
        yield group.primary
        return
    kind = ClusterNode if choice.clustered() else ValkeyServer
    with kind(server_directory(), ephemeral=True) as server:
        yield server


@pytest.fixture
def redis_url(valkey: ValkeyServer, group: Watched | None) -> str:
    """The shared Valkey, empty."""
    valkey.flush()
    return valkey.url if group is None else group.url


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--full",
        action="store_true",
        help="also run the tests that take minutes, and fail when any test is skipped",
    )


def pytest_configure(config: pytest.Config) -> None:
    """The quick form tries the same examples every time; those of --full are other ones in every run."""
    # How long an example takes, and how long it takes to draw, says how busy the machine is.
    unhurried = hypothesis.settings(deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
    hypothesis.settings.register_profile("quick", unhurried, derandomize=True)
    if not config.getoption("--full"):
        hypothesis.settings.load_profile("quick")
    # Workers and children inherit it. No package has a plugin, and each process would look for one in all.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is loaded and collected stays until the end: no need to look through it for garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The last to touch them, so that what is dealt out is in random order already."""
    if workers := getattr(config, "workerinput", {}).get("workercount"):
        items[:] = dealt(items, workers)
    if config.getoption("--full"):
        return
    for item in items:
        if item.get_closest_marker("full"):
            item.add_marker(pytest.mark.skip(reason="takes minutes; run with --full"))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """With --full a skip is a failure: a machine that cannot run a test has not passed it."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or not session.config.getoption("--full"):
        return
    if session.exitstatus == pytest.ExitCode.OK and _skips(reporter):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: TerminalReporter, config: pytest.Config) -> None:
    skips = _skips(terminalreporter)
    if not skips:
        return
    terminalreporter.section("Skipped")
    for reason, tests in sorted(skips.items()):
        terminalreporter.write_line(f"{len(tests)} because: {reason}")
        for test in sorted(tests):
            terminalreporter.write_line(f"    {test}")
    if config.getoption("--full"):
        terminalreporter.write_line("With --full nothing may be skipped: this run has failed.", red=True)


def _skips(reporter: TerminalReporter) -> dict[str, list[str]]:
    """The skipped tests by reason."""
    skips: dict[str, list[str]] = {}
    for report in cast("list[pytest.TestReport]", reporter.stats.get("skipped", [])):
        # A skip's longrepr is the file, the line and "Skipped: reason".
        _, _, reason = cast("tuple[str, int, str]", report.longrepr)
        skips.setdefault(reason.removeprefix("Skipped: "), []).append(report.nodeid)
    return skips
