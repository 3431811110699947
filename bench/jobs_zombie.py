"""The zombie test: a worker is frozen inside a handler until its job has run elsewhere, and then continues.

Two scenarios, each on a fresh database. *During*: the first worker continues while the second still runs.
*After*: it continues when the second has finished. In both the first writes its effect and ends its job, too
late. What counts is the state in the store afterwards, and the number of effects.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from bench.jobs_env import Entrant

LEASE_SECONDS = 3
"""The lease, visibility timeout or heartbeat limit that every library is given."""
ELSEWHERE_SECONDS_MAX = 90
LEADING_SECONDS = 5
# A worker that has just started treats what it finds as its own or as lost; this test is not about that.
BEGINNING_SECONDS = 3
GOING_ON_SECONDS_MAX = 15
FINISHED_SECONDS_MAX = 30
# After the last action: what a library writes when a handler has returned comes after it.
SETTLE_SECONDS = 2.0

ZombieRun = Literal["during", "after"]


class NeverRanElsewhere(Exception):
    """The job stayed with the frozen worker."""


@dataclass(frozen=True, slots=True)
class ZombieEnding:
    """The state at the end of a scenario."""

    accepted: bool
    effects: int
    note: str


def verdict(during: ZombieEnding, after: ZombieEnding) -> str:
    """In words. Refused means that in neither scenario the late finish changed the state in the store."""
    if during.accepted and after.accepted:
        return "accepted"
    if during.accepted:
        return "accepted while another runs it"
    return "accepted after another finished" if after.accepted else "refused"


def play(entrant: Entrant, harness: ZombieRun) -> ZombieEnding:
    """Both workers on one job; returns whether the late finish changed anything in the store."""
    order = {"kind": "zombie", "lease_seconds": LEASE_SECONDS}
    results = entrant.results
    with _bystander(entrant, order), entrant.worker("A", **order) as first:
        time.sleep(BEGINNING_SECONDS)
        entrant.call("submit", **order)
        _wait(lambda: results.acted("A", "started"), GOING_ON_SECONDS_MAX, "the first worker starts the job")
        first.freeze()
        with entrant.worker("B", **order):
            _run_elsewhere(entrant, order)
            if harness == "after":
                _go_on(entrant, "B")
                _until_finished(entrant, order)
            before = entrant.call("outcome", **order)
            _go_on(entrant, "A", first.thaw)
            accepted = entrant.call("outcome", **order) != before
            if harness == "during":
                _go_on(entrant, "B")
            said = entrant.call("outcome", **order)
    return ZombieEnding(accepted, len(entrant.effects("zombie")), str(said.get("note", said.get("by", ""))))


@contextmanager
def _bystander(entrant: Entrant, order: dict[str, Any]) -> Generator[None]:
    """A third worker that takes no jobs and becomes the leader, for libraries that have one."""
    if not entrant.peer.has_leader:
        yield
        return
    with entrant.worker("L", **{**order, "kind": "bystander"}):
        time.sleep(LEADING_SECONDS)
        yield


def _run_elsewhere(entrant: Entrant, order: dict[str, Any]) -> None:
    """Wait until the second worker has it; where no worker looks for lost jobs, recover as documented."""
    deadline = time.monotonic() + ELSEWHERE_SECONDS_MAX
    time.sleep(LEASE_SECONDS)
    while not entrant.results.acted("B", "started"):
        if time.monotonic() > deadline:
            raise NeverRanElsewhere
        entrant.call("recover", **order)
        time.sleep(0.5)


def _go_on(entrant: Entrant, who: str, thaw: Callable[[], None] | None = None) -> None:
    """Let a worker continue. One that never writes was stopped or refused by its library: a result."""
    entrant.results.allow(who)
    if thaw is not None:
        thaw()
    deadline = time.monotonic() + GOING_ON_SECONDS_MAX
    while not entrant.results.acted(who, "wrote") and time.monotonic() < deadline:
        if thaw is not None and time.monotonic() > deadline - GOING_ON_SECONDS_MAX + SETTLE_SECONDS * 2:
            break
        time.sleep(0.05)
    time.sleep(SETTLE_SECONDS)


def _until_finished(entrant: Entrant, order: dict[str, Any]) -> None:
    """A library may have more to do when the handler has ended, and may ask the worker that stands still
    first. Where nothing is finished in time, that is what the state is compared with."""
    deadline = time.monotonic() + FINISHED_SECONDS_MAX
    while not entrant.call("outcome", **order)["finished"] and time.monotonic() < deadline:
        time.sleep(0.5)


def _wait(met: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not met():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds} s: {what}")
        time.sleep(0.05)
