"""A record of what happened, separate from the system under test, and the rules that it must keep.

    history = History(path)
    history.record("asked", "order-7")
    history.record("done", "order-7", token=3)
    check(history.entries(), once(asked="asked", effect="done"), tokens_grow("done"))

A history is a file of JSON lines. An append is one write, so several processes may share it, and a killed
process has either written a line or not. Record an effect *where it takes place*; a record that a caller
makes afterwards may come late, or never. Effects that are rows of a database are read from it: build the
entries with `HistoryLine`.

A rule is any function from entries to breaches, so a test can add its own invariants.
"""

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fencepost.testing._errors import HistoryBroken

BREACHES_SHOWN = 20


@dataclass(frozen=True)
class HistoryLine:
    """One event: its kind, its key, its token."""

    kind: str
    key: str
    token: int | None = None
    detail: Mapping[str, Any] = field(default_factory=dict[str, Any])
    pid: int = 0
    at: float = 0.0


@dataclass(frozen=True)
class Breach:
    """One way in which a history breaks a rule."""

    rule: str
    key: str
    what: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.key} {self.what}"


Rule = Callable[[Sequence[HistoryLine]], Iterable[Breach]]


class History:
    """An append-only file of events."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def record(self, kind: str, key: str, *, token: int | None = None, **detail: Any) -> None:
        """Append an entry to the file; processes may do it at once."""
        entry = HistoryLine(kind, key, token, detail, os.getpid(), time.time())
        line = json.dumps(asdict(entry)).encode() + b"\n"
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            written = os.write(descriptor, line)
            assert written == len(line), "the disk is full"
        finally:
            os.close(descriptor)

    def entries(self) -> list[HistoryLine]:
        """All entries, in the order in which they were written."""
        if not self.path.exists():
            return []
        return [HistoryLine(**json.loads(line)) for line in self.path.read_text().splitlines()]


def once(*, asked: str = "asked", effect: str = "done") -> Rule:
    """Everything that was asked for took effect once: none lost, none doubled, none without a request."""

    def rule(entries: Sequence[HistoryLine]) -> Iterable[Breach]:
        wanted = {entry.key for entry in entries if entry.kind == asked}
        times = Counter(entry.key for entry in entries if entry.kind == effect)
        for key in sorted(wanted | times.keys()):
            if key not in wanted:
                yield Breach("once", key, "took effect, and was never requested")
            elif times[key] == 0:
                yield Breach("once", key, "was lost")
            elif times[key] > 1:
                yield Breach("once", key, f"took effect {times[key]} times")

    return rule


def at_most_once(*, effect: str = "done") -> Rule:
    """Nothing took effect twice; for requests that may legitimately have no effect."""

    def rule(entries: Sequence[HistoryLine]) -> Iterable[Breach]:
        times = Counter(entry.key for entry in entries if entry.kind == effect)
        return [
            Breach("at most once", key, f"took effect {count} times")
            for key, count in sorted(times.items())
            if count > 1
        ]

    return rule


def tokens_grow(kind: str = "done") -> Rule:
    """For one key no effect has a lower token than an earlier one: no zombie wrote after its successor."""

    def rule(entries: Sequence[HistoryLine]) -> Iterable[Breach]:
        highest: dict[str, int] = {}
        for entry in entries:
            if entry.kind != kind or entry.token is None:
                continue
            before = highest.get(entry.key, entry.token)
            if entry.token < before:
                yield Breach(
                    "tokens grow", entry.key, f"was written under token {entry.token} after {before}"
                )
            highest[entry.key] = max(before, entry.token)

    return rule


def breaches(entries: Sequence[HistoryLine], *rules: Rule) -> list[Breach]:
    """What breaks any of the rules."""
    return [breach for rule in rules for breach in rule(entries)]


def check(entries: Sequence[HistoryLine], *rules: Rule) -> None:
    """Raise HistoryBroken with every breach of every rule."""
    found = breaches(entries, *rules)
    if found:
        shown = "\n".join(f"  {breach}" for breach in found[:BREACHES_SHOWN])
        raise HistoryBroken(f"{len(found)} breaches in {len(entries)} entries:\n{shown}")
