"""The names of streams."""

import itertools

from fencepost.redis_streams.stream import entry_order
from fencepost.redis_streams.stream_names import NORMAL, PRIORITIES, beside, stream_of


def test_the_default_queue_uses_the_key_that_operators_know() -> None:
    assert stream_of("deepoj:jobs", "default", NORMAL) == "deepoj:jobs"
    assert stream_of("deepoj:jobs", "default", 0) == "{deepoj:jobs}:urgent"


def test_no_queue_and_priority_share_a_stream_however_the_queue_is_named() -> None:
    queues = ["default", "mail", "mail:urgent", "urgent", "urgent:q:mail", "q:mail", "q"]
    places = list(itertools.product(queues, range(len(PRIORITIES))))
    assert len({stream_of("jobs", queue, priority) for queue, priority in places}) == len(places)


def test_a_key_beside_a_stream_lies_in_its_slot() -> None:
    assert beside("jobs", "incarnation") == "{jobs}:incarnation"
    assert beside("{jobs}:urgent", "incarnation") == "{jobs}:urgent:incarnation"


def test_entry_ids_compare_by_number() -> None:
    assert entry_order("9-1") < entry_order("10-0") < entry_order("10-2") < entry_order("10-10")
    assert entry_order("7") == (7, 0)
