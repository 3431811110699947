"""Every sink through the conformance suite."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from fencepost.flows import (
    CallSink,
    CheckpointAwareSink,
    CheckpointId,
    DeadLetters,
    Flow,
    GraphRefused,
    IdempotentRecord,
    IterableSource,
    Sink,
    StartRefused,
)
from fencepost.flows._metrics import FlowMetrics
from fencepost.flows._worker import FlowWorker
from fencepost.flows.sinks.buckets import BucketJsonLines, BucketParquet
from fencepost.flows.sinks.external_postgres import ExternalPostgres
from fencepost.flows.sinks.files import JsonLines, ParquetFiles, arrow_library
from fencepost.flows.sinks.http import HttpSink
from fencepost.flows.sinks.jobs import JobSink
from fencepost.flows.sinks.postgres import Merge, OutboxSink, PostgresRows
from fencepost.flows.sinks.redis import RedisIdempotentList, RedisSink
from fencepost.flows.sinks.two_phase_postgres import TwoPhasePostgres
from fencepost.flows.sources.redis_streams import RedisStreamReader, RedisStreams
from fencepost.jobs.job import Job
from fencepost.metrics import Metrics
from fencepost.testing._flow_sinks import SinkBroken, check_sink
from fencepost.testing._flow_windows import PHASES
from tests.integration.flows.harness import HURRY, FlowHarness
from tests.receivers import service
from tests.s3_server import BUCKET, S3Server, s3_server

# The windows in which a sink and its checkpoint disagree; --full takes every point.
HARDEST = ("flows.commit.after_pre_commit", "flows.commit.after_store", "flows.commit.before_flag")
BOTH = pytest.mark.parametrize(
    "points", [pytest.param(HARDEST, id="hardest"), pytest.param(None, id="all", marks=pytest.mark.full)]
)
Points = Sequence[str] | None
Effects = Callable[[], Awaitable[Sequence[Any]]]


def from_list(harness: FlowHarness, key: str) -> Effects:
    async def effects() -> list[int]:
        client: Any = harness.redis
        return [int(value) for value in client.lrange(key, 0, -1)]

    return effects


async def test_rows_beside_the_frontier(harness: FlowHarness) -> None:
    async def effects() -> list[int]:
        return [row[0] for row in harness.rows("select value from line")]

    await check_sink(harness.fp, lambda: PostgresRows("line", ["value"]), effects)


async def test_messages_in_the_outbox(harness: FlowHarness) -> None:
    async def effects() -> list[int]:
        return [row[0] for row in harness.rows("select (payload->>'n')::int from fencepost.outbox")]

    await check_sink(harness.fp, lambda: OutboxSink("c"), effects, value=lambda n: {"n": n})


@BOTH
async def test_a_redis_list_with_its_frontier(harness: FlowHarness, points: Points) -> None:
    await check_sink(
        harness.fp,
        lambda: RedisSink("list", "out"),
        from_list(harness, "out"),
        redis_url=harness.redis_url,
        points=points,
    )


@BOTH
async def test_a_redis_stream_with_its_frontier(harness: FlowHarness, points: Points) -> None:
    async def effects() -> list[int]:
        client: Any = harness.redis
        return [int(fields["data"]) for _, fields in client.xrange("out")]

    await check_sink(
        harness.fp, lambda: RedisSink("stream", "out"), effects, redis_url=harness.redis_url, points=points
    )


@pytest.mark.parametrize("kind", ["hash", "set"])
@BOTH
async def test_a_redis_hash_and_a_redis_set_with_their_frontier(
    harness: FlowHarness, points: Points, kind: Literal["hash", "set"]
) -> None:
    """Each run has names of its own: a set and a hash show a repetition only by them."""
    client: Any = harness.redis

    async def effects() -> list[int]:
        found = client.hvals("out") if kind == "hash" else client.smembers("out")
        return [int(value.rpartition(":")[2]) for value in found]

    def value(point: str) -> Callable[[int], Any]:
        return lambda n: (f"{point}:{n}", n) if kind == "hash" else f"{point}:{n}"

    for point in points or PHASES:
        await check_sink(
            harness.fp,
            lambda: RedisSink(kind, "out"),
            effects,
            value=value(point),
            redis_url=harness.redis_url,
            points=[point],
        )
        with harness.database.connect_admin() as connection:
            connection.execute("delete from fencepost.checkpoint")
        client.delete("fencepost:frontier:{out}")


@pytest.mark.parametrize(
    "sink", [RedisSink("list", "out"), RedisIdempotentList("out", ttl_seconds=600)], ids=["list", "by-id"]
)
async def test_a_redis_that_loses_what_it_took_gets_it_again_while_the_task_runs(
    harness: FlowHarness, sink: Sink
) -> None:
    client: Any = harness.redis
    flow = Flow("wiped").source(RedisStreams("in")).sink(sink)

    async with harness.running(harness.worker(flow)):
        for first in (0, 50):
            for n in range(first, first + 50):
                client.xadd("in", {"data": str(n)})
            await harness.until(
                lambda last=first + 50: client.lrange("out", 0, -1) == [str(n) for n in range(last)]  # type: ignore[misc]
            )
            client.delete("out", "fencepost:frontier:{out}", "fencepost:seen:{out}")
        client.xadd("in", {"data": "100"})
        await harness.until(lambda: client.lrange("out", 0, -1) == [str(n) for n in range(101)])


async def test_a_script_that_also_acknowledges_what_it_took(
    harness: FlowHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nobody(*_: Any) -> None: ...

    # Only the script acknowledges here.
    monkeypatch.setattr(RedisStreamReader, "acknowledge", nobody)
    source = RedisStreams(["{shop}a", "{shop}b"], group="g")
    sink = RedisSink("list", "{shop}out", acknowledges=source)
    client: Any = harness.redis

    def pending() -> list[int]:
        return [client.xpending(stream, "g")["pending"] for stream in ("{shop}a", "{shop}b")]

    for n in range(2500):
        client.xadd(f"{{shop}}{'ab'[n % 2]}", {"data": str(n)})
    flow = Flow("acknowledged").source(source).key_by(lambda value: value).stateful(_same).sink(sink)
    async with harness.running(harness.worker(flow)):
        await harness.until(lambda: client.llen("{shop}out") == 2500)
        await harness.until(lambda: pending() == [0, 0])


def _same(state: Any, value: Any) -> tuple[Any, list[Any]]:
    return None, [value]


async def test_a_redis_list_by_event_id(harness: FlowHarness) -> None:
    ids = iter(range(10_000))

    def record(n: int) -> IdempotentRecord[int]:
        return IdempotentRecord(f"{n}", n)

    for point in HARDEST:
        key = f"out{next(ids)}"
        await check_sink(
            harness.fp,
            lambda key=key: RedisIdempotentList(key, ttl_seconds=600),  # type: ignore[misc]
            from_list(harness, key),
            value=record,
            redis_url=harness.redis_url,
            points=[point],
        )
        with harness.database.connect_admin() as connection:
            connection.execute("delete from fencepost.checkpoint")


@BOTH
async def test_rows_in_another_database_by_two_phases(harness: FlowHarness, points: Points) -> None:
    async def effects() -> list[int]:
        return [row[0] for row in harness.rows("select value from line")]

    await check_sink(
        harness.fp,
        lambda: TwoPhasePostgres(harness.database.admin_url, "line", ["value"]),
        effects,
        points=points,
    )

    assert harness.rows("select * from pg_prepared_xacts where database = current_database()") == []


@BOTH
async def test_files_that_appear_whole(harness: FlowHarness, points: Points, tmp_path: Path) -> None:
    def lines() -> list[int]:
        return [int(line) for file in tmp_path.glob("*.jsonl") for line in file.read_text().split()]

    def staged() -> list[Path]:
        return list((tmp_path / ".staging").iterdir())

    async def effects() -> list[int]:
        return lines()

    await check_sink(harness.fp, lambda: JsonLines(tmp_path), effects, points=points)

    assert staged() == []


@BOTH
async def test_parquet_files_that_appear_whole(harness: FlowHarness, points: Points, tmp_path: Path) -> None:
    def rows() -> list[int]:
        tables = [arrow_library("pyarrow.parquet").read_table(path) for path in tmp_path.glob("*.parquet")]
        return [row["n"] for table in tables for row in table.to_pylist()]

    async def effects() -> list[int]:
        return rows()

    def sink() -> Sink:
        return ParquetFiles(tmp_path, row=lambda n: {"n": n})

    await check_sink(harness.fp, sink, effects, points=points)


@BOTH
async def test_rows_in_another_database_replaced_by_key(harness: FlowHarness, points: Points) -> None:
    async def effects() -> list[int]:
        return [row[0] for row in harness.rows("select value from total")]

    chosen = points or PHASES
    for number, point in enumerate(chosen):
        # Each run has keys of its own: a sink that replaces by key shows a repetition only by its number.
        await check_sink(
            harness.fp,
            lambda: ExternalPostgres(harness.database.admin_url, "total", ["key"], ["value"]),
            effects,
            value=lambda n, number=number: (f"{number}-{n}", n),  # type: ignore[misc]
            points=[point],
        )
        with harness.database.connect_admin() as connection:
            connection.execute("delete from fencepost.checkpoint; delete from fencepost_frontier")


async def test_an_older_checkpoint_does_not_replace_newer_rows_elsewhere(harness: FlowHarness) -> None:
    sink = ExternalPostgres(harness.database.admin_url, "total", ["key"], ["value"])
    await sink.open(harness.context())
    await sink.deliver(CheckpointId("flow:x/all", 2, 8), [("a", 8)])

    await sink.deliver(CheckpointId("flow:x/all", 1, 7), [("a", 7)])
    await sink.deliver(CheckpointId("flow:x/all", 2, 8), [("a", 0)])

    assert harness.rows("select * from total") == [("a", 8)]
    assert await sink.position("flow:x/all") == 8
    await sink.close()


async def test_a_worker_that_stands_still_in_its_transaction_elsewhere_holds_no_caller_up(
    harness: FlowHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = harness.database.admin_url
    zombie, successor = (ExternalPostgres(url, "total", ["key"], ["value"]) for _ in range(2))
    await zombie.open(harness.context())
    inside = asyncio.Event()

    async def stand_still(*_: Any) -> None:
        inside.set()
        await asyncio.Event().wait()

    checkpoint = CheckpointId("flow:x/all", 1, 1)
    with monkeypatch.context() as patch:
        patch.setattr(Merge, "write", stand_still)
        frozen = asyncio.create_task(zombie.deliver(checkpoint, [("a", 1)]))
        await inside.wait()

    async with asyncio.timeout(30):
        assert await successor.position("flow:x/all") is None
        await successor.deliver(checkpoint, [("a", 1)])

    frozen.cancel()
    await asyncio.gather(frozen, return_exceptions=True)
    assert harness.rows("select * from total") == [("a", 1)]
    assert await successor.position("flow:x/all") == 1
    await zombie.close()
    await successor.close()


async def test_requests_with_idempotency_keys(harness: FlowHarness) -> None:
    with service() as (url, taken):

        async def effects() -> list[int]:
            return list(taken.values())

        await check_sink(
            harness.fp,
            lambda: HttpSink(url, honours_keys=True),
            effects,
            points=HARDEST,
        )


async def test_the_suite_finds_a_sink_that_repeats_itself(harness: FlowHarness) -> None:
    done: list[int] = []

    async def effects() -> list[int]:
        return list(done)

    with pytest.raises(SinkBroken, match="doubled"):
        await check_sink(
            harness.fp,
            lambda: CallSink(done.extend),
            effects,
            guarantee="at_least_once",
            points=["flows.commit.before_flag"],
        )


class Remembering(CheckpointAwareSink[int]):
    """Keeps what it has taken by checkpoint, and what it was told."""

    idempotent = True

    def __init__(self, taken: dict[str, Sequence[int]], told: list[str]) -> None:
        super().__init__()
        self._taken = taken
        self._told = told

    async def on_checkpoint_start(self, checkpoint: CheckpointId) -> None:
        self._told.append("start")

    async def on_checkpoint_complete(self, checkpoint: CheckpointId, values: Sequence[int]) -> None:
        self._told.append("complete")
        self._taken[f"{checkpoint.resource}#{checkpoint.number}"] = list(values)

    async def on_checkpoint_abort(self, checkpoint: CheckpointId) -> None:
        self._told.append("abort")

    async def on_checkpoint_restore(self, resource: str, number: int) -> None:
        self._told.append("restore")


@BOTH
async def test_hooks_around_a_checkpoint(harness: FlowHarness, points: Points) -> None:
    taken: dict[str, Sequence[int]] = {}
    told: list[str] = []

    async def effects() -> list[int]:
        return [value for values in taken.values() for value in values]

    await check_sink(harness.fp, lambda: Remembering(taken, told), effects, points=points)

    assert set(told) == {"start", "complete", "abort", "restore"}


async def test_a_source_and_a_sink_in_another_redis_than_the_flow(harness: FlowHarness) -> None:
    """The flow's own address leads nowhere: both name the one that they mean."""
    client: Any = harness.redis
    for n in range(20):
        client.xadd("in", {"data": str(n)})
    source = RedisStreams("in", url=harness.redis_url, group="g")
    here = RedisSink("list", "out", url=harness.redis_url)
    apart = replace(harness.context(), redis_url="redis://127.0.0.1:1/0")

    worker = FlowWorker(
        harness.fp,
        Flow("elsewhere").source(source).sink(here),
        redis_url=apart.redis_url,
        settings=HURRY,
        metrics=FlowMetrics.on(Metrics()),
    )
    async with harness.running(worker):
        await harness.until(lambda: client.lrange("out", 0, -1) == [str(n) for n in range(20)])

    mixed = RedisSink("list", "{in}out", acknowledges=RedisStreams("{in}", group="g"), url=harness.redis_url)
    with pytest.raises(StartRefused, match="in different servers"):
        await mixed.open(apart)


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        # Its bucket is there from the first object on.
        server.bucket(f"s3://{BUCKET}").put("made", b"")
        yield server


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
@BOTH
async def test_objects_that_appear_whole(
    harness: FlowHarness, s3: S3Server, points: Points, kind: str, tmp_path: Path
) -> None:
    url = f"s3://{BUCKET}/{tmp_path.name}"
    bucket = s3.bucket(url)

    def sink() -> Sink:
        if kind == "jsonl":
            return BucketJsonLines(url, options=s3.options())
        return BucketParquet(url, options=s3.options(), row=lambda n: {"n": n})

    def content() -> list[int]:
        found: list[int] = []
        for file in bucket.found():
            assert file.path.endswith(f".{kind}")
            with bucket.open(file).stream as stream:
                if kind == "jsonl":
                    found += map(int, stream.read().split())
                else:
                    table = arrow_library("pyarrow.parquet").read_table(stream)
                    found += [row["n"] for row in table.to_pylist()]
        return found

    async def effects() -> list[int]:
        return await asyncio.to_thread(content)

    await check_sink(harness.fp, sink, effects, points=points)


