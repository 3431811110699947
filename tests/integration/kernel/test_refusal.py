"""A refusal is an answer: counted though it was rolled back, recorded, and explained in one table."""

import json
from datetime import timedelta
from typing import Any

import pytest

from fencepost.errors import REFUSALS
from fencepost.testing import Clock
from tests.integration.kernel.caller import Caller, refusal_counts

RECORD = "select fencepost.refusal_record(%s, 'job', '7', 'worker-1', '{\"attempt\": 1}', '{\"attempt\": 2}')"


def test_every_reason_has_its_class_its_state_and_its_remedy(app: Caller) -> None:
    rows = app.rows("select reason, sqlstate, meaning, remedy from fencepost.refusal_status")

    assert {row["reason"]: row["sqlstate"] for row in rows} == {
        reason: refusal.sqlstate for reason, refusal in REFUSALS.items()
    }
    assert all(row["meaning"].endswith(".") and row["remedy"].endswith(".") for row in rows)


def test_every_reason_has_a_count_that_begins_at_nothing(app: Caller) -> None:
    rows = app.rows("select reason, refused from fencepost.refusal_counts()")

    assert {row["reason"]: row["refused"] for row in rows} == dict.fromkeys(REFUSALS, 0)


def test_a_count_survives_the_rollback_that_the_refusal_causes(app: Caller) -> None:
    for _ in range(3):
        app.execute("begin")
        app.refused("not_found", "select fencepost.job_finish(7, 1, 'worker-1')")
        app.execute("rollback")

    assert refusal_counts(app) == {"not_found": 3}
    assert app.rows("select from fencepost.refusals") == []


def test_a_count_of_a_plural_form_survives_its_rollback_though_the_record_does_not(app: Caller) -> None:
    app.execute("begin")
    app.execute("select fencepost.job_finish_many('{7, 8}', '{1, 1}', 'worker-1')")
    app.execute("rollback")

    assert refusal_counts(app) == {"not_found": 2}
    assert app.rows("select from fencepost.refusals") == []


def test_a_raised_refusal_is_recorded_afterwards_without_being_counted_again(
    app: Caller, clock: Clock
) -> None:
    app.execute(RECORD, "stale_attempt")

    recorded = app.row("select * from fencepost.refusals")
    assert recorded.pop("refusal_id") == 1
    assert recorded == {
        "at": clock.now(),
        "reason": "stale_attempt",
        "noun": "job",
        "subject": "7",
        "actor": "worker-1",
        "attempted": {"attempt": 1},
        "seen": {"attempt": 2},
        "kind": "late",
    }
    assert refusal_counts(app) == {}


def test_a_reason_that_does_not_exist_is_not_recorded(app: Caller) -> None:
    for reason in ("because", None, "stale_attempt; drop table"):
        app.invalid("reason", RECORD, reason)
    assert app.rows("select from fencepost.refusals") == []


def test_history_is_forgotten_after_its_time_and_up_to_its_limit(app: Caller, clock: Clock) -> None:
    for _ in range(2):
        app.execute(RECORD, "stale_attempt")
        app.execute("select fencepost.queue_pause('mail', 'carol')")
    clock.advance(1)
    app.execute(RECORD, "not_owner")
    clock.advance(3600)

    assert app.value("select fencepost.history_prune('1 hour', 1)") == 2
    assert app.value("select fencepost.history_prune('1 hour', 10)") == 2
    assert app.column("select reason from fencepost.refusals") == ["not_owner"]
    assert app.rows("select from fencepost.events") == []


def test_a_dead_job_keeps_its_history_until_it_goes_itself(app: Caller, clock: Clock) -> None:
    dead = app.value("select job_id from fencepost.job_submit('mail', 'send', '{}')")
    bury = "select fencepost.job_bury(job_id, attempt, 'w', 'no') from fencepost.job_claim(%s, 'w')"
    record = "select fencepost.refusal_record('stale_attempt', 'job', %s, 'w', '{}', '{}')"
    app.execute(bury, dead)
    app.execute("select fencepost.job_replay(%s, 'carol')", dead)
    app.execute(bury, dead)
    app.execute(record, str(dead))
    app.execute(record, "a stranger's")
    app.execute("select fencepost.queue_pause('mail', 'carol')")
    life = app.column("select event from fencepost.events where noun = 'job' order by event_id")
    clock.advance(3601)

    assert app.value("select fencepost.history_prune('1 hour', 100)") > 2
    assert app.value("select fencepost.history_prune('1 hour', 100)") == 0, "what is spared is not met again"
    assert "replayed" in life
    assert app.column("select event from fencepost.events order by event_id") == life
    assert app.column("select subject from fencepost.refusals") == [str(dead)]

    assert app.value("select fencepost.job_prune('1 hour', 10, true)") == 1
    assert app.value("select fencepost.history_prune('1 hour', 100)") == len(life) + 1
    assert app.rows("select from fencepost.events") == app.rows("select from fencepost.refusals") == []


