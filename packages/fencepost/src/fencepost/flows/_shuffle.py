"""Channels: how records get from the source partitions, and from the key groups of a keyed stage, to the key
groups of a keyed stage. Redis streams, which may be lost.

An entry is everything that one sender has for one group between two offsets, `after` and `to`. Its content is
a function of the source, or of what a stage has committed, so an entry is valid whichever process sent it,
and however often. The receiver takes an entry only if it continues what was taken before, and drops what it
has already: gaps and repeats are harmless. At a gap the receiver asks the sender to rewind. Data that is not
an entry is removed, and causes at most a gap.
"""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, repeat
from pathlib import Path
from types import GenericAlias
from typing import Any, TypeVar, cast

import msgspec

from fencepost.flows._commit_trace import Traces
from fencepost.flows._frontier import Frontier, Mark
from fencepost.flows._plan import FlowPlan, SourceStage
from fencepost.flows._record import END, Offset, Record, is_after, order
from fencepost.flows._shared_reads import SharedReads
from fencepost.flows._state import as_key, reviver
from fencepost.flows._steps import Batch
from fencepost.flows._taken import group_of
from fencepost.flows._task import Arrival
from fencepost.flows._units import Receiver, RecordSender, Spread
from fencepost.flows._value_codec import UnknownClass, decoder, flat, marked, marked_wide
from fencepost.logs import get_logger
from fencepost.redis_streams import _keys as redis_keys

_log = get_logger(__name__)
_SEND = (Path(__file__).parent / "shuffle.lua").read_text(encoding="utf-8")
LOOK_AGAIN_SECONDS = 1.0
EDITIONS_CLEANED = 5
"""The number of earlier editions whose data in Redis a sender removes."""
Runs = Sequence[tuple[int, Batch]]


EntryHead = tuple[Offset | None, Offset | None, int | float | None, bool, int | float | None, int]
"""After, to, the current watermark; whether the sender has ended, its watermark at `to`, and its count
there."""
Part = tuple[int, msgspec.Raw, list[Any], list[Any] | None, list[Offset]]
"""Of one input, in columns: values, still packed, their keys, their times if any has one, and offsets."""
Parts = list[tuple[int, list[Any], list[Any], list[Any] | None, list[Offset]]]
"""The same, with their values."""
Places = list[tuple[Offset, str]]
_read_head = msgspec.msgpack.Decoder(EntryHead).decode
_read_parts = decoder(list[Part], found_only=True)
ValueReader = Callable[[bytes], list[Any]]
"""Reads the values of one input."""
_read_places = msgspec.msgpack.Decoder(Places).decode
M = TypeVar("M", bound=tuple[Any, ...])


class NoEntry(Exception):
    """Data in the channel that another program wrote, or that is damaged."""


class ChannelLost(Exception):
    """Sent entries are gone, or the receiver lacks some: the sender begins again at the receiver's
    frontier."""


@dataclass(frozen=True, slots=True)
class ChannelKeys:
    """All keys of one channel have one hash tag, so that a script may use them together."""

    flow: str
    group: int | str
    sender: str
    edition: int = 1
    """Of the flow: entries name the graph's inputs by number, so those of another graph must not be read
    by this one."""

    def _key(self, what: str) -> str:
        edition = "" if self.edition == 1 else f".{self.edition}"
        return redis_keys.channel(self.flow, self.group, f"{what}{edition}", self.sender)

    @property
    def stream(self) -> str:
        return self._key("channel")

    @property
    def incarnation(self) -> str:
        return self._key("incarnation")

    @property
    def rewind(self) -> str:
        return self._key("rewind")


