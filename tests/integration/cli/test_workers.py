"""`fencepost workers`, as a person calls it."""

import pytest

from fencepost.cli.exit_codes import ExitCode
from fencepost.embedded import Database
from tests.integration.cli.conftest import Fencepost

WORKER = "judge@node7:41:0a1b"
REASON = ("--reason", "a new disk", "--actor", "ann")


@pytest.fixture(autouse=True)
def acting(database: Database, fencepost: Fencepost, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker is there, and the login may decide."""
    monkeypatch.setenv("DATABASE_URL", database.url)
    with database.connect_admin() as admin:
        (token,) = admin.execute(
            "select token from fencepost.lease_acquire('job-worker:1', %s, '1 hour')", (WORKER,)
        ).fetchone() or (0,)
        serves = '{"kinds": {"judge_submission": ""}, "offers": "language:c"}'
        admin.execute(
            "select fencepost.job_worker_announce('job-worker:1', %s, '{judge}', %s)", (token, serves)
        )


def test_workers_are_listed_with_what_was_decided(fencepost: Fencepost) -> None:
    (one,) = fencepost("workers", "list", "--json").json
    assert (one["owner"], one["state"], one["queues"], one["offers"]) == (
        WORKER,
        "working",
        ["judge"],
        ["language:c"],
    )
    assert fencepost("workers", "drain", "node7", *REASON).out == f"target node7: draining {WORKER}\n"
    shown = fencepost("workers", "list").out
    assert "drained" in shown
    assert "draining by ann: a new disk" in shown


def test_a_host_is_disabled_said_by_status_and_enabled(fencepost: Fencepost) -> None:
    told = fencepost("workers", "disable", "judge@node7", "node8", *REASON)
    assert told.out == (
        "target judge@node7: disabled; 1 worker is there now\n"
        "target node8: disabled; 0 workers are there now\n"
    )
    held = fencepost("status", "--json").json["out_of_service"]
    assert {one["target"]: (one["state"], one["actor"], one["reason"]) for one in held} == {
        "judge@node7": ("disabled", "ann", "a new disk"),
        "node8": ("disabled", "ann", "a new disk"),
    }
    assert "judge@node7" in fencepost("status").out
    assert "a new disk" in fencepost("explain", "worker:judge@node7").out
    assert fencepost("workers", "disable", "node7", *REASON).code == ExitCode.OK
    still = fencepost("workers", "enable", "judge@node7", *REASON).out
    assert still == "target judge@node7: enabled judge@node7; node7 is still disabled: a new disk\n"
    assert fencepost("workers", "enable", "node7", "node8", *REASON).code == ExitCode.OK
    assert fencepost("status", "--json").json["out_of_service"] == []


def test_a_pin_is_set_shown_and_removed(fencepost: Fencepost) -> None:
    assert fencepost("workers", "pin", "node7", *REASON).code == ExitCode.USAGE
    pinned = fencepost(
        "workers", "pin", "node7", "--queues", "mail, judge", "--offers", "language:c", *REASON
    )
    assert pinned.out == "target node7: pinned; 1 worker is there now\n"
    assert "pinned to mail, judge; language:c by ann: a new disk" in fencepost("workers", "list").out
    assert fencepost("workers", "unpin", "node7", *REASON).out == "target node7: unpinned\n"


def test_what_is_not_there_is_exit_code_4(fencepost: Fencepost) -> None:
    for word in ("drain", "enable", "unpin"):
        assert fencepost("workers", word, "nowhere", *REASON).code == ExitCode.NOT_FOUND
