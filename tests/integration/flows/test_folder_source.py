"""Files that appear in a folder or a bucket: each row once, whatever ends the task and whatever changes."""

import gzip
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from fencepost.flows import Flow, GraphRefused, SourceChanged, StartRefused
from fencepost.flows._errors import FlowError
from fencepost.flows._graph import Stream
from fencepost.flows._record import order
from fencepost.flows.sinks.files import arrow_library
from fencepost.flows.sinks.postgres import PostgresRows, PostgresUpsert
from fencepost.flows.sources._log import SourceLog
from fencepost.flows.sources.files import BucketFiles, Csv, FolderFiles, Parquet
from tests.integration.flows.harness import FlowHarness
from tests.integration.flows.source_matrix import POINTS, check_source
from tests.s3_server import BUCKET, S3Server, s3_server

ALL = pytest.param(POINTS, id="all", marks=pytest.mark.full)
POINTS_OF = pytest.mark.parametrize("points", [pytest.param(POINTS[3:6], id="hardest"), ALL])


def values(harness: FlowHarness) -> list[int]:
    return [row[0] for row in harness.rows("select value from line order by ctid")]


def put(folder: Path, name: str, content: bytes) -> None:
    """As a writer should: aside, and then by its name."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}")
    aside.write_bytes(content)
    aside.replace(path)


def lines(numbers: Sequence[int]) -> bytes:
    return b"".join(b"%d\n" % n for n in numbers)


def of_files(source: FolderFiles | BucketFiles, name: str = "files") -> Flow:
    return Flow(name).source(source).json().sink(PostgresRows("line", ["value"]))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


def csv_of(numbers: Sequence[int]) -> bytes:
    return b"n,told\r\n" + b"".join(b'%d,"a\nb, ""c"""\r\n' % n for n in numbers)


def parquet_of(numbers: Sequence[int], folder: Path) -> bytes:
    path = folder.parent / "made.parquet"
    table = arrow_library("pyarrow").Table.from_pylist([{"n": n, "x": "x"} for n in numbers])
    arrow_library("pyarrow.parquet").write_table(table, path, row_group_size=3)
    return path.read_bytes()


@pytest.mark.parametrize("kind", ["lines", "gzip", "csv", "parquet"])
@POINTS_OF
async def test_rows_of_files_come_once_wherever_a_task_ends(
    harness: FlowHarness, folder: Path, tmp_path: Path, kind: str, points: Sequence[str]
) -> None:
    def source() -> FolderFiles:
        if kind == "csv":
            return FolderFiles(folder, Csv(), pattern="*.csv", settled=0)
        if kind == "parquet":
            return FolderFiles(folder, Parquet(["n"]), pattern="*.parquet", settled=0)
        return FolderFiles(folder, settled=0)

    def numbers(flow: Flow) -> Stream[int]:
        stream = flow.source(source())
        if kind in ("csv", "parquet"):
            return stream.map(lambda row: int(row["n"]))
        return stream.json()

    async def feed(given: Sequence[int]) -> None:
        half = len(given) // 2
        for part in (given[:half], given[half:]):
            name = f"{part[0]:06}"
            match kind:
                case "csv":
                    put(folder, f"{name}.csv", csv_of(part))
                case "parquet":
                    put(folder, f"{name}.parquet", parquet_of(part, folder))
                case "gzip":
                    put(folder, f"{name}.gz", gzip.compress(lines(part)))
                case _:
                    put(folder, f"sub/{name}", lines(part))

    await check_source(harness, tmp_path / "out", numbers, feed, points)


async def test_new_files_are_found_while_the_flow_runs(harness: FlowHarness, folder: Path) -> None:
    flow = of_files(FolderFiles(folder, every=0.01, settled=0.05))
    async with harness.running(harness.worker(flow)):
        for n in range(5):
            put(folder, f"f{n}", lines(range(10 * n, 10 * n + 10)))
            await harness.until(lambda last=10 * n + 10: values(harness) == list(range(last)))  # type: ignore[misc]


async def test_a_file_that_is_being_written_is_taken_when_it_rests(
    harness: FlowHarness, folder: Path
) -> None:
    """The clock is that of the source: it sees the file grow between two looks."""
    source = FolderFiles(folder, every=0.0, settled=0.3)
    path = folder / "grows"
    path.write_bytes(b"")
    async with harness.running(harness.worker(of_files(source))):
        for n in range(20):
            with path.open("ab") as file:
                file.write(b"%d\n" % n)
        await harness.until(lambda: len(values(harness)) >= 20)

    assert values(harness) == list(range(20))


