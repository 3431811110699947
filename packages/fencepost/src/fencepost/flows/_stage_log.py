"""What a keyed stage sends to later stages: a log in PostgreSQL, appended to in the stage's own commits.

The output of a keyed stage depends on its state, and where several senders meet on the order in which they
came, so it could not be made again as the records of a source can. Here it is a source: rows with growing
numbers, which a unit forwards to the key groups of the later stages as it forwards the records of a source,
from any number, any number of times. Rows are removed when every receiver has committed them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from fencepost.crashpoints import crash_point
from fencepost.flows._errors import SourceTrimmed
from fencepost.flows._frontier import Frontier
from fencepost.flows._plan import FlowPlan, SourceStage, input_numbers
from fencepost.flows._record import Offset
from fencepost.flows._shuffle import Runs, read_parts, records_of, value_reader, written
from fencepost.flows._steps import Batch, Step
from fencepost.flows._task import Arrival, RecordInput
from fencepost.flows._units import RecordSender
from fencepost.flows._value_codec import flat
from fencepost.flows.sinks._sink import CheckpointId, FlowContext
from fencepost.flows.sinks._sink_types import TransactionalSink
from fencepost.flows.sources._source import Chunk
from fencepost.kernel.call import Call, CallRunner, each, one, scalar, text
from fencepost.kernel.lease import Lease
from fencepost.signals import announce
from fencepost.transaction import Transaction

ROW_RECORDS = 1000
APPENDED_AT_ONCE = 32
READ_AT_ONCE = 16
WAITING_MAX = 256
"""How many rows may wait for the receivers before the stage pauses."""
POLL_SECONDS = 0.05
_read_content = msgspec.msgpack.Decoder(tuple[list[str], bytes]).decode


@dataclass(frozen=True, slots=True)
class OutputRow:
    """Some records of one commit of a sender, packed; the watermark of the sender behind them, where it has
    moved."""

    content: bytes
    records: int
    watermark: float | None = None
    ended: bool = False
    """Whether the sender has ended with this row."""


def _cut(runs: Runs) -> list[list[tuple[int, Batch]]]:
    """Parts of at most that many records each. The places of the records are of the stage's own input, and
    mean nothing behind it."""
    parts: list[list[tuple[int, Batch]]] = [[]]
    room = ROW_RECORDS
    for number, records in runs:
        left: Batch = [(value, key, time, 0) for value, key, time, _ in records]
        while left:
            if not room:
                parts.append([])
                room = ROW_RECORDS
            some, left = left[:room], left[room:]
            parts[-1].append((number, some))
            room -= len(some)
    return [part for part in parts if part]


class StageOutput(TransactionalSink):
    """Appends what a task of a keyed stage sends to the log, in the task's own commit."""

    def __init__(self, program: FlowPlan, sender: RecordSender) -> None:
        self._program = program
        self._flow = program.flow.name
        self._sender = sender.name
        self.waiting = 0
        """How many rows waited for the receivers at the last commit."""

    async def packed(self, runs: Runs, watermark: float | None, *, ended: bool) -> list[OutputRow]:
        """The rows of one commit: at least one, the last of which has the watermark. Made before the
        transaction, and other tasks can run in between: a transaction that stalls is ended."""
        names, declared = self._program.inputs(), self._program.declared()
        rows: list[OutputRow] = []
        for part in _cut(runs):
            await asyncio.sleep(0)
            count = sum(len(records) for _, records in part)
            rows.append(OutputRow(flat((names, written(part, (0,), declared))), count))
        last = rows.pop() if rows else OutputRow(flat((names, written((), (0,), declared))), 0)
        return [*rows, OutputRow(last.content, last.records, watermark, ended)]

    async def write(self, tx: Transaction, checkpoint: CheckpointId, values: Sequence[OutputRow]) -> None:
        for start in range(0, len(values), APPENDED_AT_ONCE):
            rows = values[start : start + APPENDED_AT_ONCE]
            crash_point("flows.stage.before_append")
            self.waiting = await tx.run(append(self._flow, self._sender, checkpoint, rows))

    async def has_room(self, database: CallRunner) -> bool:
        """Whether the receivers keep up, so that the task may go on."""
        if self.waiting >= WAITING_MAX:
            state = await database.run(log_state(self._flow, self._sender, resumes=False))
            self.waiting = state.waiting
        return self.waiting < WAITING_MAX


