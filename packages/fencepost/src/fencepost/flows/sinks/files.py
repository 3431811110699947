"""Files: written to a temporary name, and renamed when their checkpoint is durable. One file per commit."""

from __future__ import annotations

import hashlib
import importlib
import os
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fencepost.flows._errors import FlowError, StartRefused
from fencepost.flows.sinks._rejecting import (
    STOP,
    UNFIT,
    OnReject,
    Rejected,
    Rejection,
    Rejections,
    halves,
    rejection,
)
from fencepost.flows.sinks._sink import CheckpointId, FlowContext
from fencepost.flows.sinks._sink_types import TwoPhaseCommitSink
from fencepost.flows.sinks.redis import as_bytes

STAGING = ".staging"


class StagedFiles(TwoPhaseCommitSink[Any, dict[str, Any]]):
    """Files that appear complete or not at all. A subclass defines how its values are written.

    A file's name contains the task, the checkpoint's number and the token, so that nothing is ever
    overwritten.
    """

    suffix: str

    def __init__(self, directory: Path | str, *, on_reject: OnReject = STOP) -> None:
        self._directory = Path(directory)
        self._values: dict[str, list[Any]] = {}
        self.on_reject = on_reject

    @abstractmethod
    def convert(self, values: Sequence[Any]) -> Sequence[Any]:
        """Convert values to what a file holds: rows, or lines. Raises for a value that no file can hold."""

    @abstractmethod
    def write_file(self, path: Path, values: Sequence[Any]) -> None:
        """Write the result of `convert`."""

    async def open(self, context: FlowContext) -> None:
        staging = self._directory / STAGING
        try:
            staging.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StartRefused(
                f"{type(self).__name__} cannot make {staging}: {error.strerror}. Run: mkdir -p {staging} && "
                f"chown {os.getuid()} {self._directory} {staging}"
            ) from None
        if not all(os.access(folder, os.W_OK | os.X_OK) for folder in (self._directory, staging)):
            raise StartRefused(
                f"{type(self).__name__} may not write to {self._directory}. Run: chown {os.getuid()} "
                f"{self._directory} {staging}"
            )

    async def begin_transaction(self, checkpoint: CheckpointId) -> dict[str, Any]:
        return {
            "name": f"{stem(checkpoint.resource)}-{checkpoint.number:012}-{checkpoint.token}.{self.suffix}"
        }

    async def invoke(self, value: Any, txn: dict[str, Any]) -> None:
        await self.invoke_many([value], txn)

    async def invoke_many(self, values: Sequence[Any], txn: dict[str, Any]) -> Rejections:
        """Values that cannot be converted together are halved until each unconvertible value is found."""
        made = self._values.setdefault(txn["name"], [])
        rejected: list[Rejection] = []
        waiting: list[Sequence[Any]] = [values] if values else []
        while waiting:
            part = waiting.pop()
            try:
                made.extend(self.convert(part))
            except (Rejected, *UNFIT) as error:
                if len(part) == 1:
                    rejected.append(rejection(part[0], error))
                else:
                    first, second = halves(part)
                    waiting += [second, first]
        return rejected

    async def pre_commit(self, txn: dict[str, Any]) -> None:
        values = self._values.pop(txn["name"], [])
        txn["empty"] = not values
        if values:
            staged = self._staged(txn)
            self.write_file(staged, values)
            _keep_on_disk(staged)
            _keep_on_disk(staged.parent)

    async def commit(self, txn: dict[str, Any]) -> None:
        if txn.get("empty"):
            return
        final = self._directory / txn["name"]
        try:
            self._staged(txn).replace(final)
        except FileNotFoundError:
            if not final.exists():
                raise FlowError(
                    f"{txn['name']} is neither staged nor in place: it was removed from {self._directory}."
                ) from None
        _keep_on_disk(self._directory)

    async def abort(self, txn: dict[str, Any]) -> None:
        self._values.pop(txn["name"], None)
        self._staged(txn).unlink(missing_ok=True)

    async def restored(self, resource: str, number: int) -> None:
        """Files that are staged for this task now were never recorded, or belong to a zombie."""
        for left in (self._directory / STAGING).glob(f"{stem(resource)}-*"):
            left.unlink(missing_ok=True)

    def _staged(self, txn: dict[str, Any]) -> Path:
        return self._directory / STAGING / str(txn["name"])


class JsonLines(StagedFiles):
    """One JSON document per line."""

    suffix = "jsonl"

    def __init__(
        self,
        directory: Path | str,
        *,
        encode: Callable[[Any], bytes] = as_bytes,
        on_reject: OnReject = STOP,
    ) -> None:
        super().__init__(directory, on_reject=on_reject)
        self._encode = encode

    def convert(self, values: Sequence[Any]) -> Sequence[Any]:
        return [self._encode(value) + b"\n" for value in values]

    def write_file(self, path: Path, values: Sequence[Any]) -> None:
        with path.open("wb") as file:
            file.writelines(values)


class ParquetFiles(StagedFiles):
    """One row per value. `row` makes a mapping by column of each; `schema` is a pyarrow schema, or is
    inferred.

    Without a schema the columns of a file are those of its first row, and two files may disagree about types.
    """

    suffix = "parquet"

    def __init__(
        self,
        directory: Path | str,
        *,
        row: Callable[[Any], Mapping[str, Any]] = dict,
        schema: Any = None,
        compression: str = "zstd",
        on_reject: OnReject = STOP,
    ) -> None:
        super().__init__(directory, on_reject=on_reject)
        self._row = row
        self._schema = schema
        self._compression = compression

    async def open(self, context: FlowContext) -> None:
        arrow_library("pyarrow.parquet")
        await super().open(context)

    def convert(self, values: Sequence[Any]) -> Sequence[Any]:
        rows = [dict(self._row(value)) for value in values]
        if self._schema is not None:
            # Arrow's own errors are ValueErrors and TypeErrors too.
            arrow_library("pyarrow").Table.from_pylist(rows, schema=self._schema)
        return rows

    def write_file(self, path: Path, values: Sequence[Any]) -> None:
        table = arrow_library("pyarrow").Table.from_pylist(list(values), schema=self._schema)
        arrow_library("pyarrow.parquet").write_table(table, path, compression=self._compression)


def arrow_library(module: str) -> Any:
    """Import pyarrow, which has no type stubs and is an optional extra."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        raise StartRefused("Parquet needs pyarrow: pip install 'fencepost[parquet]'.") from None


def stem(resource: str) -> str:
    """The resource as part of a file's name, with a digest, because two may look the same."""
    digest = hashlib.sha256(resource.encode()).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9]+', '-', resource)[:80].strip('-')}-{digest}"


def _keep_on_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