class ChannelSender:
    """The sending side of one sender: one channel to each group."""

    def __init__(
        self,
        redis: Any,
        flow: str,
        sender: str,
        groups: Sequence[int | str],
        length: int,
        edition: int = 1,
    ) -> None:
        self._redis = redis
        self._keys = [ChannelKeys(flow, group, sender, edition) for group in groups]
        self._before = [
            ChannelKeys(flow, group, sender, older)
            for group in groups
            for older in range(max(1, edition - EDITIONS_CLEANED), edition)
        ]
        self._length = length
        self._incarnation = secrets.token_hex(8)
        self._script = redis.register_script(_SEND)

    async def begin(self) -> None:
        """Empty the channels and take them over. They are trimmed, not deleted, so that entry ids keep
        growing."""
        pipe = self._redis.pipeline(transaction=False)
        for keys in self._before:
            pipe.unlink(keys.stream, keys.incarnation, keys.rewind)
        for keys in self._keys:
            pipe.xtrim(keys.stream, maxlen=0, approximate=False)
            pipe.delete(keys.rewind)
            pipe.set(keys.incarnation, self._incarnation)
        await pipe.execute()

    async def send(self, entries: Mapping[int, Sequence[Any]]) -> list[int]:
        """Send an entry to each group; returns the groups whose channel is full."""
        await self._load()
        pipe = self._redis.pipeline(transaction=False)
        for group, fields in entries.items():
            keys = self._keys[group]
            pipe.evalsha(
                self._script.sha,
                3,
                keys.stream,
                keys.incarnation,
                keys.rewind,
                self._incarnation,
                self._length,
                *fields,
            )
        answers = await pipe.execute()
        if b"lost" in answers:
            raise ChannelLost
        return [group for group, answer in zip(entries, answers, strict=True) if answer == b"full"]

    async def check(self, sent: Offset | None, taken: Sequence[Mark]) -> None:
        """While nothing is sent: check that every receiver has, or can still read, what was sent last."""
        pipe = self._redis.pipeline(transaction=False)
        for keys in self._keys:
            pipe.get(keys.incarnation)
            pipe.exists(keys.rewind)
            pipe.xlen(keys.stream)
        answers = await pipe.execute()
        for group, mark in enumerate(taken):
            incarnation, rewind, length = answers[3 * group : 3 * group + 3]
            lacks = sent is not None and is_after(sent, mark.at)
            if lacks and (incarnation != self._incarnation.encode() or rewind or not length):
                raise ChannelLost

    async def _load(self) -> None:
        """Load the script: Redis loses it when it is restarted or wiped."""
        if not (await self._redis.script_exists(self._script.sha))[0]:
            await self._redis.script_load(_SEND)


def entries_for(
    runs: Runs,
    offsets: Sequence[Offset],
    spread: Spread,
    after: Offset | None,
    mark: Mark,
    watermark: float | None,
    traces: Traces = (),
    declared: Sequence[bool] = (),
) -> dict[int, list[Any]]:
    """The entry for each receiver, by its place: those that get no record also learn the sender's position.

    Through an input with a declared type records are sent as plain data, and converted back by it.
    """
    placed = _spread(runs, offsets, spread)
    traced: list[list[tuple[Offset, str]]] = [[] for _ in placed]
    if traces:
        for group, part in enumerate(placed):
            places = [(offsets[at], traces[at]) for _, members in part for _, _, _, at in members]
            traced[group] = [(offset, place) for offset, place in places if place is not None]
    head = flat([after, mark.at, watermark, mark.ended, mark.watermark, mark.count])
    return {
        group: [
            b"h",
            head,
            b"c",
            written(part, offsets, declared),
            *([b"t", flat(traced[group])] if traced[group] else ()),
        ]
        for group, part in enumerate(placed)
    }


def _spread(runs: Runs, offsets: Sequence[Offset], to: Spread) -> list[list[tuple[int, Batch]]]:
    """Split runs by receiver, and by input within it."""
    parts: list[list[tuple[int, Batch]]] = [[] for _ in to.receivers]
    for input_number, records in runs:
        span = to.spans[input_number]
        by_group: list[Batch] = [[] for _ in span]
        # By key: how to add a record to the batch of its group.
        places: dict[Any, Callable[[Record], None]] = {}
        for record in records:
            key = record[1]
            spread = key if key is not None else str(offsets[record[3]])
            place = places.get(spread)
            if place is None:
                place = places[spread] = by_group[group_of(spread, len(span))].append
            place(record)
        for receiver, members in zip(span, by_group, strict=True):
            if members:
                parts[receiver].append((input_number, members))
    return parts


def written(part: Runs, offsets: Sequence[Offset], declared: Sequence[bool]) -> bytes:
    """Values, keys, times and offsets by input, in columns: most columns are plain, and are then encoded
    without a look at their parts. Integers beyond 64 bits are rare, and only they need the slow path."""
    try:
        return _written_by(marked, part, offsets, declared)
    except OverflowError:
        return _written_by(marked_wide, part, offsets, declared)


def _written_by(
    mark: Callable[[Any], Any],
    part: Runs,
    offsets: Sequence[Offset],
    declared: Sequence[bool],
) -> bytes:
    columns: list[Any] = []
    for input_number, members in part:
        values, keys, times, places = map(list, zip(*members, strict=True)) if members else ([], [], [], [])
        columns.append(
            (
                input_number,
                values if declared and declared[input_number] else mark(values),
                mark(keys),
                None if times.count(None) == len(times) else mark(times),
                [offsets[at] for at in places],
            )
        )
    return flat(columns)


