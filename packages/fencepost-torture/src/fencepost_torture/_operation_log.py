"""What callers asked and were answered, recorded outside of the system under test.

A file of JSON lines; an append is one write, so all processes of a run share it. A process that is killed has
written a line, none, or, where a page of the file ends, half of one: so every writer begins on a new line,
and half a line is ignored. An operation has two lines: its start, and its answer. One without a second line
is *unknown*: it may have happened, at any time since, or never. One without a first line was never asked.

Times are of CLOCK_MONOTONIC, which is one clock for all processes of a machine.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Operation:
    """One call as its caller saw it. `answer` is None while it is unknown, and `ended` is infinite."""

    what: str
    subject: str
    begun: float
    ended: float
    question: dict[str, Any]
    answer: Any = None
    gave_up: float = math.inf
    """When the caller of an unknown operation got an answer that proves nothing: normally it has happened by
    then, or never does."""

    @property
    def is_unknown(self) -> bool:
        """Whether no answer came, so that it may have happened at any later time, or never."""
        return self.ended == math.inf


class OperationLog:
    """The file, which any process writes and the run reads at the end."""

    def __init__(self, path: Path, author: str = "asker") -> None:
        """`author` is unique: a process that starts again is another author."""
        self.path = path
        self._author = author
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        # Threads share it: taking the next number is atomic.
        self._numbers = count(1)

    def begin(self, what: str, subject: str, **question: Any) -> str:
        """Record that something is about to be asked; returns the name for `end`."""
        name = f"{self._author}.{next(self._numbers)}"
        self._write({"op": name, "what": what, "subject": subject, "at": time.monotonic(), "q": question})
        return name

    def end(self, name: str, answer: Any) -> None:
        """Record the answer. An operation with an unknown outcome is not ended."""
        self._write({"op": name, "at": time.monotonic(), "a": answer})

    def operations(self) -> list[Operation]:
        """Every operation that was begun, in the order of the starts."""
        found: dict[str, Operation] = {}
        for line in self._lines():
            begun = found.get(line["op"])
            if begun is None:
                found[line["op"]] = Operation(line["what"], line["subject"], line["at"], math.inf, line["q"])
            else:
                found[line["op"]] = Operation(
                    begun.what, begun.subject, begun.begun, line["at"], begun.question, line["a"]
                )
        return sorted(found.values(), key=lambda operation: operation.begun)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def _write(self, line: dict[str, Any]) -> None:
        data = b"\n" + json.dumps(line).encode() + b"\n"
        written = os.write(self._descriptor, data)
        assert written == len(data), "the disk of the operation log is full"

    def _lines(self) -> Iterator[dict[str, Any]]:
        with self.path.open(encoding="utf-8") as lines:
            for line in lines:
                try:
                    yield json.loads(line)
                except json.JSONDecodeError:
                    # Empty, or the beginning of what a process wrote when it was killed.
                    continue
