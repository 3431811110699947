"""status and explain, on a system in which something happened."""

from __future__ import annotations

import signal

import pytest

from fencepost.cli.exit_codes import ExitCode
from fencepost.cli.shutdown import SignalEvent
from fencepost.embedded import Database
from tests.integration.cli.conftest import Fencepost


@pytest.fixture
def job(database: Database) -> int:
    """A job that a worker finished, and that a zombie and a repeat tried to finish too."""
    with database.connect() as connection:
        row = connection.execute(
            "select job_id from fencepost.job_submit('thumbnails', 'render', '{}')"
        ).fetchone()
        assert row is not None
        connection.execute("select fencepost.job_submit('thumbnails', 'render', '{}')")
        connection.execute("select fencepost.job_claim(%s, 'worker-1')", row)
        for attempt, owner in ((7, "zombie"), (1, "worker-1"), (1, "worker-1")):
            connection.execute(
                "select fencepost.job_finish_many(array[%s]::bigint[], array[%s]::bigint[], %s)",
                (row[0], attempt, owner),
            )
        connection.execute("select fencepost.lease_acquire('signer:0xabc', 'node-1', '60 s')")
        return int(row[0])


def test_status_shows_queues_leases_outbox_and_refusals(fencepost: Fencepost, job: int) -> None:
    screen = fencepost("status")
    assert screen.code == ExitCode.OK
    for expected in ("thumbnails", "signer:0xabc", "node-1", "already_finished", "nothing waits"):
        assert expected in screen.out


def test_status_for_machines_has_the_same(fencepost: Fencepost, job: int) -> None:
    shown = fencepost("status", "--json").json
    (queue,) = shown["queues"]
    assert (queue["queue"], queue["pending"], queue["running"], queue["paused"]) == (
        "thumbnails",
        1,
        0,
        False,
    )
    assert [lease["resource"] for lease in shown["leases"]] == ["signer:0xabc"]
    refused = {reason["reason"]: reason["refused"] for reason in shown["refusals"]}
    assert (refused["already_finished"], refused["cancelled"]) == (1, 0)


def test_status_watches_until_ctrl_c(fencepost: Fencepost, job: int, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []

    def second_look_is_the_last(event: SignalEvent, seconds: float) -> bool:
        looks.append(seconds)
        if len(looks) == 2:
            signal.raise_signal(signal.SIGINT)
        return event.is_set()

    monkeypatch.setattr(SignalEvent, "wait", second_look_is_the_last)
    watched = fencepost("status", "--watch", "--every", "7", "--json")
    assert (watched.code, len(watched.out.splitlines()), looks) == (ExitCode.OK, 2, [7.0, 7.0])


def test_explain_tells_a_jobs_life_with_the_reason_of_every_refusal(fencepost: Fencepost, job: int) -> None:
    told = fencepost("explain", str(job))
    assert told.code == ExitCode.OK
    assert told.out.startswith(f"job:{job}\n")
    for expected in ("submitted", "claimed", "finished", "refused:already_finished", "by=worker-1"):
        assert expected in told.out
    assert "It is already finished. Read the stored result instead of writing another." in told.out


def test_explain_for_machines_has_meaning_and_remedy(fencepost: Fencepost, job: int) -> None:
    moments = fencepost("explain", f"job:{job}", "--json").json["moments"]
    assert [moment["event"] for moment in moments if "remedy" not in moment] == [
        "submitted",
        "claimed",
        "finished",
    ]
    assert {moment["reason"] for moment in moments if "remedy" in moment} == {"not_owner", "already_finished"}


def test_explain_tells_a_leases_life(fencepost: Fencepost, job: int) -> None:
    told = fencepost("explain", "lease:signer:0xabc")
    assert told.code == ExitCode.OK
    assert "by=node-1" in told.out


@pytest.mark.parametrize("subject", ["999999", "lease:nobody", "request:a/b", "outbox:999999"])
def test_explain_says_when_there_is_no_such_thing(fencepost: Fencepost, subject: str) -> None:
    answer = fencepost("explain", subject)
    assert (answer.code, answer.out) == (ExitCode.NOT_FOUND, "")
    assert answer.err.startswith(f"fencepost: There is no {'job:' if subject.isdigit() else ''}{subject}:")