class ChannelReceiver:
    """The receiving side of one key group: reads the channels of all senders."""

    def __init__(
        self,
        redis: Any,
        reads: SharedReads,
        program: FlowPlan,
        senders: Sequence[RecordSender],
        group: int,
        edition: int = 1,
        stage: int = 1,
    ) -> None:
        self._redis = redis
        self._reads = reads
        # Its place among all groups of the flow.
        self._group = group + sum(each.groups or 1 for each in program.stages[: stage - 1])
        flow, mine = program.flow.name, Receiver(stage, group).channel
        self._keys = {sender.name: ChannelKeys(flow, mine, sender.name, edition) for sender in senders}
        self._timed = {
            s.name: program.stage_is_timed(s.stage) if s.stage else program.is_timed(s.node) for s in senders
        }
        self._readers = value_readers(program)
        self._inputs = {*program.stages[stage - 1].inputs, program.late_input}
        self._marks = Frontier()
        self._durable: dict[str, Offset | None] = {}
        self._last: dict[str, str] = {}
        self._unacknowledged: dict[str, deque[tuple[str, Offset | None]]] = {
            name: deque() for name in self._keys
        }
        self._looked_at = time.monotonic()

    def open(self, frontier: Frontier) -> None:
        for name in self._keys:
            self._marks[name] = frontier.of(name)
            self._durable[name] = frontier.of(name).at
            self._last[name] = "0"

    def watermarks(self) -> dict[str, float | None]:
        return {name: self._watermark(name) for name in self._keys}

    def _watermark(self, name: str) -> float | None:
        mark = self._marks.of(name)
        if not self._timed[name]:
            return None
        if mark.ended:
            return END
        return mark.watermark if mark.watermark is not None else -END

    async def read(self, limit: int, wait_seconds: float, only: frozenset[str] | None) -> list[Arrival]:
        names = {
            keys.stream: name
            for name, keys in self._keys.items()
            if not self._marks.of(name).ended and (only is None or name in only)
        }
        if not names:
            return []
        self._look_again()
        wanted = {stream: self._last[name] for stream, name in names.items()}
        answer = await self._reads.read(self._group, wanted, min(wait_seconds, LOOK_AGAIN_SECONDS))
        arrivals: list[Arrival] = []
        repeated = False
        for stream, entries in answer.items():
            name = names[stream.decode()]
            for entry_id, fields in entries:
                self._looked_at = time.monotonic()
                self._last[name] = entry_id.decode()
                try:
                    arrival = await self._take(name, entry_id.decode(), fields)
                except NoEntry:
                    await self._remove(name, entry_id.decode())
                    continue
                except (UnknownClass, msgspec.ValidationError):
                    # Report it, and have it sent again: data of a foreign writer must not fail every read.
                    await self._remove(name, entry_id.decode())
                    raise
                if arrival is not None:
                    arrivals.append(arrival)
                repeated = repeated or arrival is None or arrival.silent
        if repeated:
            # Entries that are already durable lead to no commit, and a channel full of them would block its
            # sender.
            await self._delete_durable()
        return arrivals

    async def acknowledge(self, frontier: Frontier) -> None:
        self._durable = {name: frontier.of(name).at for name in self._keys}
        await self._delete_durable()

    async def _delete_durable(self) -> None:
        pipe = self._redis.pipeline(transaction=False)
        for name, waiting in self._unacknowledged.items():
            at = self._durable[name]
            gone: list[str] = []
            while waiting and (waiting[0][1] is None or not is_after(waiting[0][1], at)):
                gone.append(waiting.popleft()[0])
            if gone:
                pipe.xdel(self._keys[name].stream, *gone)
        await pipe.execute()

    def taken(self) -> dict[str, int]:
        return {}

    async def lags(self) -> dict[str, int | None]:
        """Counts entries, not records: records of the source are counted by the unit that reads it."""
        return {name: len(waiting) for name, waiting in self._unacknowledged.items()}

    @property
    def heads(self) -> Sequence[SourceStage]:
        return ()

    async def close(self) -> None:
        """Does nothing: the worker owns the connection."""

    def _look_again(self) -> None:
        """Read from the start again after a silence: a wiped Redis may assign ids below the last one."""
        if time.monotonic() - self._looked_at > LOOK_AGAIN_SECONDS:
            self._looked_at = time.monotonic()
            self._last = dict.fromkeys(self._last, "0")

    async def _remove(self, name: str, entry_id: str) -> None:
        """Remove data that is not an entry: otherwise it would block every receiver after every start."""
        _log.warning("channel_entry_unreadable", stream=self._keys[name].stream, entry_id=entry_id)
        await self._redis.xdel(self._keys[name].stream, entry_id)

    async def _take(self, name: str, entry_id: str, fields: Sequence[bytes]) -> Arrival | None:
        (after, to, watermark, ended, at_watermark, reached), parts, placed = read_entry(
            fields, self._readers
        )
        if any(part[0] not in self._inputs for part in parts):
            raise NoEntry
        mark = self._marks.of(name)
        if after is not None and is_after(after, mark.at):
            await self._redis.set(self._keys[name].rewind, "1")
            return None
        self._unacknowledged[name].append((entry_id, to))
        if not ended and after == to == mark.at:
            # Nothing came for the sender's `idle_after`, and nothing of it is under way.
            return Arrival(name, (), mark, watermark, 0, silent=True)
        if not ended and (to is None or not is_after(to, mark.at)):
            return None
        runs: list[tuple[int, Batch]] = []
        offsets: list[Offset] = []
        for input_number, values, keys, times, places in parts:
            records = records_of(values, keys, times, len(offsets))
            if mark.at is not None and after != mark.at:
                # The entry overlaps what was taken.
                kept = _behind(list(zip(records, places, strict=True)), mark.at, 1)
                records = [(v, k, t, at) for at, ((v, k, t, _), _) in enumerate(kept, len(offsets))]
                offsets += [place for _, place in kept]
            else:
                offsets += places
            runs.append((input_number, records))
        traces = [place for _, place in _behind(placed, mark.at, 0)]
        self._marks[name] = Mark(to if to is not None else mark.at, at_watermark, ended, reached)
        return Arrival(name, runs, self._marks[name], watermark, len(offsets), traces, offsets)


