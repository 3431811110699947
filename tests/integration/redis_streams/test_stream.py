"""One priority's stream on a real server."""

import asyncio
from typing import Any

import pytest
from redis.exceptions import ResponseError

from fencepost.embedded._deadline import Deadline
from fencepost.redis_streams.stream import StreamEntry, Streams, is_missing_group

NORMAL = 1
# In one slot, as the priorities of one key are: a cluster asks for it.
PRIORITIES = A, B, C, D = ("{jobs}:a", "{jobs}:b", "{jobs}:c", "{jobs}:d")


def job_ids(entries: list[StreamEntry]) -> list[int | None]:
    return [entry.job_id for entry in entries]


async def filled(streams: Streams, stream: str, count: int, *, first: int = 1) -> list[str]:
    """A stream with entries for jobs; answers their ids."""
    sent = await streams.dispatch(stream, NORMAL, range(first, first + count), 200_000)
    return list(sent.entry_ids)


async def test_an_entry_has_the_fields_that_operators_know(streams: Streams, redis: Any) -> None:
    sent = await streams.dispatch("jobs", 2, [7], 200_000)
    [(entry_id, fields)] = await redis.xrange("jobs")
    assert [entry_id] == sent.entry_ids
    assert fields.keys() == {"job_id", "enqueue_ts", "payload_ref", "priority"}
    assert (fields["job_id"], fields["payload_ref"], fields["priority"]) == ("7", "task:payload:7", "2")


async def test_one_life_of_redis_has_one_name_and_the_next_another(streams: Streams, redis: Any) -> None:
    first = await streams.dispatch("jobs", NORMAL, [1], 200_000)
    again = await streams.dispatch("jobs", NORMAL, [2], 200_000)
    await redis.flushall()
    wiped = await streams.dispatch("jobs", NORMAL, [3], 200_000)
    assert first.incarnation == again.incarnation != wiped.incarnation
    assert (await streams.sweep("jobs")).incarnation == wiped.incarnation


async def test_no_more_is_written_than_fits_below_half_of_the_bound(streams: Streams) -> None:
    first = await streams.dispatch("jobs", NORMAL, range(30), 100)
    second = await streams.dispatch("jobs", NORMAL, range(30, 60), 100)
    third = await streams.dispatch("jobs", NORMAL, [60], 100)
    assert [len(sent.entry_ids) for sent in (first, second, third)] == [30, 20, 0]
    assert await streams.length("jobs") == 50
    # Those that were written are the first ones: the answer is read beside the jobs, by place.
    entries = await streams.take({"jobs": 100}, 100, "me")
    assert job_ids(entries) == list(range(50))


async def test_what_was_written_before_the_group_belongs_to_it(streams: Streams) -> None:
    await filled(streams, "jobs", 3)
    assert job_ids(await streams.take({"jobs": 10}, 10, "me")) == [1, 2, 3]


async def test_never_more_is_taken_than_there_is_room_for(streams: Streams) -> None:
    for stream in PRIORITIES:
        await filled(streams, stream, 50)
    entries = await streams.take(dict(zip(PRIORITIES, (8, 4, 2, 1), strict=True)), 15, "me")
    taken = {stream: sum(entry.stream == stream for entry in entries) for stream in PRIORITIES}
    assert list(taken.values()) == [8, 4, 2, 1]


async def test_what_an_empty_stream_leaves_goes_to_the_others(streams: Streams) -> None:
    await filled(streams, B, 100)
    assert len(await streams.take({A: 8, B: 4, C: 3}, 15, "me")) == 15
    # A stream whose turn it is not gets what is left.
    assert len(await streams.take({A: 1, B: 0, C: 0}, 1, "me")) == 1


async def test_each_entry_is_given_to_one_consumer(streams: Streams) -> None:
    await filled(streams, "jobs", 100)
    both = await asyncio.gather(*(streams.take({"jobs": 60}, 60, name) for name in ("me", "you")))
    assert {*job_ids(both[0]), *job_ids(both[1])} == set(range(1, 101))
    assert len(both[0]) + len(both[1]) == 100


async def test_a_wiped_stream_is_taken_from_again(streams: Streams, redis: Any) -> None:
    await filled(streams, "jobs", 1)
    await streams.take({"jobs": 1}, 1, "me")
    await redis.flushall()
    await filled(streams, "jobs", 1, first=9)
    assert job_ids(await streams.take({"jobs": 1}, 1, "me")) == [9]


async def test_a_wait_that_a_wipe_ends_asks_for_a_new_group(streams: Streams, redis: Any) -> None:
    await streams.take({"jobs": 1}, 1, "me")
    waiting = asyncio.create_task(streams.wait(["jobs"], "me", 1, 5000))
    await _blocked(redis)
    await redis.flushall()
    with pytest.raises(ResponseError) as caught:
        await waiting
    assert is_missing_group(caught.value)


async def test_waiting_ends_with_the_first_entry(streams: Streams, redis: Any) -> None:
    await streams.take({A: 1, B: 1}, 1, "me")
    waiting = asyncio.create_task(streams.wait([A, B], "me", 5, 5000))
    await _blocked(redis)
    await filled(streams, B, 3)
    assert job_ids(await waiting) == [1, 2, 3]


async def test_settled_entries_are_neither_pending_nor_there(streams: Streams) -> None:
    entry_ids = await filled(streams, "jobs", 2500)
    await streams.take({"jobs": 2500}, 2500, "me")
    assert await streams.settle("jobs", entry_ids) == 2500
    look = await streams.sweep("jobs")
    assert (look.length, look.pending) == (0, 0)
    assert await streams.settle("jobs", entry_ids) == 0


