"""The exhibit: a worker stands still inside a handler until its job has run elsewhere, and then goes on.

Two scenes, each on a fresh database. *During*: the first goes on while the second still runs. *After*: it
goes on when the second has finished. In both the first writes its effect and ends its job, too late. What
counts is what the store says afterwards, and how many effects there are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from fencepost.bench.jobs_arena import Contestant

LEASE_SECONDS = 3
"""The lease, visibility timeout or heartbeat limit that every library is given."""
ELSEWHERE_SECONDS_MAX = 90
LEADING_SECONDS = 5
# A worker that has just begun takes what it finds for its own or for lost; the exhibit is not about that.
BEGINNING_SECONDS = 3
GOING_ON_SECONDS_MAX = 15
# After the last sign of life: what a library writes when a handler has returned comes after it.
SETTLE_SECONDS = 2.0

Scene = Literal["during", "after"]


class NeverRanElsewhere(Exception):
    """The job stayed with the worker that stands still."""


@dataclass(frozen=True, slots=True)
class Ending:
    """What was seen at the end of a scene."""

    accepted: bool
    effects: int
    note: str


def verdict(during: Ending, after: Ending) -> str:
    """In words. Refused means that in neither scene the late finish changed what the store says."""
    if during.accepted and after.accepted:
        return "accepted"
    if during.accepted:
        return "accepted while another runs it"
    return "accepted after another finished" if after.accepted else "refused"


def play(contestant: Contestant, scene: Scene) -> Ending:
    """Both workers on one job; answers whether the late finish changed anything in the store."""
    order = {"kind": "zombie", "lease_seconds": LEASE_SECONDS}
    ledger = contestant.ledger
    with _bystander(contestant, order), contestant.worker("A", **order) as first:
        time.sleep(BEGINNING_SECONDS)
        contestant.call("submit", **order)
        _wait(lambda: ledger.acted("A", "started"), GOING_ON_SECONDS_MAX, "the first worker starts the job")
        first.freeze()
        with contestant.worker("B", **order):
            _run_elsewhere(contestant, order)
            if scene == "after":
                _go_on(contestant, "B")
            before = contestant.call("outcome", **order)
            _go_on(contestant, "A", first.thaw)
            accepted = contestant.call("outcome", **order) != before
            if scene == "during":
                _go_on(contestant, "B")
            said = contestant.call("outcome", **order)
    return Ending(accepted, len(contestant.effects("zombie")), str(said.get("note", said.get("by", ""))))


@contextmanager
def _bystander(contestant: Contestant, order: dict[str, Any]) -> Generator[None]:
    """A third worker that takes no jobs and leads, where one of them does."""
    if not contestant.peer.has_leader:
        yield
        return
    with contestant.worker("L", **{**order, "kind": "bystander"}):
        time.sleep(LEADING_SECONDS)
        yield


def _run_elsewhere(contestant: Contestant, order: dict[str, Any]) -> None:
    """Until the second worker has it; where no worker looks for lost jobs, do what the documentation says."""
    deadline = time.monotonic() + ELSEWHERE_SECONDS_MAX
    time.sleep(LEASE_SECONDS)
    while not contestant.ledger.acted("B", "started"):
        if time.monotonic() > deadline:
            raise NeverRanElsewhere
        contestant.call("recover", **order)
        time.sleep(0.5)


def _go_on(contestant: Contestant, who: str, thaw: Callable[[], None] | None = None) -> None:
    """Let a worker go on. One that never writes was stopped by its library or refused: that is an answer."""
    contestant.ledger.open_gate(who)
    if thaw is not None:
        thaw()
    deadline = time.monotonic() + GOING_ON_SECONDS_MAX
    while not contestant.ledger.acted(who, "wrote") and time.monotonic() < deadline:
        if thaw is not None and time.monotonic() > deadline - GOING_ON_SECONDS_MAX + SETTLE_SECONDS * 2:
            break
        time.sleep(0.05)
    time.sleep(SETTLE_SECONDS)


def _wait(met: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not met():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds} s: {what}")
        time.sleep(0.05)
