"""The names of streams."""

import itertools

import pytest
from redis.crc import key_slot

from fencepost.redis_streams._keys import JOBS_STREAM, PREFIX, beside, channel, of_sink, response
from fencepost.redis_streams.stream import entry_order
from fencepost.redis_streams.stream_names import NORMAL, PRIORITIES, stream_of


@pytest.mark.parametrize(
    ("key", "tagged"), [(JOBS_STREAM, "fencepost:{jobs}"), ("of-an-operator", "{of-an-operator}")]
)
def test_the_default_queue_uses_the_key_itself_and_the_others_lie_in_its_slot(key: str, tagged: str) -> None:
    assert stream_of(key, "default", NORMAL) == key
    assert stream_of(key, "default", 0) == f"{tagged}:urgent"
    assert stream_of(key, "mail", 0) == f"{tagged}:urgent:q:mail"


@pytest.mark.parametrize(
    "keys",
    [
        [JOBS_STREAM, beside(JOBS_STREAM, "incarnation"), stream_of(JOBS_STREAM, "mail", 0)],
        [channel("totals", 3, what, "orders:0") for what in ("channel", "incarnation", "rewind.2")],
        [response("player:ann", "r1")],
        [of_sink(what, key) for what in ("frontier", "seen") for key in ("out", "{out}", "x{out}:y")],
        ["out", of_sink("seen", "out")],
    ],
    ids=["jobs", "flows", "responses", "sinks", "a user's key"],
)
def test_each_key_begins_with_our_prefix_and_lies_in_the_slot_of_its_script(keys: list[str]) -> None:
    assert all(key.startswith(PREFIX) for key in keys if key != "out")
    assert len({key_slot(key.encode()) for key in keys}) == 1


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
