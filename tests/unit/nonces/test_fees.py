"""What is offered, and by how much it is raised: at least a tenth of both, never above the cap."""

from hypothesis import given
from hypothesis import strategies as st

from fencepost_nonces.sending._fees import (
    GWEI,
    Fees,
    Market,
    Speed,
    at_speed,
    raised,
    room_for_a_no_op,
    suggested,
    tips_of,
)

WEI = st.integers(min_value=1, max_value=10**15)


def test_the_base_fee_may_double() -> None:
    assert suggested(Market(10 * GWEI, GWEI), 500 * GWEI) == Fees(21 * GWEI, GWEI)


def test_above_the_cap_nothing_is_offered() -> None:
    assert suggested(Market(10 * GWEI, GWEI), 9 * GWEI) is None
    assert suggested(Market(10 * GWEI, GWEI), 15 * GWEI) == Fees(15 * GWEI, GWEI)


@given(WEI, WEI, WEI, WEI, WEI)
def test_a_raise_is_a_tenth_of_both_or_none(fee: int, tip: int, base: int, usual: int, cap: int) -> None:
    old = Fees(max(fee, tip), tip)
    new = raised(old, Market(base, usual), cap)

    if new is None:
        assert old.max_fee * 1.1 >= cap * 0.98
        return
    assert new.max_fee * 10 >= old.max_fee * 11
    assert new.max_priority is not None
    assert new.max_priority * 10 >= tip * 11 or new.max_priority == new.max_fee
    assert new.max_priority <= new.max_fee <= cap


def test_without_a_base_fee_the_gas_price_is_offered() -> None:
    assert suggested(Market(None, 3 * GWEI), 500 * GWEI) == Fees(3 * GWEI, None)
    assert suggested(Market(None, 3 * GWEI), 2 * GWEI) is None


@given(WEI, WEI, WEI)
def test_a_gas_price_is_raised_by_a_tenth_or_not_at_all(price: int, usual: int, cap: int) -> None:
    new = raised(Fees(price, None), Market(None, usual), cap)

    if new is None:
        assert price * 1.1 >= cap * 0.98
        return
    assert new.max_priority is None
    assert price * 11 <= new.max_fee * 10 <= cap * 10
    assert new.max_fee >= min(usual, cap)


def test_speeds_are_percentiles_of_what_was_paid_around_what_the_node_suggests() -> None:
    history = {
        "gasUsedRatio": [0.5, 0.0, 0.1, 1],
        "reward": [["0x1", "0x9"], ["0x0", "0x0"], ["0x2", "0xa"], ["0x3", "0xb"]],
    }
    paid = tips_of(history)
    assert paid == {"slow": 2, "fast": 10}, "the median over the blocks that were not empty"
    market = Market(100, 5)
    assert [at_speed(market, speed, paid).tip for speed in ("slow", "standard", "fast")] == [2, 5, 10]
    odds: list[dict[Speed, int]] = [{"slow": 7, "fast": 1}, {}]
    for odd in odds:
        assert [at_speed(market, speed, odd).tip for speed in ("slow", "fast")] == [5, 5]
    assert [at_speed(Market(None, 8), speed, paid).tip for speed in ("slow", "fast")] == [8, 10]


def test_nothing_paid_says_nothing() -> None:
    assert tips_of({"gasUsedRatio": [0.0], "reward": [["0x0", "0x0"]]}) == {}
    assert tips_of({"gasUsedRatio": [0.5]}) == {}
    assert tips_of({"gasUsedRatio": [0.5], "reward": [["0x0", "0x0"]]}) == {}


@given(st.integers(1, 10**15))
def test_the_room_for_a_no_op_is_the_most_that_leaves_it(cap: int) -> None:
    room = room_for_a_no_op(cap)
    if room > 0:
        no_op = raised(Fees(room, None), Market(None, 0), cap)
        assert no_op is not None
        assert no_op.max_fee <= cap
    assert raised(Fees(room + 1, None), Market(None, 0), cap) is None
