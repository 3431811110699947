"""What the kernel's small functions decide, over all that they tell apart, beside the same rule in Python."""

from datetime import timedelta
from itertools import product
from typing import Any, LiteralString

import pytest

from fencepost.testing import Clock
from tests.integration.kernel.caller import Caller
from tests.integration.kernel.conftest import NOON
from tests.integration.kernel.job_calls import OWNER, RIVAL
from tests.integration.kernel.job_states import SITUATIONS

SECOND = timedelta(seconds=1)


def test_which_owners_may_act_on_a_lease(admin: Caller) -> None:
    verdict = """
        select fencepost._lease_verdict(l, %s, %s, %s) from (
          select (jsonb_populate_record(null::fencepost.lease, %s::jsonb)).*) l
    """
    for owner, token, asker, late in product(
        (None, "anna"), (6, 7, 8, None), (None, "anna", "bert"), (-1, 0, 1)
    ):
        row = '{"resource": "r", "token": 7, "expires_at": "2030-01-01T12:00:00+00"'
        row += "}" if owner is None else ', "owner": "anna"}'
        late_or_not = "lease_expired" if late >= 0 else None
        expected = "not_owner" if token != 7 or owner is None or asker == "bert" else late_or_not
        assert admin.value(verdict, token, asker, NOON + late * SECOND, row) == expected
    assert admin.value(verdict, 7, "anna", NOON, "{}") == "not_found"


def test_which_owners_may_settle_a_message(admin: Caller) -> None:
    verdict = """
        select fencepost._outbox_verdict(o, %s, %s) from (
          select (jsonb_populate_record(null::fencepost.outbox, jsonb_build_object(
            'id', 1, 'take', 7, 'owner', %s::text, 'ready', %s::boolean, 'state', %s::text))).*) o
    """
    states = ("queued", "failed", "sending", "unknown", "parked")
    for take, asker, owner, ready, state in product(
        (6, 7, 8), (None, "anna", "bert"), (None, "anna"), (True, False), states
    ):
        if take != 7:
            expected = "stale_attempt"
        elif asker != owner or (asker is None and not (ready and state in ("queued", "failed"))):
            expected = "not_owner"
        else:
            expected = None
        assert admin.value(verdict, take, asker, owner, ready, state) == expected


def test_what_a_known_key_answers(admin: Caller) -> None:
    answer = "select fencepost._idempotency_answer(%s, %s, %s)"
    for asked, known, response in product((None, "a", "b"), (None, "a"), (None, "1")):
        same = "duplicate" if response is None else "replay"
        expected = same if asked == known else "mismatch"
        assert admin.value(answer, asked, known, response) == expected


def test_a_bucket_fills_with_time_up_to_its_burst_and_never_empties_by_it(admin: Caller) -> None:
    tokens = "select fencepost._rate_tokens(%s, %s, %s, %s, %s)"
    for had, per_second, burst, seconds in product(
        (-1.0, 0.0, 2.5, 5.0), (0.5, 2.0), (3.0, 5.0), (-4, 0, 1, 9)
    ):
        expected = min(burst, had + per_second * max(0, seconds))
        assert admin.value(tokens, had, NOON, per_second, burst, NOON + seconds * SECOND) == expected


@pytest.mark.parametrize("situation", SITUATIONS)
def test_why_an_owner_may_not_act_on_a_job(app: Caller, admin: Caller, clock: Clock, situation: str) -> None:
    job_id = SITUATIONS[situation](app, clock)
    job = app.row("select * from fencepost.jobs where job_id = %s", job_id)
    state, attempt, now = job["state"], job["attempt"], clock.now()
    for asked, owner, late in product(
        (None, attempt - 1, attempt, attempt + 1), (OWNER, RIVAL), (-60, -1, 0, 60)
    ):
        stale = asked is not None and attempt > asked
        at = now + late * SECOND
        if state == "running":
            if stale:
                expected = "stale_attempt"
            elif owner != job["owner"] or (asked is not None and attempt < asked):
                expected = "not_owner"
            elif job["expires_at"] <= at:
                expected = "lease_expired"
            else:
                expected = "in_flight" if job["cancel_requested_at"] is None else "cancelled"
        elif state in ("pending", "dispatched"):
            expected = "stale_attempt" if stale else "not_running"
        elif state == "cancelled":
            expected = "cancelled"
        else:
            expected = "stale_attempt" if stale else "already_finished"
        explained = admin.row(
            "select * from fencepost._job_explain(%s, %s, %s, %s)", job_id, asked, owner, at
        )
        assert explained == {"refusal": expected, "attempt": attempt}
    nobody = admin.row("select * from fencepost._job_explain(0, 1, %s, %s)", OWNER, now)
    assert nobody == {"refusal": "not_found", "attempt": None}


