"""Servers of a test's own, to be killed, frozen and wiped."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.embedded import PostgresServer, ValkeyServer
from tests.tmp_dirs import server_place


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory that goes away with the test: pytest's own keeps what is inside, and a server is 40 MB."""
    with tempfile.TemporaryDirectory(prefix="fencepost-test-", dir=server_place()) as path:
        yield Path(path)


@pytest.fixture
def own_postgres(directory: Path) -> Iterator[PostgresServer]:
    # A killed process loses nothing that it gave to the kernel: only a power cut needs the disk.
    with PostgresServer(directory / "postgres", settings={"fsync": "off"}) as server:
        yield server


@pytest.fixture
def own_valkey(directory: Path) -> Iterator[ValkeyServer]:
    with ValkeyServer(directory / "valkey", append_only=True) as server:
        yield server