async def test_bytes_that_are_no_text_do_not_block_the_stream(streams: Streams, redis: Any) -> None:
    await redis.xadd("jobs", {b"job_id": b"\xff\xfe", b"\x80": b"x"})
    await filled(streams, "jobs", 1)
    entries = await streams.take({"jobs": 10}, 10, "me")
    assert job_ids(entries) == [1, None]
    assert (entries[1].fields or {})["job_id"] == "��"


async def test_what_a_consumer_was_given_can_be_asked_for(streams: Streams) -> None:
    entry_ids = await filled(streams, "jobs", 3)
    await streams.take({"jobs": 2}, 2, "me")
    own = await streams.held_by("me", "jobs", "0", 10)
    assert [entry.entry_id for entry in own] == entry_ids[:2]
    assert await streams.held_by("you", "jobs", "0", 10) == []


async def test_a_pending_entry_that_was_removed_has_no_fields(streams: Streams, redis: Any) -> None:
    [entry_id] = await filled(streams, "jobs", 1)
    await streams.take({"jobs": 1}, 1, "me")
    await redis.xdel("jobs", entry_id)
    assert await streams.held_by("me", "jobs", "0", 10) == [StreamEntry("jobs", entry_id, None)]


async def test_idle_entries_are_taken_over_and_the_cursor_moves_on(streams: Streams) -> None:
    entry_ids = await filled(streams, "jobs", 5)
    await streams.take({"jobs": 5}, 5, "gone")
    cursor, first = await streams.claim_idle("jobs", "me", 0, "0-0", 2)
    _, second = await streams.claim_idle("jobs", "me", 0, cursor, 2)
    assert [entry.entry_id for entry in [*first, *second]] == entry_ids[:4]
    # From the beginning each time, the end of the list would never be reached.
    _, again = await streams.claim_idle("jobs", "me", 0, "0-0", 2)
    assert [entry.entry_id for entry in again] == entry_ids[:2]


async def test_fresh_entries_are_not_taken_over(streams: Streams) -> None:
    await filled(streams, "jobs", 1)
    await streams.take({"jobs": 1}, 1, "me")
    assert await streams.claim_idle("jobs", "you", 60_000, "0-0", 10) == ("0-0", [])


async def test_a_look_tells_where_everything_is(streams: Streams) -> None:
    entry_ids = await filled(streams, "jobs", 5)
    await streams.take({"jobs": 3}, 3, "me")
    await streams.settle("jobs", entry_ids[:1])
    look = await streams.sweep("jobs")
    assert (look.length, look.pending, look.entries_added) == (4, 2, 5)
    assert (look.first_id, look.last_delivered_id) == (entry_ids[1], entry_ids[2])
    assert look.last_generated_id == entry_ids[4]
    assert await streams.are_pending("jobs", entry_ids) == [False, True, True, False, False]


async def test_a_look_at_nothing_is_no_error(streams: Streams) -> None:
    look = await streams.sweep("jobs")
    assert (look.incarnation, look.length, look.first_id, look.last_delivered_id) == (None, 0, None, None)


async def test_an_error_is_not_taken_for_an_empty_stream(streams: Streams, redis: Any) -> None:
    """A sweep that read it so would drive every job again."""
    await redis.set("jobs", "somebody else's")
    with pytest.raises(ResponseError):
        await streams.sweep("jobs")


async def test_what_strangers_acknowledged_and_left_does_not_fill_the_stream(
    streams: Streams, redis: Any
) -> None:
    entry_ids = await filled(streams, "jobs", 10)
    await streams.take({"jobs": 6}, 6, "me")
    await redis.xack("jobs", "workers", *entry_ids[:3])
    look = await streams.sweep("jobs")
    assert (look.first_id, look.length) == (entry_ids[3], 7)
    # What is pending, and what is not delivered yet, is untouched.
    assert [entry.entry_id for entry in await streams.held_by("me", "jobs", "0", 10)] == entry_ids[3:6]
    assert job_ids(await streams.take({"jobs": 10}, 10, "me")) == [7, 8, 9, 10]


async def test_a_consumer_that_leaves_is_forgotten_unless_it_holds_something(
    streams: Streams, redis: Any
) -> None:
    await filled(streams, "jobs", 1)
    await streams.take({"jobs": 1}, 1, "holder")
    await streams.take({"jobs": 1}, 1, "idler")
    for consumer in ("holder", "idler"):
        await streams.depart("jobs", consumer)
    assert [consumer["name"] for consumer in await redis.xinfo_consumers("jobs", "workers")] == ["holder"]


async def test_a_redis_that_takes_no_writes_does_not_drive(streams: Streams, redis: Any) -> None:
    await streams.probe("jobs")
    await redis.config_set("maxmemory", "1")
    try:
        with pytest.raises(ResponseError):
            await streams.probe("jobs")
    finally:
        await redis.config_set("maxmemory", "0")


async def _blocked(redis: Any) -> None:
    """Wait until a reader waits for an entry."""
    loop = asyncio.get_running_loop()

    def blocked() -> bool:
        info = asyncio.run_coroutine_threadsafe(redis.info("clients"), loop).result(5)
        return bool(info["blocked_clients"])

    await asyncio.to_thread(Deadline(60, "a client is blocked").wait, blocked)
