"""What an HTTP sink makes of an answer, how long it waits, and how it names what it sends."""

import pytest

from fencepost.flows import CheckpointId, IdempotentRecord
from fencepost.flows.sinks.http import WAIT_SECONDS_MAX, Lot, Verdict, verdict_of, wait_seconds

CHECKPOINT = CheckpointId("flow:f/all", 3, 7)


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        (200, Verdict.DONE),
        (204, Verdict.DONE),
        (207, Verdict.DONE),
        (301, Verdict.REFUSED),
        (400, Verdict.REJECTED),
        (401, Verdict.REFUSED),
        (404, Verdict.REFUSED),
        (408, Verdict.AGAIN),
        (409, Verdict.AGAIN),
        (413, Verdict.REJECTED),
        (422, Verdict.REJECTED),
        (429, Verdict.AGAIN),
        (500, Verdict.AGAIN),
        (501, Verdict.REFUSED),
        (503, Verdict.AGAIN),
    ],
)
def test_what_an_answer_means(status: int, verdict: Verdict) -> None:
    assert verdict_of(status) is verdict


def test_what_the_user_calls_a_rejection_is_one() -> None:
    assert verdict_of(404, {404}) is Verdict.REJECTED
    assert verdict_of(422, {404}) is Verdict.REFUSED


def test_the_service_says_how_long_to_wait_or_it_doubles_within_a_bound() -> None:
    assert wait_seconds(0, " 7 ") == 7
    assert [wait_seconds(tries) for tries in range(3)] == pytest.approx([0.1, 0.2, 0.4])
    assert wait_seconds(20) == WAIT_SECONDS_MAX
    assert wait_seconds(0, "999") == WAIT_SECONDS_MAX
    assert wait_seconds(1, "Wed, 18 Nov 2026 01:00:00 GMT") == pytest.approx(0.2)
    assert wait_seconds(0, "0") == pytest.approx(0.1)


def test_every_lot_of_a_checkpoint_has_a_key_of_its_own() -> None:
    whole = Lot(0, [1, 2, 3, 4, 5])
    first, second = whole.halved()
    keys = [lot.key(CHECKPOINT) for lot in (whole, first, second, *first.halved())]
    assert keys == [f"flow:f/all#7/{place}" for place in ("0-4", "0-1", "2-4", "0", "1")]


def test_a_record_with_an_id_is_sent_under_it() -> None:
    assert Lot(4, [IdempotentRecord("order-9", 1)]).key(CHECKPOINT) == "order-9"
