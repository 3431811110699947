"""Values that a sink will never take: they stop the task, or are kept apart, each once, whatever crashes."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from fencepost.cli.exit_codes import ExitCode
from fencepost.crashpoints import PlannedCrash
from fencepost.errors import Mismatch
from fencepost.flows import (
    CallSink,
    CheckpointAwareSink,
    CheckpointId,
    DeadLetters,
    Flow,
    GraphRefused,
    IterableSource,
    Rejected,
    Rejection,
    Sink,
    Tumbling,
    TwoPhaseCommitSink,
)
from fencepost.flows import (
    _dead_letters as dead_letters,
)
from fencepost.flows.sinks.external_postgres import ExternalPostgres
from fencepost.flows.sinks.files import JsonLines, ParquetFiles, arrow_library
from fencepost.flows.sinks.http import HttpSink
from fencepost.flows.sinks.postgres import OutboxSink, PostgresRows, PostgresUpsert
from fencepost.flows.sinks.redis import RedisIdempotentList, RedisSink
from fencepost.flows.sinks.two_phase_postgres import TwoPhasePostgres
from fencepost.testing import crash_at
from fencepost.testing._flow_windows import windows_of
from tests.integration.flows.harness import Command, FlowHarness
from tests.integration.flows.http_service import Answer, serving

BAD = DeadLetters("bad")
NUMBERS = list(range(20))
REFUSED = {3, 4, 11}


def refuse_some(key: str, body: bytes) -> Answer:
    wanted: Any = json.loads(body) if body.startswith(b"[") else [json.loads(body)]
    return Answer(422, b'{"why": "no such customer"}') if REFUSED & set(wanted) else Answer()


def row_of(number: int) -> tuple[Any, ...]:
    """Of a refused number one that the database does not take."""
    return (str(number), "much" if number in REFUSED else number)


def value_of(number: int) -> tuple[Any, ...]:
    return row_of(number)[1:]


def text_of(number: int) -> bytes:
    if number in REFUSED:
        raise Rejected(f"{number} has no text")
    return str(number).encode()


class Shop(TwoPhaseCommitSink[int, dict[str, Any]]):
    """Says so itself that it does not take a value."""

    on_reject = BAD

    def __init__(self) -> None:
        self._staged: dict[str, list[int]] = {}
        self.done: dict[str, list[int]] = {}

    async def begin_transaction(self, checkpoint: CheckpointId) -> dict[str, Any]:
        return {"name": checkpoint.text}

    async def invoke(self, value: int, txn: dict[str, Any]) -> None:
        if value in REFUSED:
            raise Rejected("not in stock", answer="sold out")
        self._staged.setdefault(txn["name"], []).append(value)

    async def pre_commit(self, txn: dict[str, Any]) -> None: ...

    async def commit(self, txn: dict[str, Any]) -> None:
        if txn["name"] in self._staged:
            self.done[txn["name"]] = self._staged.pop(txn["name"])

    async def abort(self, txn: dict[str, Any]) -> None:
        self._staged.pop(txn["name"], None)


class Hooked(CheckpointAwareSink[int]):
    idempotent = True
    on_reject = BAD

    def __init__(self) -> None:
        super().__init__()
        self.done: dict[str, Sequence[int]] = {}

    async def on_checkpoint_complete(
        self, checkpoint: CheckpointId, values: Sequence[int]
    ) -> list[Rejection]:
        self.done[f"{checkpoint.resource}#{checkpoint.number}"] = [
            value for value in values if value not in REFUSED
        ]
        return [Rejection(value, "no") for value in values if value in REFUSED]


def buried(harness: FlowHarness) -> list[int]:
    found = harness.rows(
        "select preview::int from fencepost.flow_dead_letters where step = 'bad' order by id"
    )
    return [row[0] for row in found]


async def sent(harness: FlowHarness, sink: Sink, **changes: Any) -> None:
    flow = Flow("rejecting", "at_least_once").source(IterableSource(NUMBERS)).sink(sink)
    await harness.run(flow, **changes)


async def taken_by(  # noqa: PLR0911 - One for each kind of sink.
    harness: FlowHarness, kind: str, folder: Path, on_reject: Any = BAD
) -> tuple[Sink, Callable[[], list[int]]]:
    """A sink of each kind that takes all but the refused numbers, and what it has taken."""
    url, client = harness.database.admin_url, harness.redis
    redis: Any = client
    if kind == "elsewhere":
        sink: Sink = ExternalPostgres(url, "total", ["key"], ["value"], row=row_of, on_reject=on_reject)
        return sink, lambda: [row[0] for row in harness.rows("select value from total")]
    if kind == "upsert":
        sink = PostgresUpsert("total", ["key"], ["value"], row=row_of, on_reject=on_reject)
        return sink, lambda: [row[0] for row in harness.rows("select value from total")]
    if kind in ("rows", "prepared"):
        given: dict[str, Any] = {"row": value_of, "on_reject": on_reject}
        rows = TwoPhasePostgres(url, "line", ["value"], **given) if kind == "prepared" else None
        return rows or PostgresRows("line", ["value"], **given), lambda: [
            row[0] for row in harness.rows("select value from line")
        ]
    if kind == "outbox":
        sink = OutboxSink("c", payload=lambda n: object() if n in REFUSED else {"n": n}, on_reject=on_reject)
        return sink, lambda: [r[0] for r in harness.rows("select (payload->>'n')::int from fencepost.outbox")]
    if kind == "files":
        return JsonLines(folder, encode=text_of, on_reject=on_reject), lambda: [
            int(line) for file in folder.glob("*.jsonl") for line in file.read_text().split()
        ]
    if kind == "parquet":
        arrow = arrow_library("pyarrow")
        schema = arrow.schema([("key", arrow.string()), ("value", arrow.int64())])
        sink = ParquetFiles(
            folder,
            row=lambda n: dict(zip(("key", "value"), row_of(n), strict=True)),
            schema=schema,
            on_reject=on_reject,
        )
        return sink, lambda: [
            row["value"]
            for path in folder.glob("*.parquet")
            for row in arrow_library("pyarrow.parquet").read_table(path).to_pylist()
        ]
    if kind == "list":
        sink = RedisSink("list", "out", encode=text_of, on_reject=on_reject)
        return sink, lambda: [int(value) for value in redis.lrange("out", 0, -1)]
    if kind == "by-id":
        sink = RedisIdempotentList("out", ttl_seconds=600, encode=text_of, on_reject=on_reject)
        return sink, lambda: [int(value) for value in redis.lrange("out", 0, -1)]
    if kind == "two-phase":
        shop = Shop()
        return shop, lambda: [value for values in shop.done.values() for value in values]
    if kind == "hooks":
        hooked = Hooked()
        return hooked, lambda: [value for values in hooked.done.values() for value in values]
    done: dict[int, None] = {}

    def call(values: Sequence[int]) -> list[Rejection]:
        done.update(dict.fromkeys(value for value in values if value not in REFUSED))
        return [Rejection(value, "no") for value in values if value in REFUSED]

    return CallSink(call, on_reject=on_reject), lambda: list(done)


ROWS = ("rows", "upsert", "outbox", "elsewhere", "prepared")
KINDS = (*ROWS, "files", "parquet", "list", "by-id", "two-phase", "hooks", "call")


@pytest.mark.parametrize("kind", KINDS)
async def test_every_sink_keeps_what_it_rejects_apart_and_goes_on(
    harness: FlowHarness, tmp_path: Path, kind: str
) -> None:
    sink, taken = await taken_by(harness, kind, tmp_path)

    await sent(harness, sink, records_max=6, batch=6)

    assert Counter(taken()) == Counter(set(NUMBERS) - REFUSED)
    assert buried(harness) == sorted(REFUSED)


@pytest.mark.parametrize("kind", ["rows", "elsewhere", "prepared", "files", "list", "two-phase", "hooks"])
async def test_a_rejected_value_is_kept_once_wherever_the_task_ends(
    harness: FlowHarness, tmp_path: Path, kind: str
) -> None:
    sink, taken = await taken_by(harness, kind, tmp_path)
    windows = windows_of(sink)
    for number, window in enumerate(windows):
        flow = Flow(f"ended-{number}", "at_least_once").source(IterableSource(NUMBERS)).sink(sink)
        with crash_at(window, nth=2), pytest.raises(PlannedCrash):
            await harness.run(flow, records_max=6, batch=6)
        await harness.run(flow, records_max=6, batch=6)

        found = harness.rows(
            "select flow, preview::int from fencepost.flow_dead_letters order by flow, preview::int"
        )
        assert [row[1] for row in found if row[0] == flow.name] == sorted(REFUSED), window
    assert set(taken()) == set(NUMBERS) - REFUSED


async def test_a_service_that_rejects_gets_the_others_and_the_dead_letters_have_body_and_answer(
    harness: FlowHarness, command: Command
) -> None:
    with serving(refuse_some) as service:
        await sent(harness, HttpSink(service.url, honours_keys=True, on_reject=BAD), records_max=6)

    assert service.values == Counter(set(NUMBERS) - REFUSED)
    code, said = await asyncio.to_thread(command, "flows", "dead", "rejecting", "--json")
    assert code == ExitCode.OK
    letters = json.loads(said)["dead"]
    assert [(each["body"], each["answer"]) for each in letters] == [
        (str(number), '{"why": "no such customer"}') for number in sorted(REFUSED)
    ]
    assert all("answered 422 for flow:rejecting/" in each["error"] for each in letters)
    assert service.requests == len(NUMBERS)


@pytest.mark.parametrize(
    "window", ["flows.commit.after_store", "flows.commit.before_flag", "flows.commit.after_flag"]
)
async def test_what_a_service_rejects_is_kept_once_also_if_the_task_ends_there(
    harness: FlowHarness, window: str
) -> None:
    with serving(refuse_some) as service:

        def flow() -> Flow:
            sink = HttpSink(service.url, honours_keys=True, on_reject=BAD)
            return Flow("rejecting").source(IterableSource(NUMBERS)).sink(sink)

        with crash_at(window, nth=1), pytest.raises(PlannedCrash):
            await harness.run(flow(), records_max=6, batch=6)
        await harness.run(flow(), records_max=6, batch=6)

    assert service.values == Counter(set(NUMBERS) - REFUSED)
    assert buried(harness) == sorted(REFUSED)
    assert {len(bodies) for bodies in service.bodies.values()} == {1}


async def test_a_batch_is_one_request_and_a_rejected_one_is_halved(harness: FlowHarness) -> None:
    with serving(refuse_some) as service:
        await sent(harness, HttpSink(service.url, honours_keys=True, batch=10, on_reject=BAD), records_max=20)

    assert service.values == Counter(set(NUMBERS) - REFUSED)
    assert buried(harness) == sorted(REFUSED)
    assert service.requests < len(NUMBERS)
    assert {len(bodies) for bodies in service.bodies.values()} == {1}


async def test_a_batch_is_cut_as_it_was_by_another_version_of_the_code(harness: FlowHarness) -> None:
    def flow(batch: int) -> Flow:
        sink = HttpSink(service.url, honours_keys=True, batch=batch)
        return Flow("cut").source(IterableSource(NUMBERS)).sink(sink)

    with serving(lambda key, body: Answer()) as service:
        with crash_at("flows.commit.before_flag"), pytest.raises(PlannedCrash):
            await harness.run(flow(10), records_max=20)
        await harness.run(flow(4), records_max=20)

    assert service.values == Counter(NUMBERS)


async def test_a_service_that_takes_a_part_of_a_batch_says_which(harness: FlowHarness) -> None:
    def partly(key: str, body: bytes) -> Answer:
        bad = {place: "no" for place, number in enumerate(json.loads(body)) if number in REFUSED}
        return Answer(207, json.dumps(bad).encode())

    def rejected_in(answer: bytes) -> dict[int, str]:
        return {int(place): why for place, why in json.loads(answer).items()}

    with serving(partly) as service:
        sink = HttpSink(service.url, honours_keys=True, batch=10, rejected_in=rejected_in, on_reject=BAD)
        await sent(harness, sink, records_max=20)

    assert buried(harness) == sorted(REFUSED)
    assert service.requests == 2


async def test_a_rejection_stops_the_task_before_it_and_names_the_value(harness: FlowHarness) -> None:
    with serving(refuse_some) as service:
        flow = Flow("stopped").source(IterableSource(NUMBERS)).sink(HttpSink(service.url, honours_keys=True))
        worker = harness.worker(flow)
        async with harness.running(worker):
            await harness.until(lambda: "HttpSink rejects 3" in str(worker.errors))
            told = str(worker.errors)

        assert "no such customer" in told
        assert "on_reject=DeadLetters" in told
        assert buried(harness) == []
        REFUSED.clear()
        try:
            await harness.run(flow)
        finally:
            REFUSED.update({3, 4, 11})

    assert service.values == Counter(NUMBERS)


async def test_a_rejection_by_redis_stops_before_anything_is_written(
    harness: FlowHarness, tmp_path: Path
) -> None:
    sink, taken = await taken_by(harness, "list", tmp_path, on_reject="stop")
    flow = Flow("stopped").source(IterableSource(NUMBERS)).sink(sink)
    worker = harness.worker(flow)
    async with harness.running(worker):
        await harness.until(lambda: "RedisSink rejects 3" in str(worker.errors))

    assert taken() == []
    mended = Flow("stopped").source(IterableSource(NUMBERS)).sink(RedisSink("list", "out"))
    await harness.run(mended)
    assert taken() == NUMBERS


async def test_what_a_sink_rejected_comes_back_to_it_when_it_is_asked_for(
    harness: FlowHarness, command: Command
) -> None:
    accepting = [False]

    def answer(key: str, body: bytes) -> Answer:
        return Answer() if accepting[0] else refuse_some(key, body)

    with serving(answer) as service:

        def flow() -> Flow:
            numbers = Flow("again").source(IterableSource(NUMBERS)).key_by(lambda n: n % 3, groups=2)
            kept = numbers.stateful(lambda state, n: (None, [n]))
            return kept.sink(HttpSink(service.url, honours_keys=True, on_reject=BAD))

        await harness.run(flow())
        assert sorted(buried(harness)) == sorted(REFUSED)
        accepting[0] = True
        code, _ = await asyncio.to_thread(command, "flows", "replay", "again", "bad", "--all")
        assert code == ExitCode.OK
        await harness.run(flow())

    assert service.values == Counter(NUMBERS)


def windowed(on_reject: DeadLetters) -> Flow:
    timed = Flow("kept").source(IterableSource(NUMBERS)).event_time(float).key_by(lambda n: n % 2)
    return (
        timed.window(Tumbling(5))
        .count()
        .sink(PostgresRows("line", ["value"], row=bad_row, on_reject=on_reject))
    )


def bad_row(value: Any) -> tuple[Any, ...]:
    return ("none",)


async def test_what_cannot_come_back_is_kept_and_is_not_taken_for_asked(harness: FlowHarness) -> None:
    with pytest.raises(GraphRefused, match="replays=False"):
        windowed(BAD)
    await harness.run(windowed(DeadLetters("bad", replays=False)))

    waiting = harness.rows("select count(*) from fencepost.flow_dead where step = 'bad' and replay is null")
    assert waiting[0][0] > 0
    with pytest.raises(Mismatch):
        await harness.fp.run(dead_letters.replay("kept", "bad", ids=None, limit=10, by="anna"))
    assert (
        harness.rows("select count(*) from fencepost.flow_dead where step = 'bad' and replay is null")
        == waiting
    )


async def test_a_rejection_in_the_middle_costs_as_many_tries_as_there_are_digits(
    harness: FlowHarness,
) -> None:
    """And no other error is taken for one."""
    with harness.database.connect_admin() as admin:
        admin.execute("alter table line add constraint small check (value < 1000)")
    values = [*range(500), 1000, *range(500, 999)]
    flow = Flow("many").source(IterableSource(values)).sink(PostgresRows("line", ["value"], on_reject=BAD))
    await harness.run(flow, records_max=1_000, batch=1_000)

    assert buried(harness) == [1000]
    assert harness.rows("select count(*), sum(value) from line") == [(999, sum(range(999)))]