class PausingInput:
    """The input of a task that sends: it reads nothing while too much of the output waits."""

    def __init__(self, given: RecordInput, output: StageOutput, database: CallRunner) -> None:
        self._given = given
        self._output = output
        self._database = database

    @property
    def heads(self) -> Sequence[SourceStage]:
        return self._given.heads

    async def read(self, limit: int, wait_seconds: float, only: frozenset[str] | None) -> list[Arrival]:
        loop = asyncio.get_running_loop()
        end = loop.time() + wait_seconds
        while not await self._output.has_room(self._database):
            announce("flows.paused")
            if loop.time() >= end:
                return []
            await asyncio.sleep(POLL_SECONDS)
        return await self._given.read(limit, wait_seconds, only)

    async def acknowledge(self, frontier: Frontier) -> None:
        await self._given.acknowledge(frontier)

    def taken(self) -> dict[str, int]:
        return self._given.taken()

    async def lags(self) -> dict[str, int | None]:
        return await self._given.lags()

    async def close(self) -> None:
        await self._given.close()


class StoredRow(NamedTuple):
    number: int
    content: bytes
    records: int
    watermark: float | None


class LogState(NamedTuple):
    lowest: int | None
    """The lowest number that is kept."""
    last: int
    """The highest number that was ever given."""
    ended: bool
    """Whether the sender has ended with the last row, in this run of the flow."""

    @property
    def waiting(self) -> int:
        return 0 if self.lowest is None else self.last - self.lowest + 1


class StageReader:
    """Reads the log of one sender, in order. An offset is the number of a row."""

    def __init__(self, context: FlowContext, sender: RecordSender, after: int) -> None:
        assert context.lease is not None, "the log is read under the lease of the unit that forwards it"
        self._fp: CallRunner = context.fp
        self._flow = context.flow
        self._sender = sender
        self._lease: Lease = context.lease
        self._after = after

    @classmethod
    async def open(cls, context: FlowContext, sender: RecordSender, after: Offset | None) -> StageReader:
        """Raises SourceTrimmed when rows after `after` are gone."""
        reader = cls(context, sender, int(after or 0))
        state = await reader._state()
        kept_from = state.last + 1 if state.lowest is None else state.lowest
        if reader._after + 1 < kept_from or reader._after > state.last:
            raise SourceTrimmed(
                f"A task of {context.flow} has taken {sender.name} up to row {reader._after}, and the rows "
                f"{kept_from} to {state.last} are kept. Restore a savepoint (fencepost flows restore)."
            )
        return reader

    async def read(self, limit: int, wait_seconds: float) -> Chunk:
        """The next rows, with at least one, and otherwise at most `limit` records."""
        loop = asyncio.get_running_loop()
        end = loop.time() + wait_seconds
        while True:
            rows = await self._fp.run(read(self._flow, self._sender.name, self._after, READ_AT_ONCE))
            state = None if len(rows) == READ_AT_ONCE else await self._state()
            rows = _within(rows, limit)
            at = rows[-1].number if rows else self._after
            ended = state is not None and state.ended and at == state.last
            if rows or ended or loop.time() >= end:
                self._after = at
                return Chunk(rows, [row.number for row in rows], ended)
            await asyncio.sleep(min(POLL_SECONDS, wait_seconds))

    async def acknowledge(self, offset: Offset) -> None:
        """Every receiver has committed the rows up to the offset."""
        crash_point("flows.stage.before_trim")
        await self._fp.run(trim(self._flow, self._sender.name, self._lease, int(offset)))
        crash_point("flows.stage.after_trim")
        announce("flows.stage_trimmed")

    async def lag(self, count: int) -> int | None:
        """How many rows wait."""
        return max(0, (await self._state()).last - count)

    async def close(self) -> None:
        """Does nothing: the client owns the connections."""

    async def _state(self) -> LogState:
        return await self._fp.run(log_state(self._flow, self._sender.name, resumes=self._sender.goes_on))


