"""Lines of files, also of one that grows."""

from pathlib import Path

import pytest

from fencepost.flows import Flow, SourceTrimmed
from fencepost.flows.sinks.postgres import PostgresRows
from fencepost.flows.sources.files import FileLines
from tests.integration.flows.harness import FlowHarness


def followed(path: Path) -> Flow:
    source = FileLines(path, follow=True)
    return Flow("followed").source(source).json().sink(PostgresRows("line", ["value"]))


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


async def test_a_file_that_is_followed_gives_whole_lines_and_goes_on_where_it_was(
    harness: FlowHarness, tmp_path: Path
) -> None:
    path = tmp_path / "log"
    path.write_text("1\n2\n3")

    def lines() -> list[int]:
        return [row[0] for row in harness.rows("select value from line order by value")]

    async with harness.running(harness.worker(followed(path))):
        await harness.until(lambda: lines() == [1, 2])
        append(path, "0\n4\n")
        await harness.until(lambda: len(lines()) == 4)
    append(path, "5\n6")
    async with harness.running(harness.worker(followed(path))):
        await harness.until(lambda: len(lines()) == 5)
        append(path, "\n")
        await harness.until(lambda: len(lines()) == 6)

    assert lines() == [1, 2, 4, 5, 6, 30]


async def test_a_line_that_is_being_written_waits_until_it_is_whole(
    harness: FlowHarness, tmp_path: Path
) -> None:
    path = tmp_path / "log"
    path.write_text("a\nb")
    source = FileLines(path, follow=True)
    reader = await source.open(harness.context(), source.partitions[0], None)

    first = await reader.read(10, 0)
    second = await reader.read(10, 0)
    append(path, "c\n")
    third = await reader.read(10, 0)
    await reader.close()

    assert [list(chunk.values) for chunk in (first, second, third)] == [[b"a"], [], [b"bc"]]
    assert not any(chunk.ended for chunk in (first, second, third))


async def test_a_file_that_is_shorter_than_what_was_read_of_it_is_refused(
    harness: FlowHarness, tmp_path: Path
) -> None:
    path = tmp_path / "log"
    path.write_text("1\n")
    source = FileLines(path, follow=True)

    with pytest.raises(SourceTrimmed, match="shorter than the 5 bytes"):
        await source.open(harness.context(), source.partitions[0], 5)
