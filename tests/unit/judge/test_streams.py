"""How many streams of events may be open, in total and of one user."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from fencepost.errors import Backpressure, ServerUnavailable
from fencepost_judge._submission_watch import EventStream, Streams


def test_one_user_has_so_many_and_others_have_theirs() -> None:
    streams = Streams(total_max=10, per_user_max=2)
    end = streams.begin("ada")
    streams.begin("ada")
    with pytest.raises(Backpressure, match="JUDGE_STREAMS_PER_USER"):
        streams.begin("ada")
    streams.begin("bob")
    end()
    streams.begin("ada")
    assert streams.open == 3


def test_all_of_them_have_so_many() -> None:
    streams = Streams(total_max=3, per_user_max=2)
    ends = [streams.begin(name) for name in ("ada", "bob", "")]
    with pytest.raises(ServerUnavailable, match="JUDGE_STREAMS_MAX"):
        streams.begin("eve")
    for end in ends:
        end()
    assert streams.open == 0
    # An operator has no name, and no bound of its own.
    for _ in range(3):
        streams.begin("")


async def test_a_stream_that_never_began_counts_no_more() -> None:
    """A reader that is gone before the first event leaves a generator that was never entered."""
    streams = Streams(total_max=1, per_user_max=1)

    async def events() -> AsyncGenerator[str]:
        yield "event: status\n\n"

    async def gone(_: Any = None) -> Any:
        raise OSError("the client is gone")

    answer = EventStream(events(), streams.begin("ada"), {})
    with pytest.raises(Exception, match=r".*"):
        await answer({"type": "http", "asgi": {"spec_version": "2.4"}}, gone, gone)
    assert streams.open == 0
