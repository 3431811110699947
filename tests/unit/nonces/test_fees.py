"""What is offered, and by how much it is raised: at least a tenth of both, never above the cap."""

from hypothesis import given
from hypothesis import strategies as st

from fencepost.nonces.sending.fees import GWEI, Fees, raised, suggested

WEI = st.integers(min_value=1, max_value=10**15)


def test_the_base_fee_may_double() -> None:
    assert suggested(10 * GWEI, GWEI, 500 * GWEI) == Fees(21 * GWEI, GWEI)


def test_above_the_cap_nothing_is_offered() -> None:
    assert suggested(10 * GWEI, GWEI, 9 * GWEI) is None
    assert suggested(10 * GWEI, GWEI, 15 * GWEI) == Fees(15 * GWEI, GWEI)


@given(WEI, WEI, WEI, WEI, WEI)
def test_a_raise_is_a_tenth_of_both_or_none(fee: int, tip: int, base: int, usual: int, cap: int) -> None:
    old = Fees(max(fee, tip), tip)
    new = raised(old, base, usual, cap)

    if new is None:
        assert old.max_fee * 1.1 >= cap * 0.98
        return
    assert new.max_fee * 10 >= old.max_fee * 11
    assert new.max_priority * 10 >= old.max_priority * 11 or new.max_priority == new.max_fee
    assert new.max_priority <= new.max_fee <= cap
