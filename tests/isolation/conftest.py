"""Databases that are fit for interleavings, shared by the scenarios of one test process."""

import contextlib
import uuid
from collections.abc import Generator, Iterator

import pytest

from fencepost.embedded import Database, PostgresServer
from tests.isolation.env import EnvDatabase, IsolationEnv, prepare, prepare_pauses


@pytest.fixture(scope="session")
def env_database(postgres: PostgresServer, template_database: Database) -> Iterator[Database]:
    """Every run begins with a reset, so one database serves them all."""
    with _copy(postgres, template_database) as database:
        prepare(database)
        yield database


@pytest.fixture(scope="session")
def pausing_database(postgres: PostgresServer, template_database: Database) -> Iterator[Database]:
    """The same, where a call can be stopped in its middle."""
    with _copy(postgres, template_database) as database:
        prepare(database)
        prepare_pauses(database)
        yield database


@pytest.fixture
def scratch_database(postgres: PostgresServer, template_database: Database) -> Iterator[Database]:
    """One to plant a bug in. Never behind a pooler: which session waits for which is read by the ids of
    the backends."""
    with _copy(postgres, template_database) as database:
        prepare(database)
        yield database


@contextlib.contextmanager
def _copy(postgres: PostgresServer, template: Database) -> Generator[Database]:
    database = Database(postgres, f"isolation_{uuid.uuid4().hex}")
    database.create(template=template.name)
    yield database
    database.drop()


@pytest.fixture(scope="session")
def residence(env_database: Database) -> Iterator[EnvDatabase]:
    with contextlib.closing(EnvDatabase(env_database)) as residence:
        yield residence


@pytest.fixture(scope="session")
def pausing_residence(pausing_database: Database) -> Iterator[EnvDatabase]:
    with contextlib.closing(EnvDatabase(pausing_database)) as residence:
        yield residence


@pytest.fixture
def env(residence: EnvDatabase) -> IsolationEnv:
    return residence.env()


@pytest.fixture
def pausing_env(pausing_residence: EnvDatabase) -> IsolationEnv:
    return pausing_residence.env()