async def test_hidden_files_and_other_names_are_not_read(harness: FlowHarness, folder: Path) -> None:
    put(folder, "a.jsonl", lines([1]))
    for name in ("_b.jsonl", "c.csv", ".d.jsonl", "_done/e.jsonl", "deep/f.jsonl"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(lines([2]))

    await harness.run(of_files(FolderFiles(folder, pattern="*.jsonl", settled=0)))
    assert sorted(values(harness)) == [1, 2]

    await harness.run(of_files(FolderFiles(folder, pattern="deep/*.jsonl", settled=0, name="one"), "other"))
    assert sorted(values(harness)) == [1, 2, 2]


async def test_partitions_and_key_groups_share_the_files(harness: FlowHarness, folder: Path) -> None:
    for n in range(20):
        put(folder, f"f{n:02}", lines([n] * 10))
    source = FolderFiles(folder, settled=0, partitions=3)
    keyed = Flow("shared").source(source).json().key_by(str, groups=2)
    flow = keyed.count().sink(PostgresUpsert("total", ["key"], ["value"]))

    await harness.run(flow)
    assert sorted(harness.rows("select * from total")) == sorted((str(n), 10) for n in range(20))

    for n in range(20):
        put(folder, f"g{n:02}", lines([n] * 10))
    await harness.run(flow)
    assert sorted(harness.rows("select * from total")) == sorted((str(n), 20) for n in range(20))


async def test_another_number_of_partitions_is_refused(harness: FlowHarness, folder: Path) -> None:
    put(folder, "a", lines([1]))
    await harness.run(of_files(FolderFiles(folder, settled=0)))

    with pytest.raises(StartRefused):
        await harness.run(of_files(FolderFiles(folder, settled=0, partitions=2)))
    assert values(harness) == [1]


async def test_a_file_that_was_read_may_be_removed(harness: FlowHarness, folder: Path) -> None:
    put(folder, "a", lines([1, 2]))
    await harness.run(of_files(FolderFiles(folder, settled=0)))
    (folder / "a").unlink()
    put(folder, "b", lines([3]))

    await harness.run(of_files(FolderFiles(folder, settled=0)))

    assert values(harness) == [1, 2, 3]


async def test_content_that_changed_under_its_name(harness: FlowHarness, folder: Path) -> None:
    put(folder, "a", lines([1, 2]))
    await harness.run(of_files(FolderFiles(folder, settled=0)))
    put(folder, "a", lines([3, 4, 5]))
    put(folder, "b", lines([6]))

    with pytest.raises(SourceChanged, match=r"a in .* was found as 4-.*, and is 6-.* now"):
        await harness.run(of_files(FolderFiles(folder, settled=0)))
    assert values(harness) == [1, 2]

    await harness.run(of_files(FolderFiles(folder, settled=0, changed="ignore")))
    assert values(harness) == [1, 2, 6]

    await harness.run(of_files(FolderFiles(folder, settled=0, changed="read")))
    assert values(harness) == [1, 2, 6, 3, 4, 5]
    await harness.run(of_files(FolderFiles(folder, settled=0, changed="read")))
    assert len(values(harness)) == 6


@pytest.mark.parametrize("what", ["gone", "other", "shorter"])
async def test_a_file_that_is_another_one_after_half_of_it(
    harness: FlowHarness, folder: Path, what: str
) -> None:
    put(folder, "a", lines(range(10)))
    facts = (folder / "a").stat()
    source = FolderFiles(folder, settled=0)
    log = await opened(harness, source, None)
    first = await log.read(4, 0)
    assert list(first.offsets) == ["1-1", "1-2", "1-3", "1-4"]
    await log.close()
    if what == "gone":
        (folder / "a").unlink()
    elif what == "other":
        put(folder, "a", lines(range(11)))
    else:
        # As many bytes, and the time put back: only the rows tell.
        put(folder, "a", b"x" * (facts.st_size - 1) + b"\n")
        os.utime(folder / "a", ns=(facts.st_atime_ns, facts.st_mtime_ns))

    again = await opened(harness, source, "1-4")
    with pytest.raises(SourceChanged, match="a"):
        await again.read(4, 0)
    await again.close()


async def test_a_file_that_changes_while_it_is_read_stops_the_flow(
    harness: FlowHarness, folder: Path
) -> None:
    (folder / "a").write_bytes(lines(range(10)))
    reader = await opened(harness, FolderFiles(folder, settled=0), None)
    await reader.read(4, 0)
    with (folder / "a").open("ab") as file:
        file.write(b"10\n")

    with pytest.raises(SourceChanged, match=r"a in .* is another one"):
        await reader.read(100, 0)
    await reader.close()


async def opened(harness: FlowHarness, source: FolderFiles, after: str | None) -> Any:
    """A reader under a lease, as a task has it."""
    return await source.open(await harness.leased_context(), "0", after)


async def test_an_append_whose_answer_was_lost_is_not_repeated(
    harness: FlowHarness, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files are in the log by then: the task finds them there."""
    put(folder, "a", lines([1, 2]))
    true_append, lost = SourceLog.append, [True]

    async def append(self: SourceLog, *given: Any, **options: Any) -> int:
        count = await true_append(self, *given, **options)
        if lost.pop() if lost else False:
            raise ConnectionError("the answer was lost")
        return count

    monkeypatch.setattr(SourceLog, "append", append)
    await harness.run(of_files(FolderFiles(folder, settled=0)))

    assert values(harness) == [1, 2]
    assert harness.rows("select last from fencepost.flow_log") == [(1,)]


@pytest.mark.parametrize(
    ("kind", "content", "why"),
    [
        (Csv(), b"a,b\n1,2\n3\n", r"behind row 1: line 3 has 1 cells"),
        (Csv(), b"a,a\n1,2\n", r"names a column twice"),
        (Csv(), b'a\n"1\n', r"cannot be read behind row 0"),
        (Parquet(), b"no parquet", r"cannot be read behind row 0"),
        (None, b"\x1f\x8b broken", r"cannot be read behind row 0"),
    ],
)
async def test_a_broken_file_is_named_with_the_row(
    harness: FlowHarness, folder: Path, kind: Any, content: bytes, why: str
) -> None:
    put(folder, "a.gz" if kind is None else "a", content)
    reader = await opened(harness, FolderFiles(folder, kind, settled=0), None)

    with pytest.raises(FlowError, match=why):
        await reader.read(10, 0)
    await reader.close()


async def test_what_cannot_be_meant_is_refused(harness: FlowHarness, tmp_path: Path) -> None:
    with pytest.raises(GraphRefused, match="changed is 'no'"):
        FolderFiles(tmp_path, changed="no")  # type: ignore[arg-type]
    with pytest.raises(GraphRefused, match="partitions is 0"):
        FolderFiles(tmp_path, partitions=0)
    with pytest.raises(StartRefused, match="mkdir -p"):
        await harness.run(of_files(FolderFiles(tmp_path / "nowhere")))
    with pytest.raises(GraphRefused, match="no URL of a bucket"):
        BucketFiles("bucket/prefix")


async def test_a_database_of_before_is_refused(harness: FlowHarness, folder: Path) -> None:
    with pytest.raises(SourceChanged, match="ends at 0"):
        await opened(harness, FolderFiles(folder, settled=0), "7-1")


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        # Its bucket is there from the first object on.
        server.bucket(f"s3://{BUCKET}").put("made", b"")
        yield server


@POINTS_OF
async def test_objects_of_a_bucket_come_once_wherever_a_task_ends(
    harness: FlowHarness, s3: S3Server, tmp_path: Path, points: Sequence[str]
) -> None:
    url = f"s3://{BUCKET}/{tmp_path.name}-{len(points)}"
    bucket = s3.bucket(url)

    async def feed(given: Sequence[int]) -> None:
        bucket.put(f"{given[0]:06}.csv", csv_of(given))

    def numbers(flow: Flow) -> Stream[int]:
        source = BucketFiles(url, Csv(), options=s3.options(), pattern="*.csv", every=0)
        return flow.source(source).map(lambda row: int(row["n"]))

    await check_source(harness, tmp_path / "out", numbers, feed, points)


async def test_an_object_that_was_replaced_is_not_read_as_the_other(
    harness: FlowHarness, s3: S3Server, tmp_path: Path
) -> None:
    url = f"s3://{BUCKET}/{tmp_path.name}-replaced"
    bucket = s3.bucket(url)
    bucket.put("a", lines(range(10)))
    source = BucketFiles(url, options=s3.options(), every=0)
    context = await harness.leased_context()
    reader = await source.open(context, "0", None)
    assert len((await reader.read(4, 0)).values) == 4
    await reader.close()
    bucket.put("a", lines(range(1, 11)))

    reader = await source.open(context, "0", "1-4")
    with pytest.raises(SourceChanged, match="a in s3://"):
        await reader.read(4, 0)
    await reader.close()


async def test_wrong_keys_of_a_bucket_are_told_and_not_shown(
    harness: FlowHarness, s3: S3Server, tmp_path: Path
) -> None:
    options = s3.options(secret="wrong-secret-0815")
    source = BucketFiles(f"s3://{BUCKET}/x", options=options)

    with pytest.raises(StartRefused, match="cannot be reached") as refused:
        await harness.run(of_files(source))
    assert "wrong-secret-0815" not in str(refused.value)
    assert options["access_key_id"] not in str(refused.value)


def test_a_log_is_of_use_only_with_its_order() -> None:
    """What offsets say must be in the order of the frontier's own comparison."""
    assert order("5-16") < order("6-0") < order("6-1") < order("10-0")
