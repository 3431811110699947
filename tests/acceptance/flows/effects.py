"""What the sinks of several workers have done, by key: numbers in the order in which each key's have come."""

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString

from fencepost.embedded import Database
from fencepost.flows.sinks.files import arrow_library
from tests.acceptance.flows.kafka_model import committed
from tests.acceptance.flows.worker_processes import Keeps, sqlite_of

ByKey = dict[str, list[int]]


def by_key(values: Iterable[str], keeps: Keeps) -> ByKey:
    """Of each key its numbers, in order; sorted where the sink keeps none."""
    found: ByKey = {}
    for value in values:
        key, _, number = value.partition("-")
        found.setdefault(key, []).append(int(number))
    return {key: sorted(numbers) for key, numbers in found.items()} if keeps == "each" else found


def count_of(effects: ByKey) -> int:
    return sum(map(len, effects.values()))


@dataclass(frozen=True)
class Effects:
    """Reads every sink back: `k3-17` is the seventeenth record of the key k3."""

    database: Database
    redis: Callable[[], AbstractContextManager[Any]]
    folder: Path
    executed: Mapping[str, Any]
    """What the service has executed, by idempotency key."""

    def of(self, sink: str) -> Sequence[str]:
        if sink.startswith("redis"):
            return self._in_redis(sink)
        if sink == "http":
            return list(self.executed.values())
        if sink == "kafka":
            return committed(self.database.admin_url, "effects")
        if sink == "sqlite":
            with closing(sqlite3.connect(**sqlite_of(str(self.folder)))) as connection:
                return [row[0] for row in connection.execute("select value from effect order by rowid")]
        if sink in _FILES:
            suffix, read = _FILES[sink]
            # A key is of one task, whose files are named by the numbers of its checkpoints.
            return [value for file in sorted(self.folder.glob(f"*.{suffix}")) for value in read(file)]
        with self.database.connect_admin() as connection:
            return [row[0] for row in connection.execute(_QUERIES[sink]).fetchall()]

    def _in_redis(self, sink: str) -> Sequence[str]:
        with self.redis() as client:
            if sink == "redis-stream":
                return [fields["data"] for _, fields in client.xrange("effects")]
            if sink == "redis-hash":
                return [f"{key}-{number}" for key, number in client.hgetall("effects").items()]
            if sink == "redis-set":
                return list(client.smembers("effects"))
            key = "effects:{arrivals}" if sink == "redis-acknowledging" else "effects"
            return list(client.lrange(key, 0, -1))


def _rows_of(file: Path) -> list[str]:
    return [row["value"] for row in arrow_library("pyarrow.parquet").read_table(file).to_pylist()]


_FILES: Mapping[str, tuple[str, Callable[[Path], list[str]]]] = {
    "files": ("jsonl", lambda file: file.read_text().split()),
    "parquet": ("parquet", _rows_of),
    "hooks": ("diary", lambda file: json.loads(file.read_text())),
}
_ROWS: LiteralString = "select value from effect order by id"
_TOTALS: LiteralString = "select key || '-' || value from total"
_QUERIES: Mapping[str, LiteralString] = {
    "rows": _ROWS,
    "rows-deferred": _ROWS,
    "prepared": _ROWS,
    "upsert": _TOTALS,
    "elsewhere": _TOTALS,
    "outbox": "select payload #>> '{}' from fencepost.outbox where channel = 'effects' order by id",
}