@BOTH
async def test_a_record_submits_a_job_once(harness: FlowHarness, points: Points) -> None:
    @harness.fp.job("mail")
    async def receipt(job: Job, n: int) -> None: ...

    async def effects() -> list[int]:
        return [row[0] for row in harness.rows("select (payload->>'n')::int from fencepost.job")]

    await check_sink(
        harness.fp,
        lambda: JobSink(receipt.options(priority=1), lambda n: {"n": n}),
        effects,
        points=points and ["flows.commit.after_fence", "flows.commit.before_commit", "flows.ack.before"],
    )


async def test_arguments_that_the_handler_refuses_are_rejected(harness: FlowHarness) -> None:
    @harness.fp.job("mail")
    async def receipt(job: Job, n: int) -> None: ...

    sink = JobSink(receipt, lambda n: {"n": n}, on_reject=DeadLetters("bad"))
    await harness.run(Flow("jobs").source(IterableSource([1, "two", 3])).sink(sink))

    assert [row[0] for row in harness.rows("select payload->>'n' from fencepost.job order by job_id")] == [
        "1",
        "3",
    ]
    assert len(harness.rows("select * from fencepost.flow_dead")) == 1
    with pytest.raises(GraphRefused, match="takes a handler"):
        JobSink(print)  # type: ignore[arg-type]