def _within(rows: Sequence[StoredRow], limit: int) -> list[StoredRow]:
    found: list[StoredRow] = []
    for row in rows:
        limit -= row.records
        if found and limit < 0:
            break
        found.append(row)
    return found


class StageHead:
    """What a source stage is for a source: from rows of the log to records by input, and the watermark."""

    steps: Mapping[Any, Step] = {}

    def __init__(self, program: FlowPlan, sender: RecordSender) -> None:
        self._inputs = program.inputs()
        self._readers = [value_reader(border.value) for border in program.borders]
        self._is_timed = program.stage_is_timed(sender.stage)
        self.watermark: float | None = float("-inf") if self._is_timed else None

    def restore(self, watermark: float | None) -> None:
        if self._is_timed and watermark is not None:
            self.watermark = watermark

    async def feed(self, values: Sequence[StoredRow]) -> list[tuple[int, Batch]]:
        """Records by input; the place of a record is that of its row."""
        runs: dict[int, Batch] = {}
        for place, row in enumerate(values):
            await asyncio.sleep(0)
            for number, records in unpacked(self._inputs, self._readers, row.content):
                runs.setdefault(number, []).extend((v, k, t, place) for v, k, t, _ in records)
            if self.watermark is not None and row.watermark is not None:
                self.watermark = max(self.watermark, row.watermark)
        return list(runs.items())


def unpacked(inputs: Sequence[str], readers: Sequence[Any], content: bytes) -> list[tuple[int, Batch]]:
    """The records of a row by input, as the graph has it now: a release may have changed the numbers of the
    inputs."""
    before, parts = _read_content(content)
    numbers = input_numbers(before, inputs)
    known = {number: readers[now] for number, now in numbers.items()}
    return [
        (numbers[number], records_of(values, keys, times, 0))
        for number, values, keys, times, _ in read_parts(parts, known)
    ]


def append(flow: str, sender: str, checkpoint: CheckpointId, rows: Sequence[OutputRow]) -> Call[int]:
    """Append rows within the commit of a task; returns how many wait for the receivers."""
    return Call(
        "select fencepost.flow_stage_append(%s::text, %s::text, %s::text, %s::bigint, %s::bigint,"
        " %s::bytea[], %s::integer[], %s::float8[], %s::boolean)",
        (
            text("flow", flow),
            text("sender", sender),
            text("resource", checkpoint.resource),
            checkpoint.token,
            checkpoint.number,
            [row.content for row in rows],
            [row.records for row in rows],
            [row.watermark for row in rows],
            rows[-1].ended,
        ),
        scalar,
    )


def read(flow: str, sender: str, after: int, limit: int) -> Call[list[StoredRow]]:
    return Call(
        "select number, content, records, watermark"
        " from fencepost.flow_stage_read(%s::text, %s::text, %s::bigint, %s::integer)",
        (text("flow", flow), text("sender", sender), after, limit),
        each(_row),
    )


def log_state(flow: str, sender: str, *, resumes: bool) -> Call[LogState]:
    return Call(
        "select lowest, last, ended from fencepost.flow_stage_state(%s::text, %s::text, %s::boolean)",
        (text("flow", flow), text("sender", sender), resumes),
        one(LogState),
    )


def trim(flow: str, sender: str, lease: Lease, upto: int) -> Call[int]:
    """Remove rows up to a number; returns how many."""
    return Call(
        "select fencepost.flow_stage_trim(%s::text, %s::text, %s::text, %s::bigint, %s::bigint)",
        (text("flow", flow), text("sender", sender), text("resource", lease.resource), lease.token, upto),
        scalar,
    )


def _row(number: int, content: bytes, records: int, watermark: float | None) -> StoredRow:
    return StoredRow(number, bytes(content), records, watermark)


__all__ = ["OutputRow", "PausingInput", "StageHead", "StageOutput", "StageReader", "unpacked"]
