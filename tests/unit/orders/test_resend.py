"""When an order may be sent again: every row of the policy's table, and the edges of its times."""

import itertools

import pytest

from fencepost_orders._resend import Decision, Facts, Next, decide, may_repeat, when_expired
from fencepost_orders.broker import Declaration, LookupFinding, LookupScope, Promise

FOREVER = Declaration(Promise.FOREVER)
NOTHING = Declaration(Promise.NOTHING, request_valid_seconds=10)
WHILE_OPEN = Declaration(Promise.WHILE_OPEN, request_valid_seconds=10)
WINDOW = Declaration(Promise.WINDOW, window_seconds=600, request_valid_seconds=10)


def facts(
    finding: LookupFinding, *, live: bool = True, stamp_age: float = 0, open_age: float | None = None
) -> Facts:
    return Facts(finding, live, stamp_age, stamp_age if open_age is None else open_age)


@pytest.mark.parametrize("declared", [FOREVER, NOTHING, WHILE_OPEN, WINDOW])
def test_what_the_broker_has_is_sent_and_what_it_rejected_is_dead(declared: Declaration) -> None:
    assert decide(declared, facts(LookupFinding.FOUND)).decision is Decision.SENT
    assert decide(declared, facts(LookupFinding.FOUND, live=False)).decision is Decision.DEAD


@pytest.mark.parametrize("declared", [NOTHING, WHILE_OPEN])
def test_absence_is_a_proof_only_after_the_requests_validity(declared: Declaration) -> None:
    early = decide(declared, facts(LookupFinding.ABSENT, stamp_age=10.9))
    assert early.decision is Decision.ASK
    assert early.wait_seconds == pytest.approx(0.1)
    assert decide(declared, facts(LookupFinding.ABSENT, stamp_age=11)).decision is Decision.RESEND_PROVED


@pytest.mark.parametrize("promise", [Promise.NOTHING, Promise.WHILE_OPEN])
def test_without_a_validity_absence_proves_nothing(promise: Promise) -> None:
    declared = Declaration(promise)
    assert decide(declared, facts(LookupFinding.ABSENT, stamp_age=1e9)).decision is Decision.PARK
    assert decide(declared, facts(LookupFinding.NO_ANSWER, stamp_age=1e9)).decision is Decision.ASK


@pytest.mark.parametrize("lookup", [LookupScope.OPEN, LookupScope.NONE])
@pytest.mark.parametrize("promise", [Promise.NOTHING, Promise.WHILE_OPEN])
def test_a_broker_that_does_not_see_everything_cannot_prove_absence(
    promise: Promise, lookup: LookupScope
) -> None:
    declared = Declaration(promise, lookup, request_valid_seconds=1)
    assert decide(declared, facts(LookupFinding.ABSENT, stamp_age=1e9)).decision is Decision.PARK


def test_unique_for_ever_may_be_repeated_at_any_time() -> None:
    assert decide(FOREVER, facts(LookupFinding.ABSENT)).decision is Decision.RESEND
    assert decide(FOREVER, facts(LookupFinding.NO_ANSWER, open_age=1e9)).decision is Decision.RESEND


def test_unique_for_ever_with_a_proof_is_proved() -> None:
    declared = Declaration(Promise.FOREVER, request_valid_seconds=10)
    assert decide(declared, facts(LookupFinding.ABSENT, stamp_age=11)).decision is Decision.RESEND_PROVED
    assert decide(declared, facts(LookupFinding.ABSENT, stamp_age=5)).decision is Decision.RESEND


def test_inside_the_window_a_repeat_must_arrive_before_its_end() -> None:
    assert decide(WINDOW, facts(LookupFinding.NO_ANSWER, open_age=588.9)).decision is Decision.RESEND
    assert decide(WINDOW, facts(LookupFinding.NO_ANSWER, stamp_age=11, open_age=589)).decision is Decision.ASK


def test_a_window_without_a_validity_protects_no_caller_from_a_worker_that_stands_still() -> None:
    declared = Declaration(Promise.WINDOW, window_seconds=600)
    assert not may_repeat(declared, 0)
    assert decide(declared, facts(LookupFinding.ABSENT)).decision is Decision.PARK


def test_a_limited_question_is_asked_again() -> None:
    for declared in (FOREVER, NOTHING, WHILE_OPEN, WINDOW):
        assert decide(declared, facts(LookupFinding.LIMITED, stamp_age=1e9)).decision is Decision.ASK


def test_an_expired_order_is_never_sent_again() -> None:
    after = {decision: when_expired(Next(decision)).decision for decision in Decision}
    assert after[Decision.RESEND_PROVED] is Decision.DEAD
    assert after[Decision.RESEND] is Decision.PARK
    assert not {Decision.RESEND, Decision.RESEND_PROVED} & set(after.values())


def test_no_policy_resends_on_anothers_word() -> None:
    """Over all declarations and answers: who promises nothing and proves nothing is never sent to again."""
    sights = (LookupScope.ALL, LookupScope.OPEN, LookupScope.NONE)
    for promise, lookup, valid, finding, age in itertools.product(
        (Promise.NOTHING, Promise.WHILE_OPEN), sights, (None, 10.0), LookupFinding, (0.0, 5.0, 12.0, 1e6)
    ):
        declared = Declaration(promise, lookup, request_valid_seconds=valid)
        step = decide(declared, facts(finding, stamp_age=age)).decision
        may_resend = (
            lookup is LookupScope.ALL and valid is not None and age >= 11 and finding is LookupFinding.ABSENT
        )
        assert (step in {Decision.RESEND, Decision.RESEND_PROVED}) == may_resend


def test_a_declaration_that_says_half_is_refused() -> None:
    with pytest.raises(ValueError, match="window_seconds"):
        Declaration(Promise.WINDOW)
    with pytest.raises(ValueError, match="request_valid_seconds"):
        Declaration(Promise.NOTHING, request_valid_seconds=0)
