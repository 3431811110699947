"""How a file is read as rows: lines, CSV, Parquet. A row's number in its file is its offset."""

from __future__ import annotations

import csv
import gzip
import importlib
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol, cast

from fencepost.flows._errors import FlowError, StartRefused

ROWS_AT_ONCE = 1000
# What a broken file makes the libraries raise.
UNREADABLE = (ValueError, EOFError, OSError, csv.Error)


class FileFormat(Protocol):
    """Makes rows of an open file. `check` raises for a format whose library is missing."""

    def check(self) -> None:
        """Raise StartRefused if a library is missing."""
        ...

    def rows(self, stream: BinaryIO) -> Iterator[Any]:
        """The rows of the file, in their order; the same ones each time."""
        ...


@dataclass(frozen=True, slots=True)
class Lines:
    """Each line as bytes, without its end. Follow it by `.json()` for JSON lines."""

    def check(self) -> None:
        """Nothing is missing."""

    def rows(self, stream: BinaryIO) -> Iterator[Any]:
        """The lines; the last one may lack its end."""
        for line in stream:
            yield line.rstrip(b"\r\n")


@dataclass(frozen=True, slots=True)
class Csv:
    """Each row as a dict of texts by the names in the first row; without `header` as a list of texts."""

    header: bool = True
    delimiter: str = ","
    quotechar: str = '"'
    encoding: str = "utf-8-sig"

    def check(self) -> None:
        """Nothing is missing."""

    def rows(self, stream: BinaryIO) -> Iterator[Any]:
        """The rows; empty ones are passed over. A row with more or fewer cells than names stops the task."""
        text = io.TextIOWrapper(stream, self.encoding, newline="")
        try:
            yield from self._rows(
                csv.reader(text, delimiter=self.delimiter, quotechar=self.quotechar, strict=True)
            )
        finally:
            text.detach()  # Otherwise the wrapper closes the stream, which is not its own.

    def _rows(self, reader: Any) -> Iterator[Any]:
        cells = (row for row in reader if row)
        if not self.header:
            yield from cells
            return
        names = next(cells, None)
        if names is None:
            return
        if len(set(names)) < len(names):
            raise FlowError(f"the first row names a column twice: {', '.join(names)}. Use Csv(header=False).")
        for row in cells:
            if len(row) != len(names):
                raise FlowError(
                    f"line {reader.line_num} has {len(row)} cells, and the first row names {len(names)} "
                    "columns. Mend the file, or use Csv(header=False), which takes rows as they are."
                )
            yield dict(zip(names, row, strict=True))


@dataclass(frozen=True, slots=True)
class Parquet:
    """Each row as a dict by column; `columns` reads only these."""

    columns: Sequence[str] | None = None

    def check(self) -> None:
        """Raise StartRefused without pyarrow."""
        parquet_library()

    def rows(self, stream: BinaryIO) -> Iterator[Any]:
        """The rows, by the order of their row groups."""
        columns = None if self.columns is None else list(self.columns)
        file = parquet_library().ParquetFile(stream)
        for batch in file.iter_batches(ROWS_AT_ONCE, columns=columns):
            yield from batch.to_pylist()


def parquet_library() -> Any:
    """Import pyarrow, which has no type stubs and is an optional extra."""
    try:
        return importlib.import_module("pyarrow.parquet")
    except ModuleNotFoundError:
        raise StartRefused("Parquet needs pyarrow: pip install 'fencepost[parquet]'.") from None


class RowReader:
    """The rows of one file behind a row, some at a time; it knows whether one is the last."""

    def __init__(self, stream: BinaryIO, path: str, kind: FileFormat, skip: int) -> None:
        self.stream = stream
        self._path = path
        opened = cast("BinaryIO", gzip.GzipFile(fileobj=stream)) if path.endswith(".gz") else stream
        self._rows = kind.rows(opened)
        self.row = 0
        """How many rows were taken."""
        self._ahead: list[Any] = []
        while self.row < skip and self._fill(1):
            self._ahead.clear()
            self.row += 1
        self.skipped_all = self.row == skip

    def take(self, limit: int) -> tuple[list[Any], bool]:
        """The next rows, and whether the file has no more."""
        ended = not self._fill(limit + 1)
        rows, self._ahead = self._ahead[:limit], self._ahead[limit:]
        self.row += len(rows)
        return rows, ended

    def close(self) -> None:
        close = getattr(self._rows, "close", None)
        if close is not None:
            close()
        self.stream.close()

    def _fill(self, count: int) -> bool:
        """Read ahead until there are so many rows; whether there are."""
        try:
            while len(self._ahead) < count:
                self._ahead.append(next(self._rows))
        except StopIteration:
            return False
        except (FlowError, *UNREADABLE) as error:
            row = self.row + len(self._ahead) + 1
            raise FlowError(f"{self._path} cannot be read behind row {row - 1}: {error}") from error
        return True
