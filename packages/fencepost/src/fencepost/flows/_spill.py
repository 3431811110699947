"""Keyed state beyond memory: the values of a task on its worker's local disk, with the newest in memory.

What is on the disk is true for as long as the task runs and never longer: the files have no names, so a crash
leaves none, and the next task begins from PostgreSQL. A commit stores what changed, and writes it to the disk
before: a commit that fails ends the task, and with it the disk's content.

The values lie in SQLite, one row each, by bucket and packed key. A bucket that a restore has brought is put
there when a key of it is asked for, or in the background (`fill`)."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import tempfile
from collections.abc import (
    AsyncGenerator,
    Callable,
    Generator,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    ValuesView,
)
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

from fencepost.flows._errors import StartRefused, StateDiskFailed
from fencepost.flows._segments import (
    BUCKETS,
    Blob,
    PackedPair,
    SegmentChain,
    Stored,
    bucket_of,
    by_bucket,
    encoded,
    key_of,
    packed_key,
    stored,
    value_of,
    with_key,
)
from fencepost.flows._state import KeyedState, as_key
from fencepost.flows._value_codec import flat, pack, unpack

ABSENT: Any = object()
BUCKET_BYTES = 2
FORGET = "delete from pair where key >= ? and key < ?"
BUCKET = "select substr(key, 4), value from pair where key >= ? and key < ?"
CACHE = "pragma cache_size = -32768"
"""How many KiB of its pages SQLite keeps in memory, for each task."""
KEY_BYTES = 300
"""What a value in memory takes besides its own bytes, about."""
KEYS_MIN = 1_000
CHANGE_BYTES = 10_000
"""What a restore pays for a commit besides its bytes."""
BASE_BYTES = 100
"""What a restore pays for a bucket besides its bytes."""


class SpilledValues(dict[Any, Any]):
    """The values of a state: those in memory, and behind them those on the disk, which a look-up brings.
    Steps use it as any dict. What was looked up, and what was changed since the last commit, stays until
    `shrink`."""

    def __init__(self, find: Callable[[Any], Any], pairs: Callable[[], Iterator[tuple[Any, Any]]]) -> None:
        super().__init__()
        self._find = find
        self.pairs = pairs

    def __missing__(self, key: Any) -> Any:
        value = self._find(key)
        if value is ABSENT:
            raise KeyError(key)
        return value

    def get(self, key: Any, default: Any = None) -> Any:
        value = super().get(key, ABSENT)
        if value is ABSENT:
            value = self._find(key)
        return default if value is ABSENT else value

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or self._find(key) is not ABSENT

    def pop(self, key: Any, default: Any = ABSENT) -> Any:
        value = self.get(key, ABSENT)
        if value is not ABSENT:
            del self[key]
        elif default is ABSENT:
            raise KeyError(key)
        return default if value is ABSENT else value

    def in_memory(self, key: Any) -> bool:
        return super().__contains__(key)

    def in_memory_count(self) -> int:
        return super().__len__()

    def shrink(self, count: int) -> None:
        """Forget the oldest of what is in memory, until so many are left. Nothing of it has changed since the
        commit."""
        over = super().__len__() - count
        for key in [key for key, _ in zip(super().__iter__(), range(over), strict=False)]:
            del self[key]

    def __iter__(self) -> Iterator[Any]:
        return (key for key, _ in self.pairs())

    def items(self) -> Any:
        return _Pairs(self)

    def keys(self) -> Any:
        return KeysView(self)

    def values(self) -> Any:
        return ValuesView(self)

    def __len__(self) -> int:
        return sum(1 for _ in self.pairs())

    def __bool__(self) -> bool:
        return next(self.pairs(), None) is not None


class _Pairs(ItemsView[Any, Any]):
    """The pairs of a state, without bringing them all into memory."""

    def __init__(self, values: SpilledValues) -> None:
        super().__init__(values)
        self._values = values

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return self._values.pairs()


class Spill:
    """The states of one task on the local disk, in the order in which they were adopted."""

    def __init__(self, directory: str, memory_bytes: int) -> None:
        """`memory_bytes` bounds the values in memory between two commits, about."""
        self._directory = directory
        self._memory_bytes = memory_bytes
        self._states: list[tuple[str, KeyedState, SpilledValues]] = []
        self._chain = SegmentChain()
        self._loaded = bytearray(b"\1" * BUCKETS)
        self._bases = [0] * (BUCKETS + 1)
        """The number of the checkpoint with the newest base of each bucket, and of what is in no bucket; 0
        for the commit under way."""
        self._next = 0
        self._owed = 0
        self._stored_bytes = 0
        self._stored_rows = 0
        self._failure: Exception | None = None
        with self.disk():
            self._rows = self._opened()

    @property
    def directory(self) -> str:
        return self._directory

    def _opened(self) -> sqlite3.Connection:
        handle, path = tempfile.mkstemp(prefix="fencepost-state-", dir=self._directory)
        os.close(handle)
        try:
            # Nothing is ever rolled back or read again after a crash: no journal, no fsync.
            rows = sqlite3.connect(path, isolation_level=None)
            rows.execute("pragma locking_mode = exclusive")
            rows.execute("pragma journal_mode = off")
            rows.execute("pragma synchronous = off")
            rows.execute("pragma temp_store = memory")
            rows.execute(CACHE)
            rows.execute("create table pair (key blob primary key, value blob not null) without rowid")
        finally:
            Path(path).unlink()
        return rows

    @contextmanager
    def disk(self) -> Generator[None]:
        """Within, a failure of the disk becomes StateDiskFailed."""
        if self._failure is not None:
            raise self._failure
        try:
            yield
        except FileNotFoundError:
            raise StartRefused(
                f"FLOW_STATE_DIR is {self._directory}, which is no folder of this worker. Make it, or name "
                "another."
            ) from None
        except (sqlite3.Error, OSError) as error:
            self._failure = StateDiskFailed(
                f"State cannot be kept in FLOW_STATE_DIR ({self._directory}): {error}. The task stops and "
                "loses nothing: its state is in PostgreSQL. Make room there, name a larger folder, or spread "
                "the keys over more workers (fencepost flows regroup)."
            )
            raise self._failure from error

    def adopt(self, states: Mapping[str, KeyedState]) -> None:
        """Keep these states here, by their names. They are empty."""
        for name, state in states.items():
            number = len(self._states)
            values = SpilledValues(self._finder(number, state), self._scanner(number, state))
            state.values = values
            self._states.append((name, state, values))

    def ingest(self, name: str, pairs: Iterable[list[Any]]) -> None:
        """Take pairs, or removals, as a checkpoint of a task in memory has them."""
        number = next(n for n, (other, _, _) in enumerate(self._states) if other == name)
        state = self._states[number][1]
        write = flat if state.declared else pack

        def packed(pair: list[Any]) -> PackedPair:
            key = packed_key(pair[0])
            return key, with_key(pair[0], key, write(pair[1])) if len(pair) > 1 else None

        self._apply(number, by_bucket(map(packed, ([as_key(pair[0]), *pair[1:]] for pair in pairs))))

    def continue_from(self, chain: SegmentChain, origin: int) -> None:
        """Begin with what a restore has read; `origin` is the number of the first checkpoint of it."""
        self._chain = chain
        self._bases = [chain.bases.get(bucket, origin) for bucket in range(BUCKETS + 1)]
        for name, _, _ in self._states:
            for bucket in chain.buckets(name):
                self._loaded[bucket] = 0

    async def fill(self) -> None:
        """Bring what is not on the disk yet, one bucket after the other, while the task runs."""
        for bucket in range(BUCKETS):
            if not self._loaded[bucket]:
                # A failure stops the task at its next look-up.
                with suppress(Exception):
                    self._load(bucket)
            await asyncio.sleep(0)

    def _finder(self, number: int, state: KeyedState) -> Callable[[Any], Any]:
        revive = state.revive

        def find(key: Any) -> Any:
            if key in state.dirty:
                # Removed since the last commit.
                return ABSENT
            packed = packed_key(key)
            bucket = bucket_of(packed)
            if not self._loaded[bucket]:
                self._load(bucket)
            with self.disk():
                found = self._rows.execute(
                    "select value from pair where key = ?", (_prefix(number, bucket) + packed,)
                ).fetchone()
            if found is None:
                return ABSENT
            value = revive(unpack(value_of(found[0])))
            state.values[key] = value
            return value

        return find

    def _scanner(self, number: int, state: KeyedState) -> Callable[[], Iterator[tuple[Any, Any]]]:
        def pairs() -> Iterator[tuple[Any, Any]]:
            values = state.values
            assert isinstance(values, SpilledValues), "an adopted state has its values here"
            changed = [(key, values[key]) for key in state.dirty if values.in_memory(key)]
            for bucket in range(BUCKETS):
                for packed, value in self._bucket(number, bucket):
                    key = unpack(key_of(packed, value))
                    if key in state.dirty:
                        continue
                    known = values.in_memory(key)
                    yield key, values[key] if known else state.revive(unpack(value_of(value)))
            yield from changed

        return pairs

    def _bucket(self, number: int, bucket: int) -> list[tuple[bytes, bytes]]:
        if not self._loaded[bucket]:
            self._load(bucket)
        first = _prefix(number, bucket)
        with self.disk():
            return self._rows.execute(BUCKET, (first, _behind(first))).fetchall()

    def _load(self, bucket: int) -> None:
        """Put a bucket on the disk. Its base replaces what checkpoints of a task in memory had of it. After a
        failure nothing can be looked up any more: a bucket without its values would look empty."""
        try:
            for number, (name, _, _) in enumerate(self._states):
                if bucket in self._chain.bases:
                    first = _prefix(number, bucket)
                    with self.disk():
                        self._rows.execute(FORGET, (first, _behind(first)))
                pairs = self._chain.take(name, bucket)
                self._apply(number, [(bucket, list(pairs.items()))])
        except Exception as error:
            self._failure = error
            raise
        self._loaded[bucket] = 1

    def _apply(self, number: int, pairs_of: Iterable[tuple[int, list[Any]]]) -> None:
        with self.disk():
            self._rows.execute("begin")
            for bucket, pairs in pairs_of:
                prefix = _prefix(number, bucket)
                gone = [(prefix + key,) for key, value in pairs if value is None]
                if gone:
                    self._rows.executemany("delete from pair where key = ?", gone)
                self._rows.executemany(
                    "insert or replace into pair values (?, ?)",
                    [(prefix + key, value) for key, value in pairs if value is not None],
                )
            self._rows.execute("commit")

    def changes(self) -> Stored:
        """Write what changed since the last commit to the disk, and return it with the bases that are due."""
        changed = dict[tuple[int, int], list[PackedPair]]()
        for number, (_, state, values) in enumerate(self._states):
            for bucket, pairs in by_bucket(self._packed(state, values)):
                if not self._loaded[bucket]:
                    self._load(bucket)
                changed[number, bucket] = pairs
            self._apply(number, ((b, pairs) for (n, b), pairs in changed.items() if n == number))
        names = [name for name, _, _ in self._states]
        deltas: list[Blob] = [
            (names[number], bucket, False, encoded(pairs)) for (number, bucket), pairs in changed.items()
        ]
        self._owed += sum(len(blob[3]) for blob in deltas) + CHANGE_BYTES
        bases = self._bases_due(changed)
        rebased = {blob[1] for blob in bases}
        return stored([blob for blob in deltas if blob[1] not in rebased], bases)

    def _packed(self, state: KeyedState, values: SpilledValues) -> Iterator[PackedPair]:
        write = flat if state.declared else pack
        for key in state.dirty:
            packed = packed_key(key)
            value = with_key(key, packed, write(values[key])) if values.in_memory(key) else None
            self._stored_rows += 1
            self._stored_bytes += len(packed) + len(value or b"")
            yield packed, value

    def _bases_due(self, changed: Mapping[tuple[int, int], object]) -> list[Blob]:
        """The buckets that are stored whole with this commit: as many bytes as it changes."""
        bases: list[Blob] = []
        for _ in range(BUCKETS):
            if self._owed <= 0:
                break
            if self._next == 0:
                self._bases[BUCKETS] = 0
            bucket, self._next = self._next, (self._next + 1) % BUCKETS
            for number, (name, _, _) in enumerate(self._states):
                rows = self._bucket(number, bucket)
                # An empty bucket that this commit did not empty has no segment, and needs none.
                if rows or (number, bucket) in changed:
                    bases.append((name, bucket, True, encoded(rows)))
                    self._owed -= len(bases[-1][3])
            self._owed -= BASE_BYTES
            self._bases[bucket] = 0
        return bases

    @property
    def is_rest_due(self) -> bool:
        """Whether the commit under way stores whole what is in no bucket."""
        return self._bases[BUCKETS] == 0

    @property
    def stored_bytes(self) -> int:
        """How many bytes the state takes on the disk."""
        with self.disk():
            ((pages,),) = self._rows.execute("pragma page_count").fetchall()
            ((size,),) = self._rows.execute("pragma page_size").fetchall()
        return int(pages) * int(size)

    @property
    def since(self) -> int | None:
        """The first checkpoint that a restore of the commit under way reads; None for that commit itself."""
        return min((number for number in self._bases if number), default=None)

    def committed(self, number: int) -> None:
        """The commit has this number. What memory has beyond its bound is forgotten."""
        self._bases = [base or number for base in self._bases]
        each = KEY_BYTES + (4 * self._stored_bytes // self._stored_rows if self._stored_rows else 0)
        room = max(KEYS_MIN, self._memory_bytes // each)
        for _, _, values in self._states:
            if values.in_memory_count() > room // len(self._states):
                values.shrink(room // len(self._states) // 2)

    def close(self) -> None:
        self._chain.close()
        self._rows.close()


@asynccontextmanager
async def spilled(directory: str | None, memory_mb: int) -> AsyncGenerator[Spill | None]:
    """Where a task keeps its state for as long as it runs; None without a directory: in memory."""
    if directory is None:
        yield None
        return
    spill = Spill(directory, memory_mb * 1_000_000)
    try:
        yield spill
    finally:
        spill.close()


def _prefix(number: int, bucket: int) -> bytes:
    return bytes((number,)) + bucket.to_bytes(BUCKET_BYTES, "big")


def _behind(prefix: bytes) -> bytes:
    return (int.from_bytes(prefix, "big") + 1).to_bytes(len(prefix), "big")


__all__ = ["Spill", "SpilledValues", "spilled"]
