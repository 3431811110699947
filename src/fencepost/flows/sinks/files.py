"""Files: written aside, and renamed into place when their checkpoint is durable. One file a commit."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fencepost.flows.errors import FlowError
from fencepost.flows.sinks.kinds import TwoPhaseCommitSink
from fencepost.flows.sinks.redis import as_bytes
from fencepost.flows.sinks.sink import CheckpointId, Workplace

STAGING = ".staging"


class JsonLines(TwoPhaseCommitSink[Any, dict[str, Any]]):
    """One JSON document a line, in files that appear whole or not at all.

    A file's name has the task, the checkpoint's number and the token, so that nothing is ever overwritten.
    """

    def __init__(self, directory: Path | str, *, encode: Callable[[Any], bytes] = as_bytes) -> None:
        self._directory = Path(directory)
        self._encode = encode

    async def open(self, place: Workplace) -> None:
        (self._directory / STAGING).mkdir(parents=True, exist_ok=True)

    async def begin_transaction(self, checkpoint: CheckpointId) -> dict[str, Any]:
        return {"name": f"{_stem(checkpoint.resource)}-{checkpoint.number:012}-{checkpoint.token}.jsonl"}

    async def invoke(self, value: Any, txn: dict[str, Any]) -> None:
        await self.invoke_many([value], txn)

    async def invoke_many(self, values: Sequence[Any], txn: dict[str, Any]) -> None:
        if values:
            with self._staged(txn).open("ab") as file:
                file.writelines(self._encode(value) + b"\n" for value in values)

    async def pre_commit(self, txn: dict[str, Any]) -> None:
        staged = self._staged(txn)
        txn["empty"] = not staged.exists()
        if not txn["empty"]:
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
                    f"{txn['name']} is neither staged nor in place: somebody removed it from "
                    f"{self._directory}."
                ) from None
        _keep_on_disk(self._directory)

    async def abort(self, txn: dict[str, Any]) -> None:
        self._staged(txn).unlink(missing_ok=True)

    async def restored(self, resource: str, number: int) -> None:
        """What is staged for this task now was never recorded, or is of a zombie."""
        for left in (self._directory / STAGING).glob(f"{_stem(resource)}-*"):
            left.unlink(missing_ok=True)

    def _staged(self, txn: dict[str, Any]) -> Path:
        return self._directory / STAGING / str(txn["name"])


def _stem(resource: str) -> str:
    """The resource as part of a file's name, and a digest, because two may look the same."""
    digest = hashlib.sha256(resource.encode()).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9]+', '-', resource)[:80].strip('-')}-{digest}"


def _keep_on_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