def records_of(values: list[Any], keys: list[Any], times: list[Any] | None, start: int) -> Batch:
    moments: Iterable[Any] = repeat(None) if times is None else times
    hashable = map(as_key, keys) if list in set(map(type, keys)) else keys
    return list(zip(values, hashable, moments, count(start)))


def value_readers(program: FlowPlan) -> list[ValueReader]:
    """For each input: a function from the packed values of an entry to what the steps work with."""
    kinds = [border.value for border in program.borders]
    return [value_reader(kind) for kind in (*kinds, None)]


def value_reader(kind: type[Any] | None) -> ValueReader:
    if kind is not None:
        # Straight to the declared type, without plain data in between.
        return cast("ValueReader", msgspec.msgpack.Decoder(GenericAlias(list, (kind,))).decode)
    read, revive = decoder(list[Any], found_only=True), reviver(None)

    def values(packed: bytes) -> list[Any]:
        try:
            return [revive(value) if type(value) is dict else value for value in read(packed)]
        except msgspec.ValidationError as error:
            raise NoEntry from error

    return values


def exchanged(program: FlowPlan, input_number: int, records: Batch) -> Batch:
    """The records as a receiver gets them, without Redis: for tests."""
    places = range(1 + max((at for _, _, _, at in records), default=0))
    [(_, packed, keys, times, ats)] = _read_parts(
        written([(input_number, records)], places, program.declared())
    )
    read = records_of(value_readers(program)[input_number](packed), keys, times, 0)
    return [(value, key, moment, at) for (value, key, moment, _), at in zip(read, ats, strict=True)]


def read_parts(packed: bytes, readers: Mapping[int, ValueReader]) -> Parts:
    """Decode what `written` made: the inputs that have a reader."""
    parts: list[Part] = _read_parts(packed)
    return [_read_part(readers[part[0]], *part) for part in parts if part[0] in readers]


def _behind(members: Sequence[M], at: Offset | None, place: int) -> Sequence[M]:
    """Those whose offset, at index `place` in each, is after `at`."""
    try:
        return [member for member in members if is_after(member[place], at)]
    except ValueError as error:
        raise NoEntry from error


def read_entry(fields: Sequence[bytes], readers: Sequence[ValueReader]) -> tuple[EntryHead, Parts, Places]:
    """Decode what `entries_for` made. Raises NoEntry for anything else: any client of Redis may have written
    it. Raises ValidationError for values that are not of the declared type of their input."""
    if list(fields[::2]) not in ([b"h", b"c"], [b"h", b"c", b"t"]) or len(fields) % 2:
        raise NoEntry
    try:
        head = _read_head(fields[1])
        packed: list[Part] = _read_parts(fields[3])
        for offset in head[:2]:
            order(offset if offset is not None else 0)
        placed = _read_places(fields[5]) if len(fields) > 4 else []
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise NoEntry from error
    if any(not 0 <= input_number < len(readers) for input_number, *_ in packed):
        raise NoEntry
    return head, [_read_part(readers[part[0]], *part) for part in packed], placed


def _read_part(
    reader: ValueReader,
    input_number: int,
    packed: bytes,
    keys: list[Any],
    times: list[Any] | None,
    offsets: list[Offset],
) -> tuple[int, list[Any], list[Any], list[Any] | None, list[Offset]]:
    try:
        values = reader(packed)
    except (UnknownClass, msgspec.ValidationError):
        raise
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise NoEntry from error
    if {len(keys), len(offsets), len(offsets if times is None else times)} != {len(values)}:
        raise NoEntry
    return input_number, values, keys, times, offsets
