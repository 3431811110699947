"""The servers that a cell of the matrix has chosen, for the fixtures: one environment variable each."""

import os
from pathlib import Path

import pytest

from fencepost.embedded import FoundBinaries

POSTGRES = "FENCEPOST_TEST_POSTGRES_BIN"
VALKEY = "FENCEPOST_TEST_VALKEY"
CLUSTER = "FENCEPOST_TEST_VALKEY_CLUSTER"
SENTINEL = "FENCEPOST_TEST_SENTINEL"
PGBOUNCER = "FENCEPOST_TEST_PGBOUNCER"


def use_chosen_servers(patch: pytest.MonkeyPatch) -> None:
    """Every server that a test starts is the chosen one, also those that a test has of its own."""
    if directory := os.environ.get(POSTGRES):
        postgres = FoundBinaries(Path(directory) / "postgres", POSTGRES)
        patch.setattr("fencepost.embedded._postgres.find_postgres", lambda: postgres)
    if path := os.environ.get(VALKEY):
        valkey = FoundBinaries(Path(path), VALKEY)
        patch.setattr("fencepost.embedded._valkey.find_valkey", lambda: valkey)
    if PGBOUNCER in os.environ:
        # For clients without settings of their own, as in most tests; programs read the variable of the cell.
        patch.setattr("fencepost.pool.PREPARE_AFTER", None)


def clustered() -> bool:
    """Whether the shared Redis is a node of a cluster."""
    return CLUSTER in os.environ


def watched() -> bool:
    """Whether the shared Redis is a primary that is found through a Sentinel."""
    return SENTINEL in os.environ


def chosen_pgbouncer() -> Path | None:
    """The pooler that stands between the services and PostgreSQL, if there is one."""
    path = os.environ.get(PGBOUNCER)
    return Path(path) if path else None
