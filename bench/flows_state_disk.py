"""State on disk: what a record costs, and how long a task with many keys takes to begin again.

No server: the stages of one task, the bytes of its commits in a folder, and SQLite. `python -m
bench.flows_state_disk KEYS` fills a state and prints what a second process, which begins from the commits,
needs."""

from __future__ import annotations

import asyncio
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.report import Goal, Row
from fencepost.flows import Flow, IterableSource, TableSink
from fencepost.flows._plan import FlowPlan, KeyedStage, SourceStage
from fencepost.flows._spill import Spill
from fencepost.flows._state import decode, encode

KEYS, QUICK_KEYS = 10_000_000, 100_000
COMMIT_RECORDS = 100_000
LOOKED_UP = 5_000
"""Random keys of the first commit behind a restore: they are in nearly all buckets."""
RECOVERY_SECONDS_MAX = 30
MEMORY_BYTES = 64_000_000


class DiskTask:
    """The stage of one task, with its commits in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        flow = Flow("large").source(IterableSource([], name="in")).key_by(lambda number: number)
        program = FlowPlan(flow.count(name="count").sink(TableSink()))
        self._head = SourceStage(program, program.sources[0])
        self._spill = Spill(str(folder), MEMORY_BYTES)
        self.stage = KeyedStage(program, senders=1, spill=self._spill)

    async def commit(self, number: int, numbers: list[int]) -> None:
        for entrance, records in await self._head.feed(numbers):
            await self.stage.push("in", entrance, records)
        await self.stage.flush()
        self.stage.take()
        document, parts = self.stage.spilled(self._spill)
        since = self._spill.since or number
        for part in parts:
            (self._folder / part.hash.hex()).write_bytes(part.content)
        named = {"since": since, "parts": [part.hash.hex() for part in parts]}
        (self._folder / f"{number}.state").write_bytes(encode(document))
        (self._folder / f"{number}.json").write_text(json.dumps(named))
        self.stage.clean()
        self._spill.committed(number)

    async def restore(self, newest: int) -> None:
        first = json.loads((self._folder / f"{newest}.json").read_text())["since"]
        for number in range(first, newest + 1):
            body = decode((self._folder / f"{number}.state").read_bytes()).body
            assert body is not None, "a commit of a task with state has a document"
            named = json.loads((self._folder / f"{number}.json").read_text())["parts"]
            await self.stage.apply(body, number, [bytes.fromhex(name) for name in named])
        await self.stage.complete(self._part)

    async def _part(self, digest: bytes) -> bytes | None:
        return (self._folder / digest.hex()).read_bytes()

    def close(self) -> None:
        self._spill.close()


async def _fill(folder: Path, keys: int) -> dict[str, Any]:
    task, began = DiskTask(folder), time.process_time()
    for number, first in enumerate(range(0, keys, COMMIT_RECORDS), 1):
        await task.commit(number, list(range(first, min(keys, first + COMMIT_RECORDS))))
    task.close()
    return {"cpu_seconds": time.process_time() - began}


async def _restore(folder: Path, keys: int) -> dict[str, Any]:
    began, began_cpu = time.monotonic(), time.process_time()
    newest = -(-keys // COMMIT_RECORDS)
    task = DiskTask(folder)
    await task.restore(newest)
    filling = asyncio.create_task(task.stage.fill())
    draw = random.Random(1)  # noqa: S311 - It chooses keys.
    await task.commit(newest + 1, [draw.randrange(keys) for _ in range(LOOKED_UP)])
    found = {"seconds": time.monotonic() - began, "cpu_seconds": time.process_time() - began_cpu}
    await filling
    task.close()
    return found


def measure(*, quick: bool) -> tuple[list[Row], list[Goal]]:
    """Fill and restore in processes of their own, so that the memory of each is its own."""
    keys = QUICK_KEYS if quick else KEYS
    with tempfile.TemporaryDirectory() as folder:
        filled, restored = (_in_process(verb, folder, keys) for verb in ("fill", "restore"))
    rows: list[Row] = [
        {
            "system": f"fencepost, {keys:,} keys on disk, no server",
            "guarantee": "exactly-once",
            "records": keys,
            "records/CPU s": round(keys / filled["cpu_seconds"]),
            "MB": round(max(filled["mb"], restored["mb"])),
        }
    ]
    name = f"first commit of a task that begins again with {keys:,} keys on disk, seconds"
    return rows, [Goal(name, round(restored["seconds"], 2), RECOVERY_SECONDS_MAX, at_most=True)]


def _in_process(verb: str, folder: str, keys: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.flows_state_disk", str(keys), verb, folder]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout))


def main(keys: str, verb: str = "", folder: str = "") -> None:
    if not verb:
        with tempfile.TemporaryDirectory() as made:
            for each in ("fill", "restore"):
                sys.stdout.write(f"{each} {_in_process(each, made, int(keys))}\n")
        return
    work = _fill if verb == "fill" else _restore
    found = asyncio.run(work(Path(folder), int(keys)))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    sys.stdout.write(json.dumps({**found, "mb": peak}))


if __name__ == "__main__":
    main(*sys.argv[1:])
