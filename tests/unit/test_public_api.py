"""The export list is what we promise; the sync form is the async one without await."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

import fencepost
from fencepost import SyncTransaction, Transaction, client, errors, transaction

# A name that is added here is a promise; one that is taken away breaks somebody.
PROMISED = {
    "AlreadyFinished",
    "Backpressure",
    "Bury",
    "Call",
    "Cancelled",
    "ChildJob",
    "ChildJobFailed",
    "Claim",
    "Duplicate",
    "EventTimeout",
    "Fencepost",
    "FencepostError",
    "Handler",
    "InFlight",
    "IndeterminateCommit",
    "InvalidInput",
    "Job",
    "JobFailed",
    "Lease",
    "LeaseExpired",
    "MigrationFailed",
    "Mismatch",
    "NotFound",
    "NotOwner",
    "NotRunning",
    "PermanentError",
    "Rate",
    "Refusal",
    "RefusedTransaction",
    "Retry",
    "SchemaError",
    "SchemaMissing",
    "SchemaTooNew",
    "SchemaTooOld",
    "ServerUnavailable",
    "SettingsError",
    "StaleAttempt",
    "StepNameTaken",
    "SyncFencepost",
    "SyncTransaction",
    "SyncWorkflow",
    "TooOld",
    "Transaction",
    "Workflow",
    "WorkflowHandler",
    "WrongIsolation",
    "digest",
    "exponential",
    "owner_name",
    "run",
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


def test_a_house_that_runs_no_worker_loads_neither_redis_nor_what_renders_logs() -> None:
    """redis-py brings the SDK of OpenTelemetry, structlog brings rich: half of the time to start."""
    heavy = {"redis", "opentelemetry", "structlog", "rich", "yaml"}

    assert heavy.isdisjoint(run_alone("import sys, fencepost.app; print(*sys.modules)").split())


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


def public_methods(cls: type[Any]) -> dict[str, inspect.Signature]:
    return {
        name: inspect.signature(function)
        for name, function in inspect.getmembers(cls, inspect.isfunction)
        if not name.startswith("_")
    }


@pytest.mark.parametrize(
    ("asynchronous", "sync"),
    [(client.KernelClient, client.SyncKernelClient), (Transaction, SyncTransaction)],
    ids=["client", "tx"],
)
def test_both_faces_offer_the_same(asynchronous: type[Any], sync: type[Any]) -> None:
    offered = {name: list(s.parameters.values()) for name, s in public_methods(sync).items()}
    expected = {name: list(s.parameters.values()) for name, s in public_methods(asynchronous).items()}
    expected.pop("sync", None)  # The way from the one to the other.

    assert offered == expected


def without_await(code: str) -> str:
    """The code as it would be written without an event loop."""
    code = re.sub(r"\basync (def|with)\b", r"\1", code)
    code = re.sub(r"\bawait \(?asyncio\.to_thread\(([\w.]+)(?:, )?", r"\1(", code)
    code = re.sub(r"\bawait ", "", code)
    code = code.replace("asynccontextmanager", "contextmanager").replace("AsyncExitStack", "ExitStack")
    code = code.replace("push_async_callback", "callback").replace('"service"', '"service-sync"')
    code = re.sub(r"\bAsync(Connection|Cursor|Generator)\b", r"\1", code)
    code = re.sub(r"\b(Transaction|Fencepost)\b", r"Sync\1", code)
    return re.sub(r"\bopen_transaction\b", "open_sync_transaction", code).replace(
        "_roll_back(", "_roll_back_sync("
    )


def written(thing: Callable[..., Any] | property) -> str:
    function = thing.fget if isinstance(thing, property) else thing
    assert function is not None
    return textwrap.dedent(inspect.getsource(inspect.unwrap(function)))


def meaning(code: str) -> str:
    """The code without its comments and its layout."""
    return ast.unparse(ast.parse(code))


TWINS: list[tuple[Any, Any]] = [
    (transaction.open_transaction, transaction.open_sync_transaction),
    *(
        (vars(Transaction)[n], vars(SyncTransaction)[n])
        for n in ("connection", "execute", "run", "claim", "savepoint")
    ),
    *(
        (vars(client.KernelClient)[n], vars(client.SyncKernelClient)[n])
        for n in ("open", "close", "transaction", "run", "_borrow")
    ),
]


@pytest.mark.parametrize(
    ("asynchronous", "sync"), TWINS, ids=[written(a).split("(")[0].split()[-1] for a, _ in TWINS]
)
def test_the_sync_form_is_the_async_one_without_await(asynchronous: Any, sync: Any) -> None:
    """Two forms that are kept by hand drift apart, and one keeps the bug that the other has lost."""
    assert meaning(without_await(written(asynchronous))) == meaning(written(sync))
