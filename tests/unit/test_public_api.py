"""The export list is what we promise, and both forms of the client offer the same."""

import ast
import importlib
import inspect
import subprocess
import sys
from typing import Any

import pytest

import fencepost
from fencepost import Fencepost, SyncFencepost, SyncTransaction, Transaction, errors

# A name that is added here is a promise; one that is taken away breaks a user's program.
PROMISED = {
    "AlreadyFinished",
    "Backpressure",
    "BatchResult",
    "Bury",
    "Call",
    "Cancel",
    "Cancelled",
    "ChildJob",
    "ChildJobFailed",
    "Chunk",
    "ChunkMember",
    "Claim",
    "Duplicate",
    "Duration",
    "Ended",
    "EventTimeout",
    "Fencepost",
    "FencepostError",
    "FoundJob",
    "Graph",
    "Handler",
    "HeldLease",
    "InFlight",
    "IndeterminateCommit",
    "InvalidInput",
    "Job",
    "JobFailed",
    "JobOutcome",
    "JobSettings",
    "Lease",
    "LeaseExpired",
    "MigrationFailed",
    "Mismatch",
    "NotFound",
    "NotOwner",
    "NotRunning",
    "PermanentError",
    "PolledJob",
    "Rate",
    "ReadAge",
    "Refusal",
    "RefusedTransaction",
    "Retry",
    "Rewound",
    "SchemaError",
    "SchemaMissing",
    "SchemaTooNew",
    "SchemaTooOld",
    "ServerUnavailable",
    "Settings",
    "SettingsError",
    "Snooze",
    "StaleAttempt",
    "Submission",
    "Submitted",
    "StepNameTaken",
    "SyncFencepost",
    "SyncTransaction",
    "SyncWorkflow",
    "TooOld",
    "Transaction",
    "Unique",
    "Workflow",
    "WorkflowHandler",
    "WrongIsolation",
    "digest",
    "exponential",
    "owner_name",
    "previous",
    "run",
    "task",
}


def test_what_is_exported_is_what_is_promised() -> None:
    assert set(fencepost.__all__) == PROMISED


def test_the_export_list_has_no_name_twice_and_is_in_order() -> None:
    assert fencepost.__all__ == sorted(set(fencepost.__all__), key=lambda n: (n[0].islower(), n))


@pytest.mark.parametrize("name", sorted(PROMISED))
def test_every_promised_name_is_there_and_documented(name: str) -> None:
    value = getattr(fencepost, name)

    assert inspect.getdoc(value)


def test_every_error_is_exported() -> None:
    defined = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.FencepostError)
    }

    assert defined <= PROMISED


def test_nothing_but_the_promised_names_and_modules_is_visible() -> None:
    importlib.import_module("fencepost.kernel")
    visible = {name for name in vars(fencepost) if not name.startswith("_")}

    assert [n for n in visible - PROMISED if not inspect.ismodule(getattr(fencepost, n))] == []


def run_alone(code: str) -> str:
    """What a fresh interpreter prints."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_importing_the_package_loads_no_driver() -> None:
    """A program that only catches our errors does not wait for drivers that it does not use."""
    heavy = {"psycopg", "psycopg_pool", "pydantic", "redis", "structlog", "prometheus_client"}
    code = "import sys, fencepost; fencepost.Refusal; print(*sys.modules)"

    assert heavy.isdisjoint(run_alone(code).split())


def test_a_client_that_runs_no_worker_loads_neither_redis_nor_flows_nor_what_renders_logs() -> None:
    """redis-py brings the SDK of OpenTelemetry, structlog brings rich: half of the time to start."""
    heavy = {"redis", "opentelemetry", "structlog", "rich", "yaml", "fencepost.flows"}
    heavy |= {
        "fencepost.jobs._worker",
        "fencepost.redis_streams.stream",
        "fencepost.redis_streams.connection",
    }
    code = "import sys, fencepost; fencepost.Fencepost('postgresql:///x').sync(); print(*sys.modules)"

    assert heavy.isdisjoint(run_alone(code).split())


def test_a_star_import_brings_every_promised_name() -> None:
    code = "from fencepost import *; print(*(name for name in dir() if not name.startswith('_')))"

    assert set(run_alone(code).split()) == PROMISED


def test_a_name_that_is_not_there_is_missed_as_usual() -> None:
    with pytest.raises(AttributeError, match="module 'fencepost' has no attribute 'Nothing'"):
        getattr(fencepost, "Nothing")  # noqa: B009 - A checker would refuse it, written as an attribute.
    assert set(dir(fencepost)) >= PROMISED


def test_what_comes_late_is_what_the_type_checkers_see() -> None:
    tree = ast.parse(inspect.getsource(fencepost))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]

    assert {alias.name: node.module for node in imports for alias in node.names} == vars(fencepost)["_HOMES"]


def offered(thing: object) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


ONE_FORM_ONLY = {
    "fp": {
        "from_env",
        "sync",
        "redis_url",
        "job_settings",
        "handlers",
        "job",
        "cron",
        "every",
        "retention",
        "on_start",
        "on_error",
        "on_finish",
        "middleware",
        "flows",
        "graph_runner",
        "workflow",
        "workflow_runtime",
        "transaction_in",
    },
    "jobs": {"worker"},
}
"""Declaring, and running in the background, need the event loop."""


@pytest.mark.parametrize("name", ["fp", "jobs", "leases", "idempotency", "outbox", "schedules"])
def test_both_forms_of_the_client_offer_the_same(name: str) -> None:
    fp = Fencepost("postgresql://localhost/never-opened")
    sync_fp = fp.sync()
    asynchronous, sync = (fp, sync_fp) if name == "fp" else (getattr(fp, name), getattr(sync_fp, name))

    assert offered(asynchronous) - offered(sync) == ONE_FORM_ONLY.get(name, set())
    assert offered(sync) - offered(asynchronous) == set()


@pytest.mark.parametrize(
    ("asynchronous", "sync"), [(Fencepost, SyncFencepost), (Transaction, SyncTransaction)], ids=["fp", "tx"]
)
def test_what_is_written_in_both_forms_takes_the_same(asynchronous: type[Any], sync: type[Any]) -> None:
    """The few methods whose types a descriptor cannot tell: they hand over to the shared implementation."""
    for name in offered(asynchronous) & offered(sync):
        one, other = getattr(asynchronous, name), getattr(sync, name)
        if inspect.isfunction(one):
            assert list(inspect.signature(one).parameters.values()) == list(
                inspect.signature(other).parameters.values()
            )
