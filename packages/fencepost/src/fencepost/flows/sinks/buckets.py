"""Buckets as a sink: one object for each commit, which appears whole.

A bucket has no rename. So the values are stored in the checkpoint first, and the object that has them is
named after it: a repeat writes the same object again.
"""

from __future__ import annotations

import asyncio
import io
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fencepost.flows._bucket import Bucket
from fencepost.flows._guarantee import EXACTLY_ONCE, Promise
from fencepost.flows.sinks._rejecting import STOP, OnReject, Rejections, converted
from fencepost.flows.sinks._sink import CheckpointId, FlowContext
from fencepost.flows.sinks._sink_types import StagedSink
from fencepost.flows.sinks.files import arrow_library, stem
from fencepost.flows.sinks.redis import as_bytes


class BucketSink(StagedSink):
    """Objects below a URL such as `s3://bucket/prefix`. A subclass defines what they hold.

    `options` are those of the store (`endpoint`, `region`, `access_key_id`, `secret_access_key`); missing
    ones come from the variables of the cloud, or from the machine's role. An object's name has the task and
    the number of the checkpoint, which no other has.
    """

    promise = Promise(EXACTLY_ONCE, "an object is named after its checkpoint, and a repeat writes it again")
    suffix: str

    def __init__(
        self, url: str, *, options: Mapping[str, Any] | None = None, on_reject: OnReject = STOP
    ) -> None:
        self._bucket = Bucket(url, options or {})
        self.on_reject = on_reject

    @abstractmethod
    def convert(self, value: Any) -> Any:
        """What one value is in an object. Raises for a value that no object can hold."""

    @abstractmethod
    def content(self, converted: Sequence[Any]) -> bytes:
        """The object that has these."""

    async def open(self, context: FlowContext) -> None:
        """Refuse a bucket that cannot be listed."""
        await asyncio.to_thread(self._bucket.check)

    async def deliver(self, checkpoint: CheckpointId, values: Sequence[Any]) -> Rejections:
        """Write the object of a checkpoint; a repeat writes it again."""
        made, rejected = converted(values, self.convert)
        if made and not (rejected and self.on_reject == STOP):
            name = f"{stem(checkpoint.resource)}-{checkpoint.number:012}.{self.suffix}"
            await asyncio.to_thread(self._bucket.put, name, self.content(made))
        return rejected


class BucketJsonLines(BucketSink):
    """One JSON document per line."""

    suffix = "jsonl"

    def __init__(
        self,
        url: str,
        *,
        options: Mapping[str, Any] | None = None,
        encode: Callable[[Any], bytes] = as_bytes,
        on_reject: OnReject = STOP,
    ) -> None:
        super().__init__(url, options=options, on_reject=on_reject)
        self._encode = encode

    def convert(self, value: Any) -> bytes:
        """A line of a value."""
        return self._encode(value) + b"\n"

    def content(self, converted: Sequence[Any]) -> bytes:
        """All lines."""
        return b"".join(converted)


class BucketParquet(BucketSink):
    """One row per value. `row` makes a mapping by column of each; `schema` is a pyarrow schema, or is
    inferred for each object."""

    suffix = "parquet"

    def __init__(
        self,
        url: str,
        *,
        options: Mapping[str, Any] | None = None,
        row: Callable[[Any], Mapping[str, Any]] = dict,
        schema: Any = None,
        compression: str = "zstd",
        on_reject: OnReject = STOP,
    ) -> None:
        super().__init__(url, options=options, on_reject=on_reject)
        self._row = row
        self._schema = schema
        self._compression = compression

    async def open(self, context: FlowContext) -> None:
        """Refuse a bucket that cannot be listed, and a missing library."""
        arrow_library("pyarrow.parquet")
        await super().open(context)

    def convert(self, value: Any) -> dict[str, Any]:
        """A row of a value, which fits the schema."""
        row = dict(self._row(value))
        if self._schema is not None:
            # Arrow's own errors are ValueErrors and TypeErrors too.
            arrow_library("pyarrow").Table.from_pylist([row], schema=self._schema)
        return row

    def content(self, converted: Sequence[Any]) -> bytes:
        """A file of all rows."""
        table = arrow_library("pyarrow").Table.from_pylist(list(converted), schema=self._schema)
        buffer = io.BytesIO()
        arrow_library("pyarrow.parquet").write_table(table, buffer, compression=self._compression)
        return buffer.getvalue()