def test_only_the_history_of_the_dead_is_spared(app: Caller, clock: Clock) -> None:
    """Whatever else is kept for now goes when its time comes."""
    dead = app.value("select job_id from fencepost.job_submit('mail', 'send', '{}')")
    app.execute(
        "select fencepost.job_bury(job_id, attempt, 'w', 'no') from fencepost.job_claim(%s, 'w')", dead
    )
    record = "select fencepost.refusal_record('stale_attempt', %s, %s, 'w', '{}', '{}')"
    for _ in range(2):
        app.execute(record, "job", str(dead))
        app.execute(record, "lease", str(dead))
        app.execute("select fencepost.queue_pause(%s, 'carol')", str(dead))
    clock.advance(1800)
    for _ in range(2):
        app.execute(record, "lease", "r")
        app.execute("select fencepost.queue_pause('mail', 'carol')")
    clock.advance(1801)
    app.execute("select fencepost.history_prune('1 hour', 100)")
    nouns = "select noun, count(*) from {} group by noun order by noun"
    events, refusals = nouns.format("fencepost.events"), nouns.format("fencepost.refusals")

    def kept(query: Any) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in app.rows(query)]

    assert (kept(events), kept(refusals)) == ([("job", 1), ("queue", 2)], [("job", 2), ("lease", 2)])
    clock.advance(1800)
    assert app.value("select fencepost.history_prune('1 hour', 100)") == 4
    assert (kept(events), kept(refusals)) == ([("job", 1)], [("job", 2)])


def test_pruning_goes_on_past_the_history_of_dead_jobs(app: Caller, clock: Clock) -> None:
    for _ in range(3):
        dead = app.value("select job_id from fencepost.job_submit('mail', 'send', '{}')")
        app.execute(
            "select fencepost.job_bury(job_id, attempt, 'w', 'no') from fencepost.job_claim(%s, 'w')", dead
        )
    app.execute("select fencepost.queue_pause('mail', 'carol')")
    clock.advance(3601)

    while app.value("select fencepost.history_prune('1 hour', 1)"):
        pass

    assert set(app.column("select noun from fencepost.events")) == {"job"}


def test_the_record_says_when(app: Caller, clock: Clock) -> None:
    app.execute(RECORD, "stale_attempt")
    clock.advance(90)
    app.execute(RECORD, "stale_attempt")

    first, second = app.column("select at from fencepost.refusals order by refusal_id")
    assert second - first == timedelta(seconds=90)


@pytest.mark.parametrize(
    ("kind", "reason", "attempted"),
    [
        ("late", "stale_attempt", {"op": "finish", "attempt": 1, "owner": "a"}),
        ("late", "not_owner", {"op": "fence", "token": 4}),
        ("late", "already_finished", {"op": "renew", "attempt": 1}),
        ("late", "lease_expired", {"take": 3, "owner": "a"}),
        ("routine", "cancelled", {"op": "finish", "attempt": 1}),
        ("routine", "not_owner", {"op": "acquire", "owner": "b"}),
        ("routine", "already_finished", {"op": "claim", "owner": "b"}),
        ("conflict", "mismatch", {"digest": "x"}),
        ("conflict", "in_flight", {"digest": "x"}),
        ("conflict", "not_found", {"op": "cancel", "actor": "carol"}),
    ],
)
def test_a_refusal_tells_a_late_writer_from_callers_that_conflict(
    app: Caller, kind: str, reason: str, attempted: dict[str, Any]
) -> None:
    app.execute(
        "select fencepost.refusal_record(%s, 'job', '7', 'w', %s, '{}')", reason, json.dumps(attempted)
    )

    assert app.rows("select kind from fencepost.refusals") == [{"kind": kind}]
