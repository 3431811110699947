"""Our reasons under the names that operators of online judges know."""

import pytest

from fencepost.errors import REFUSALS
from fencepost.jobs.retry_policy import ACKNOWLEDGED, LABELS, POISON, RECLAIM_DECISIONS

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
    # our reason          a finish is counted as            an idle entry is               acknowledged
    ("stale_attempt", "stale_attempt", "done_or_stale", True),
    ("already_finished", "already_finished", "done_or_stale", True),
    ("not_running", "not_in_expected_state", "done_or_stale", True),
    ("cancelled", "not_in_expected_state", "done_or_stale", True),
    ("not_found", "not_found", "not_found", True),
    ("lease_expired", "lease_lost_or_owner_mismatch", "lease_still_valid", False),
    ("not_owner", "lease_lost_or_owner_mismatch", "lease_still_valid", False),
    ("in_flight", "lease_lost_or_owner_mismatch", "lease_still_valid", False),
]


@pytest.mark.parametrize(("reason", "label", "decision", "acknowledged"), TABLE)
def test_each_reason_has_its_label_and_its_consequence(
    reason: str, label: str, decision: str, acknowledged: bool
) -> None:
    assert LABELS[reason] == label
    assert RECLAIM_DECISIONS[reason] == decision
    assert (reason in ACKNOWLEDGED) == acknowledged


def test_what_cannot_be_worked_on_has_labels_that_operators_know() -> None:
    assert {"missing_field", "invalid_field", "payload_missing_or_invalid"} == POISON


def test_the_table_is_whole() -> None:
    assert {row[0] for row in TABLE} == JOB_REASONS == set(LABELS) == set(RECLAIM_DECISIONS)
    assert set(REFUSALS) >= JOB_REASONS
    assert ACKNOWLEDGED <= JOB_REASONS


def test_an_entry_is_acknowledged_exactly_when_it_is_not_left_to_a_holder() -> None:
    left = {reason for reason, decision in RECLAIM_DECISIONS.items() if decision == "lease_still_valid"}
    assert left == JOB_REASONS - ACKNOWLEDGED
