"""What became of an entry."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from fencepost.jobs._stream_reconciler import fate
from fencepost.kernel.job import Dispatched
from fencepost.redis_streams.stream import StreamLook

LOOK = StreamLook(
    incarnation="life",
    length=50,
    first_id="100-0",
    last_generated_id="200-5",
    entries_added=500,
    last_delivered_id="150-3",
    pending=10,
)


def dispatched(entry_id: str, incarnation: str = "life") -> Dispatched:
    return Dispatched(7, datetime.now(UTC), entry_id, incarnation)


@pytest.mark.parametrize(
    ("entry_id", "became"),
    [
        ("99-9", "trimmed"),
        ("100-0", "delivered"),
        ("150-3", "delivered"),
        ("150-4", "waiting"),
        ("200-5", "waiting"),
        ("200-6", "rewound"),
        ("1000-0", "rewound"),
    ],
)
def test_the_place_of_an_entry_tells_its_fate(entry_id: str, became: str) -> None:
    assert fate(dispatched(entry_id), LOOK) == became


def test_another_life_of_redis_has_none_of_its_entries() -> None:
    assert fate(dispatched("150-4", "before"), LOOK) == "wiped"
    assert fate(dispatched("150-4"), replace(LOOK, incarnation=None)) == "wiped"


def test_an_empty_stream_has_lost_what_it_once_had() -> None:
    assert fate(dispatched("150-4"), replace(LOOK, length=0, first_id=None)) == "trimmed"


def test_without_a_group_nothing_was_delivered() -> None:
    assert fate(dispatched("100-0"), replace(LOOK, last_delivered_id=None)) == "waiting"
