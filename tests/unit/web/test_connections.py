"""Which connections are let in: decisions on a table."""

import pytest

from fencepost_server.web._connections import (
    BODY_BYTES_PER_SECOND,
    SHARE_MIN,
    ConnectionTable,
    Ending,
    Limits,
    Waiting,
    source_of,
)
from fencepost_server.web._networks import Networks

PROXY = Networks.read("10.0.0.7")


def table(**limits: int) -> ConnectionTable:
    return ConnectionTable(Limits(**{"total_max": 4, "per_address_max": 3, **limits}, proxies=PROXY))


def fill(table: ConnectionTable, *sources: str, wait: bool = True) -> list[Waiting]:
    places = [Waiting(source, lambda: None) for source in sources]
    for place in places:
        table.opened(place.source)
        if wait:
            table.begins_to_wait(place)
    return places


def test_there_is_room_until_there_is_none() -> None:
    one = table()
    assert one.decide("a") == (None, None)
    fill(one, "a", "b", "c", "d", wait=False)
    assert one.decide("e") == (Ending.TOTAL_FULL, None)
    one.closed("a")
    assert one.decide("e") == (None, None)


def test_the_one_that_has_waited_longest_makes_room() -> None:
    one = table()
    first, second, *_ = fill(one, "a", "b", "c", "d")
    assert one.decide("e") == (Ending.TOTAL_FULL, first)
    one.waits_no_more(first)
    assert one.decide("e") == (Ending.TOTAL_FULL, second)


def test_a_request_that_is_answered_is_never_closed_for_another() -> None:
    one = table()
    fill(one, "a", "b", "c", wait=False)
    (waiting,) = fill(one, "d")
    assert one.decide("e") == (Ending.TOTAL_FULL, waiting)
    one.waits_no_more(waiting)
    assert one.decide("e") == (Ending.TOTAL_FULL, None)


def test_an_address_with_its_share_of_a_full_table_gets_no_more() -> None:
    one = table(total_max=3 * SHARE_MIN, per_address_max=100)
    first, *_ = fill(one, *["a", "b"] * SHARE_MIN)
    fill(one, *["c"] * SHARE_MIN, wait=False)
    assert one.decide("a") == (Ending.TOTAL_FULL, None)
    assert one.decide("c") == (Ending.TOTAL_FULL, first)
    assert one.decide("d") == (Ending.TOTAL_FULL, first)


def test_one_address_replaces_its_own_connections_alone() -> None:
    one = table(total_max=100)
    (_, own, *_) = fill(one, "b", "a", "a", "a")
    assert one.decide("a") == (Ending.ADDRESS_FULL, own)
    assert one.decide("b") == (None, None)


def test_a_proxy_that_is_named_speaks_for_many() -> None:
    one = table(total_max=100)
    fill(one, *["10.0.0.7"] * 50)
    assert one.decide("10.0.0.7") == (None, None)


def test_nothing_is_left_of_what_has_gone() -> None:
    one = table()
    for place in fill(one, "a", "a", "b"):
        one.waits_no_more(place)
        one.waits_no_more(place)
        one.closed(place.source)
    assert one == table()


@pytest.mark.parametrize(
    ("host", "source"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::"),
        ("fe80::1%eth0", "fe80::"),
        ("::1", "::1"),
        ("", ""),
    ],
)
def test_an_ipv6_client_has_one_network_and_not_a_billion_addresses(host: str, source: str) -> None:
    assert source_of(host) == source


def test_a_body_that_comes_fast_enough_has_time() -> None:
    limits = Limits(body_seconds=5)
    assert limits.body_deadline_seconds(0) == 5
    assert limits.body_deadline_seconds(10 * BODY_BYTES_PER_SECOND) == 15
