"""What follows from each reason for which a job's write is refused."""

import pytest

from fencepost.errors import REFUSALS
from fencepost.jobs._handler import Handlers
from fencepost.jobs._metrics import JobMetrics
from fencepost.jobs.retry_policy import ACKNOWLEDGED, POISON, RECLAIM_DECISIONS
from fencepost.metrics import Metrics
from tests.unit.jobs.fakes import handler_of, held

# What _job_explain can answer: every reason that an attempt at a job may be refused for.
JOB_REASONS = {
    "stale_attempt",
    "already_finished",
    "not_running",
    "lease_expired",
    "not_owner",
    "not_found",
    "cancelled",
    "in_flight",
}

TABLE = [
    # reason, what an idle entry is, whether it is acknowledged
    ("stale_attempt", "done_or_stale", True),
    ("already_finished", "done_or_stale", True),
    ("not_running", "done_or_stale", True),
    ("cancelled", "done_or_stale", True),
    ("not_found", "not_found", True),
    ("lease_expired", "lease_still_valid", False),
    ("not_owner", "lease_still_valid", False),
    ("in_flight", "lease_still_valid", False),
]


@pytest.mark.parametrize(("reason", "decision", "acknowledged"), TABLE)
def test_each_reason_has_its_consequence(reason: str, decision: str, acknowledged: bool) -> None:
    assert RECLAIM_DECISIONS[reason] == decision
    assert (reason in ACKNOWLEDGED) == acknowledged


def test_the_reasons_of_what_cannot_be_worked_on() -> None:
    assert {"missing_field", "invalid_field", "payload_missing_or_invalid"} == POISON


def test_the_table_is_whole() -> None:
    assert {row[0] for row in TABLE} == JOB_REASONS == set(RECLAIM_DECISIONS)
    assert set(REFUSALS) >= JOB_REASONS
    assert ACKNOWLEDGED <= JOB_REASONS


def test_an_entry_is_acknowledged_exactly_when_it_is_not_left_to_a_holder() -> None:
    left = {reason for reason, decision in RECLAIM_DECISIONS.items() if decision == "lease_still_valid"}
    assert left == JOB_REASONS - ACKNOWLEDGED


async def nothing(_job: object) -> None: ...


def test_only_the_queues_and_kinds_of_declared_handlers_become_labels() -> None:
    """A kind is free text in the database: as a label it would have as many values as are submitted."""
    metrics = Metrics()
    handlers = Handlers()
    handlers.add(handler_of(nothing))
    jobs = JobMetrics.on(metrics).of(handlers)
    known, foreign = held(), held()
    foreign.running = foreign.running._replace(queue="elsewhere", kind="made up")
    jobs.finished("ok", [known, foreign])
    jobs.rejected(known.running._replace(kind="made up"), "stale_attempt")
    count = metrics.value
    assert count("fencepost_jobs_outcomes_total", queue="default", kind="work", status="ok") == 1
    assert count("fencepost_jobs_outcomes_total", queue="other", kind="other", status="ok") == 1
    assert count("fencepost_jobs_run_seconds_count", queue="default", kind="work") == 1
    assert count("fencepost_jobs_outcomes_refused_total", queue="default", kind="other") == 1
    assert "made up" not in metrics.page().body.decode()