BYTES_7, BYTES_8 = "repeat('x', 7)", "repeat('x', 8)"
SIZE_OF_7 = "pg_column_size(to_jsonb(repeat('x', 7)))"
# An element is measured without the bytes that say how long it is.
SIZE_IN_ARRAY = "select pg_column_size(v) from unnest(array[to_jsonb(repeat('x', 7))]) v"
# A check, what passes it to the last grain, and what does not by one grain.
BOUNDS: dict[LiteralString, tuple[tuple[LiteralString, ...], tuple[LiteralString, ...]]] = {
    "_check_text('f', {}, 7)": (("'x'", BYTES_7), ("''", "null", BYTES_8)),
    "_check_json('f', {}, " + SIZE_OF_7 + ")": (
        ("null", f"to_jsonb({BYTES_7})"),
        (f"to_jsonb({BYTES_8})",),
    ),
    "_check_texts('f', {}, 7)": (
        ("null", "'{}'", f"array['x', {BYTES_7}]"),
        ("array['']", "array['x', null]", f"array['x', {BYTES_8}]"),
    ),
    "_check_texts('f', {}, 7, true)": (
        ("null", "'{}'", f"array[{BYTES_7}, null]"),
        ("array['', null]", f"array[null, {BYTES_8}]"),
    ),
    "_check_documents('f', {}, (" + SIZE_IN_ARRAY + "))": (
        ("null", f"array[null, to_jsonb({BYTES_7})]"),
        (f"array['1', to_jsonb({BYTES_8})]",),
    ),
    "_check_duration('f', {}, '1 hour')": (
        ("'1 microsecond'", "'1 hour'"),
        ("null", "'0'", "'-1 microsecond'", "'1 hour 1 microsecond'"),
    ),
    "_check_wait('f', {}, '1 hour')": (
        ("'0'", "'1 hour'"),
        ("null", "'-1 microsecond'", "'1 hour 1 microsecond'"),
    ),
    "_check_moment('f', {})": (("null", "now()"), ("'infinity'", "'-infinity'")),
    "_check_token('f', {})": (("0", "-1"), ("null",)),
    "_check_tokens('f', {})": (("'{}'", "'{0, 1}'"), ("null", "'{0, null}'")),
    "_check_limit({})": (("0", "1"), ("null", "-1")),
    "_check_word('f', {}, '{a, b}')": (("'a'", "'b'"), ("null", "''", "'c'")),
    "_check_lengths('f', 2, {})": (("2",), ("1", "3", "null")),
    "_check_rate({}, 1)": (("0.001", "1e300"), ("0", "-1", "'infinity'", "'nan'")),
    "_check_rate(1, {})": (("1", "1e300"), ("0.999", "null", "'infinity'", "'nan'")),
    "_job_check_terms('q', 'k', {}, 1, '1 day')": (("0", "3"), ("null", "-1", "4")),
    "_job_check_terms('q', 'k', 0, {}, '1 day')": (("1", "1000"), ("null", "0", "1001")),
    "_outbox_check_outcome('sent', {}, null)": (("null", "repeat('x', 8192)"), ("repeat('x', 8193)",)),
    "_outbox_check_outcome({}, null, null)": (
        ("'sent'", "'dead'", "'failed'", "'queued'", "'unknown'", "'parked'"),
        ("null", "'sending'"),
    ),
    "_outbox_check_outcome('sent', null, to_jsonb(repeat('x', 65536 + 7 - " + SIZE_OF_7 + " + {})))": (
        ("0",),
        ("1",),
    ),
    "_outbox_check_channel({})": (("'c'", "repeat('x', 128)"), ("''", "':'", "'a:'", "':a'")),
}  # fmt: skip


@pytest.mark.parametrize("check", BOUNDS)
def test_a_check_lets_pass_what_lies_on_its_bound_and_nothing_beyond_it(admin: Caller, check: Any) -> None:
    passing, failing = BOUNDS[check]
    for value in passing:
        admin.execute("select fencepost." + check.replace("{}", value))
    for value in failing:
        admin.failed("ZF100", "select fencepost." + check.replace("{}", value))


# What may be null, and what a call with it answers; a name that is given must be one.
OPTIONAL: dict[Any, Any] = {
    "fencepost.batch_make('{}', null, null) is not null": True,
    "fencepost.batch_make('{}', null, repeat('x', 256)) is not null": True,
    "(fencepost.claim('s', 'k1', null, null)).outcome": "claimed",
    "(fencepost.claim('s', 'k2', repeat('x', 256), null)).outcome": "claimed",
    "(fencepost.job_claim_many('{0}', 'w', null)).refusal": "not_found",
    "(fencepost.job_claim_many('{0}', 'w', '1 day')).refusal": "not_found",
    "fencepost.job_prune_excess(0, 0)": 0,
}


def test_what_may_be_left_out_is_no_fault(app: Caller) -> None:
    for call, expected in OPTIONAL.items():
        assert app.value("select " + call) == expected


def test_only_the_levels_that_see_the_newest_rows_are_fit_to_judge(admin: Caller) -> None:
    require = "select fencepost._require_read_committed()"
    for level in ("read committed", "repeatable read", "serializable"):
        begin: Any = "begin isolation level " + level
        admin.execute(begin)
        assert admin.value("select fencepost._sees_newest()") == (level == "read committed")
        if level == "read committed":
            admin.execute(require)
        else:
            admin.wrong_isolation(require)
        admin.execute("rollback")
    admin.execute("begin isolation level read uncommitted")
    assert admin.value("select fencepost._sees_newest()"), "it is read committed under another name"
    admin.execute("rollback")
