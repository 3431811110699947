"""Redis is ours, and may hold anything: a foreign entry in a stream neither ends a loop nor blocks it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import strategies as st

from fencepost.flows import Flow, IterableSource, TableSink
from fencepost.flows._frontier import Frontier, Mark
from fencepost.flows._plan import FlowPlan
from fencepost.flows._record import IdempotentRecord, Record, order
from fencepost.flows._shared_reads import SharedReads
from fencepost.flows._shuffle import (
    ChannelKeys,
    ChannelReceiver,
    NoEntry,
    entries_for,
    read_entry,
    value_readers,
)
from fencepost.flows._state import as_it_was
from fencepost.flows._task import Arrival
from fencepost.flows._units import Spread, senders_of
from fencepost.flows.sources import redis_streams
from fencepost.jobs import _fetcher as job_fetcher
from fencepost.kernel import _poison_entries as kernel_stream
from fencepost.redis_streams import stream as job_stream
from tests.unit.fuzz.feeding import LONG, QUICK, Parser, feed
from tests.unit.fuzz.hostile import DOCUMENTS, TEXTS, wrong_bytes, wrong_documents, wrong_text

PROGRAM = FlowPlan(
    Flow("f")
    .source(IterableSource([], name="in"))
    .key_by(str, groups=1)
    .count(name="counts")
    .sink(TableSink())
)
(SENDER,) = senders_of(PROGRAM)
SPREAD = Spread.of(PROGRAM, SENDER)
JOB = {"job_id": "7", "enqueue_ts": "1", "payload_ref": "x", "priority": "0"}
RECORD = {"fencepost": "record", "id": "a", "value": 1}


def entry_of(values: Sequence[str], after: int | None, to: int, traces: Sequence[str] = ()) -> list[bytes]:
    """As the forwarder of one partition sends it."""
    offsets = list(range(to - len(values) + 1, to + 1))
    runs: list[tuple[int, list[Record]]] = [
        (0, [(value, value, None, at) for at, value in enumerate(values)])
    ]
    return entries_for(runs, offsets, SPREAD, after, Mark(at=to, count=to), None, traces)[0]


RIGHT = entry_of(["a", "b"], None, 2, ["00-" + "ab" * 16 + "-" + "cd" * 8 + "-01", "x"])


@st.composite
def wrong_entries(draw: st.DrawFn) -> list[bytes]:
    """An entry with something else in a field, with other fields, or with fewer."""
    fields = list(RIGHT)
    at = draw(st.integers(0, len(fields) - 1))
    packed = (
        st.one_of(DOCUMENTS, st.just([None, 2, None, False, None, 2])).map(str).map(msgspec.msgpack.encode)
    )
    fields[at] = draw(
        st.one_of(
            wrong_bytes(fields[at]), st.binary(max_size=40), packed, st.just(b"\x91" * 3000), st.just(b"\x90")
        )
    )
    return fields[: draw(st.integers(0, len(fields)))] if draw(st.booleans()) else fields


class Pipe:
    def xdel(self, *_: object) -> None: ...

    async def execute(self) -> None: ...


class Held:
    """A Redis whose stream has these entries, once."""

    def __init__(self, *entries: Sequence[bytes]) -> None:
        self.entries = {f"{number}-0".encode(): fields for number, fields in enumerate(entries, 1)}
        self.removed: list[str] = []
        self.rewinds = 0

    async def execute_command(self, *_: object) -> Any:
        return {ChannelKeys("f", 0, SENDER.name).stream.encode(): list(self.entries.items())}

    async def set(self, *_: object) -> None:
        self.rewinds += 1

    async def xdel(self, _: str, entry_id: str) -> None:
        self.removed.append(entry_id)

    def pipeline(self, **_: object) -> Pipe:
        return Pipe()


async def taken(redis: Held, at: int | None = None) -> list[Arrival]:
    receiver = ChannelReceiver(redis, SharedReads(redis, 1, 1), PROGRAM, [SENDER], 0)
    receiver.open(Frontier({SENDER.name: Mark(at=at)}))
    return await receiver.read(10, 0.01, None)


def read_job_entries(found: dict[str, str]) -> None:
    """Whatever names no job can be recorded."""
    for answer in ([("s", [("1-0", found), ("2-0", None)])], {"s": [[("1-0", found)]]}):
        entries = job_stream._entries(answer)  # pyright: ignore[reportPrivateUsage]
        by_id, poison = job_fetcher._parse(entries)  # pyright: ignore[reportPrivateUsage]
        assert all(0 <= job_id < 10**18 for job_id in by_id)
        for entry, reason in poison:
            kernel_stream.poison(entry.stream, entry.entry_id, reason, entry.fields or {})


class Knobs(NamedTuple):
    field: bytes | None
    with_id: bool


def read_source_entry(flat: list[bytes]) -> None:
    for knobs in (Knobs(b"data", False), Knobs(b"data", True), Knobs(None, False)):
        reader = redis_streams.RedisStreamReader(
            None, "s", "0", knobs.field, None, with_id=knobs.with_id, trim=False
        )
        (value,) = reader._values([(b"1-0", flat)])  # pyright: ignore[reportPrivateUsage]
        if knobs.with_id:
            # As ids are stored and sent.
            assert "\0" not in value.id
            value.id.encode()
    redis_streams._headers(flat)  # pyright: ignore[reportPrivateUsage]


TEXT = TEXTS.map(lambda text: text.encode(errors="replace").decode())
"""As the driver decodes it: what is no text is replaced."""
NAMES = st.sampled_from([b"data", b"x-original-message-id", b"trace_id", b"traceparent"])
PARSERS = {
    "a job's entry": Parser(
        read_job_entries,
        st.one_of(
            st.dictionaries(st.one_of(st.sampled_from(sorted(JOB)), TEXT), TEXT, max_size=5),
            TEXT.map(lambda text: JOB | {"job_id": text}),
        ),
    ),
    "a channel's entry": Parser(
        lambda fields: read_entry(fields, value_readers(PROGRAM)), wrong_entries(), (NoEntry,)
    ),
    "a source's entry": Parser(
        read_source_entry,
        st.lists(st.tuples(st.one_of(NAMES, st.binary(max_size=5)), st.binary(max_size=20)), min_size=1).map(
            lambda pairs: [part for pair in pairs for part in pair]
        ),
    ),
    "a foreign document": Parser(
        lambda plain: (IdempotentRecord.of(plain), as_it_was(plain)),
        st.one_of(wrong_documents(RECORD), DOCUMENTS),
    ),
    "an entry id": Parser(order, wrong_text("1700000000000-12"), (ValueError,)),
}


@pytest.mark.parametrize("name", PARSERS)
def test_whatever_lies_in_redis_is_read_or_told_apart(name: str) -> None:
    feed(PARSERS[name], QUICK)


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PARSERS)
def test_whatever_lies_in_redis_is_read_or_told_apart_at_length(name: str) -> None:
    feed(PARSERS[name], LONG)


def packed(value: Any) -> bytes:
    return msgspec.msgpack.encode(value)


HEAD, PARTS = RIGHT[1], RIGHT[3]
NO_ENTRIES = [
    [],
    [b"h"],
    [b"data", b"hello"],
    [b"h", b"\xc1", b"c", PARTS],
    [b"h", packed([1, 2]), b"c", PARTS],
    [b"h", packed(["x", 2, None, False, None, 2]), b"c", PARTS],
    [b"h", packed([None, "2-x", None, False, None, 2]), b"c", PARTS],
    [b"h", HEAD, b"c", packed([[7, [], [], None, []]])],
    [b"h", HEAD, b"c", packed([[-1, [], [], None, []]])],
    [b"h", HEAD, b"c", packed([[0, ["a"]]])],
    [b"h", HEAD, b"c", packed([[0, ["a"], [], None, []]])],
    [b"h", HEAD, b"c", packed([[0, "a", ["a"], None, [1]]])],
    [b"h", HEAD, b"c", b"\x91" * 3000],
    [b"h", HEAD, b"c", PARTS, b"t", packed([["x", 7]])],
]


@pytest.mark.parametrize("fields", NO_ENTRIES, ids=repr)
async def test_what_is_no_entry_of_a_channel_is_removed_and_the_next_one_is_taken(
    fields: list[bytes],
) -> None:
    redis = Held(fields, RIGHT)

    (arrival,) = await taken(redis)

    assert (arrival.count, arrival.mark.at) == (2, 2)
    assert redis.removed == ["1-0"]


async def test_a_damaged_entry_is_a_gap_that_is_asked_for_again() -> None:
    redis = Held([b"h", b"\xc1", b"c", PARTS], entry_of(["c"], 2, 3))

    assert await taken(redis, at=1) == []
    assert (redis.removed, redis.rewinds) == (["1-0"], 1)


async def test_an_offset_that_is_none_shows_where_entries_overlap() -> None:
    redis = Held([b"h", HEAD, b"c", packed([[0, ["a"], ["a"], None, ["x"]]])], RIGHT)

    (arrival,) = await taken(redis, at=1)

    assert arrival.count == 1
    assert redis.removed == ["1-0"]


def test_two_ids_that_are_no_text_stay_two() -> None:
    def id_of(value: bytes) -> str:
        reader = redis_streams.RedisStreamReader(None, "s", "0", b"data", None, with_id=True, trim=False)
        (record,) = reader._values([(b"1-0", [b"x-original-message-id", value])])  # pyright: ignore[reportPrivateUsage]
        return str(record.id)

    assert len({id_of(b"\xff"), id_of(b"\xfe"), id_of(b"a\0"), id_of(b"a")}) == 4
    assert id_of("Zaun ä".encode()) == "Zaun ä"


@pytest.mark.parametrize("wrong", [{"id": 7}, {"fencepost": "mine"}, {"fencepost": []}], ids=repr)
def test_a_document_with_the_names_of_a_record_is_none(wrong: dict[str, Any]) -> None:
    assert IdempotentRecord.of(RECORD | wrong) is None
    assert as_it_was(RECORD | wrong) == RECORD | wrong


async def test_of_an_entry_that_overlaps_what_was_taken_the_rest_is_taken() -> None:
    redis = Held(entry_of(["a", "b", "c"], None, 3))

    (arrival,) = await taken(redis, at=1)

    assert [record[:2] for record in arrival.runs[0][1]] == [("b", "b"), ("c", "c")]
    assert [(record[3], arrival.offsets[record[3]]) for record in arrival.runs[0][1]] == [(0, 2), (1, 3)]
