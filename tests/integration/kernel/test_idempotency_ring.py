"""Time-ordered keys: a window of remembered time, and a refusal outside of it."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from fencepost.testing import Clock
from tests.integration.kernel.caller import Caller, refusal_counts

CLAIM = "select outcome, response from fencepost.claim_ordered('orders', %s, %s)"
CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
SLICE = 21_600
MINUTE = timedelta(minutes=1)


def uuid7(at: datetime, number: int = 0) -> str:
    """A UUIDv7 of this moment."""
    time = f"{round(at.timestamp() * 1000):012x}"
    return f"{time[:8]}-{time[8:]}-7000-8000-{number:012x}"


def ulid(at: datetime) -> str:
    """A ULID of this moment."""
    millis = round(at.timestamp() * 1000)
    return "".join(CROCKFORD[millis >> shift & 31] for shift in range(45, -5, -5)) + "0" * 16


def claim(caller: Caller, key: str, digest: str | None = None) -> dict[str, Any]:
    return caller.row(CLAIM, key, digest)


def slots(admin: Caller) -> dict[int, int]:
    """How many keys each slot holds."""
    rows = admin.rows(
        "select slot, count(*) as n from fencepost.idempotency_ring group by slot order by slot"
    )
    return {row["slot"]: row["n"] for row in rows}


@pytest.mark.parametrize("make", [uuid7, ulid])
def test_a_repeat_is_answered_as_for_any_key(
    app: Caller, clock: Clock, make: Callable[[datetime], str]
) -> None:
    key = make(clock.now())

    assert app.row("select * from fencepost.claim_ordered('orders', %s, 'd', '7')", key) == {
        "outcome": "claimed",
        "response": 7,
        "claimed_at": clock.now(),
    }
    assert claim(app, key, "d") == {"outcome": "replay", "response": 7}
    assert claim(app, key, "other") == {"outcome": "mismatch", "response": None}
    assert refusal_counts(app) == {"mismatch": 1}


def test_a_repeat_without_a_stored_response_is_a_duplicate(app: Caller, clock: Clock) -> None:
    claim(app, uuid7(clock.now()))

    assert claim(app, uuid7(clock.now())) == {"outcome": "duplicate", "response": None}


def test_upper_and_lower_case_are_one_key(app: Caller, clock: Clock) -> None:
    claim(app, ulid(clock.now()))

    assert claim(app, ulid(clock.now()).lower())["outcome"] == "duplicate"


def test_a_response_is_remembered_by_the_claiming_transaction_only(app: Caller, clock: Clock) -> None:
    key = uuid7(clock.now())
    with app.transaction():
        claim(app, key)
        app.execute("select fencepost.remember_ordered('orders', %s, '{}')", key.upper())

    assert claim(app, key) == {"outcome": "replay", "response": {}}
    refused = app.refused("duplicate", "select fencepost.remember_ordered('orders', %s, '1')", key)
    assert refused.seen == {"claimed_at": clock.now().isoformat()}
    other = uuid7(clock.now(), 2)
    app.refused("not_found", "select fencepost.remember_ordered('orders', %s, '1')", other)


def test_a_duplicate_does_not_wait_for_the_first(
    app: Caller, connect: Callable[[], Caller], clock: Clock
) -> None:
    first = connect()
    first.execute("begin")
    claim(first, uuid7(clock.now()))

    assert claim(app, uuid7(clock.now()))["outcome"] == "in_flight"

    first.execute("rollback")
    assert claim(app, uuid7(clock.now()))["outcome"] == "claimed"


@pytest.mark.parametrize(
    ("minutes", "outcome"),
    [(-1441, "too_old"), (-1440, "claimed"), (0, "claimed"), (719, "claimed"), (720, "too_old")],
)
def test_the_window_is_a_day_back_and_a_slice_ahead(
    app: Caller, clock: Clock, minutes: int, outcome: str
) -> None:
    assert claim(app, uuid7(clock.now() + minutes * MINUTE))["outcome"] == outcome


def test_a_key_outside_the_window_is_refused_with_both_times(app: Caller, clock: Clock) -> None:
    key = uuid7(clock.now() - 2160 * MINUTE)

    assert claim(app, key) == {"outcome": "too_old", "response": None}

    recorded = app.row("select reason, subject, attempted, seen from fencepost.refusals")
    assert (recorded["reason"], recorded["subject"]) == ("too_old", f"orders/{key}")
    assert recorded["attempted"]["key_time"] == (clock.now() - 2160 * MINUTE).isoformat()
    assert recorded["seen"]["judged_at"] == clock.now().isoformat()
    assert refusal_counts(app) == {"too_old": 1}


def test_a_key_that_was_claimed_is_refused_once_its_time_has_left_the_window(
    app: Caller, clock: Clock
) -> None:
    key = uuid7(clock.now())
    claim(app, key)
    clock.advance(4 * SLICE)
    assert claim(app, key)["outcome"] == "duplicate"
    clock.advance(SLICE)

    assert claim(app, key)["outcome"] == "too_old"


def test_a_slot_is_emptied_when_its_slice_has_left_the_window(
    app: Caller, admin: Caller, clock: Clock
) -> None:
    claim(app, uuid7(clock.now()))
    claim(app, uuid7(clock.now() + timedelta(seconds=SLICE)))
    clock.advance(4 * SLICE)
    assert app.value("select fencepost.idempotency_ring_clean()") == 0
    clock.advance(SLICE)

    assert app.value("select fencepost.idempotency_ring_clean()") == 1

    assert list(slots(admin).values()) == [1]
    assert app.value("select fencepost.idempotency_ring_clean()") == 0
    clock.advance(SLICE)
    assert app.value("select fencepost.idempotency_ring_clean()") == 1
    assert slots(admin) == {}


def test_a_slot_that_is_in_use_again_is_not_emptied(app: Caller, admin: Caller, clock: Clock) -> None:
    claim(app, uuid7(clock.now()))
    # Not cleaned for two days: the slot of noon is by now that of noon two days later.
    clock.advance(8 * SLICE)
    claim(app, uuid7(clock.now()))

    assert app.value("select fencepost.idempotency_ring_clean()") == 0
    assert list(slots(admin).values()) == [2]
    assert claim(app, uuid7(clock.now()))["outcome"] == "duplicate"


def test_a_forgotten_slice_stays_refused_when_the_clock_goes_back(app: Caller, clock: Clock) -> None:
    key, later = uuid7(clock.now()), uuid7(clock.now() + timedelta(seconds=SLICE))
    claim(app, key)
    clock.advance(5 * SLICE)
    assert app.value("select fencepost.idempotency_ring_clean()") == 1
    clock.advance(-5 * SLICE)

    assert claim(app, key)["outcome"] == "too_old"
    assert claim(app, uuid7(clock.now(), 9))["outcome"] == "too_old"
    assert claim(app, later)["outcome"] == "claimed"


def test_what_a_refused_claim_wrote_is_gone(app: Caller, admin: Caller, clock: Clock) -> None:
    claim(app, uuid7(clock.now()))
    clock.advance(5 * SLICE)
    app.value("select fencepost.idempotency_ring_clean()")
    clock.advance(-5 * SLICE)

    claim(app, uuid7(clock.now()))

    assert slots(admin) == {}


def test_a_slot_with_an_open_claim_is_left_for_the_next_time(
    app: Caller, admin: Caller, connect: Callable[[], Caller], clock: Clock
) -> None:
    slow = connect()
    claim(app, uuid7(clock.now()))
    slow.execute("begin")
    claim(slow, uuid7(clock.now(), 2))
    clock.advance(5 * SLICE)

    assert app.value("select fencepost.idempotency_ring_clean()") == 0
    slow.execute("commit")
    assert app.value("select fencepost.idempotency_ring_clean()") == 1
    assert slots(admin) == {}


def test_a_key_without_a_time_is_turned_away(app: Caller) -> None:
    for key in ("req-1", "3f2504e0-4f89-41d3-9a0c-0305e82c3301", "8ZZZZZZZZZ0000000000000000", "0" * 25):
        app.invalid("key", CLAIM, key, None)


def test_cleaning_the_ring_gives_up_quickly_on_a_lock_and_keeps_the_callers_setting(app: Caller) -> None:
    with app.transaction():
        app.execute("set local lock_timeout = '7s'")
        app.execute("select fencepost.idempotency_ring_clean()")
        assert app.value("show lock_timeout") == "7s"
