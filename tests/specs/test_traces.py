"""A history is a behaviour of its specification exactly if the code kept the promise."""

import math
import re
from typing import Any

import pytest

from fencepost_torture._operation_log import Operation
from tests.specs import traces
from tests.specs.tlc import SPECS

# What no history shows by itself: it happens only to who does nothing any more.
HIDDEN = {
    "Lease": {"Evict", "Crash"},
    "Attempt": set[str](),
    "IdempotencyKey": set[str](),
    "Outbox": set[str](),
    "Sink": {"Ack", "Crash"},
    # Where a guard is off, and what happens to a process that does nothing any more.
    "Workflow": {"RecordLater", "Look", "UndoLater", "Lose"},
}
SETS = {"Workers", "Clients", "Messages", "Relays"}


def acquire(at: float, owner: str, answer: Any) -> Operation:
    ended = math.inf if answer is None else at + 0.5
    return Operation("acquire", "r", at, ended, {"owner": owner}, answer)


def under(what: str, at: float, owner: str, token: int, answer: Any) -> Operation:
    ended = math.inf if answer is None else at + 0.5
    return Operation(what, "r", at, ended, {"owner": owner, "token": token}, answer)


def test_histories_of_leases_are_behaviours_and_broken_ones_are_not() -> None:
    taken_over = [
        acquire(0, "a", 1),
        acquire(1, "b", "not_owner"),
        under("write", 2, "a", 1, 1),
        acquire(3, "b", 2),
        under("write", 4, "a", 1, "not_owner"),
        under("release", 5, "a", 1, "not_owner"),
        under("write", 6, "b", 2, 2),
        under("release", 7, "b", 2, "released"),
        acquire(8, "c", None),
        acquire(9, "a", 4),
        under("write", 10, "a", 4, 3),
    ]
    renewed = [acquire(0, "a", 1), acquire(1, "a", 1), under("write", 2, "a", 1, None), acquire(3, "b", 2)]
    fine = {"taken over": traces.lease_trace(taken_over), "renewed": traces.lease_trace(renewed)}
    over: traces.Trace = [("Acquire", 1, 1), ("Expire", 1, 0), ("Acquire", 2, 2)]
    broken: dict[str, traces.Trace] = {
        "a write under a token that is over": [*over, ("Fence", 1, 1)],
        "the same token twice": [("Acquire", 1, 1), ("Expire", 1, 0), ("Acquire", 2, 1)],
        "two owners at once": [("Acquire", 1, 1), ("Acquire", 2, 2)],
        "the holder is refused": [("Acquire", 1, 1), ("Fence refused", 1, 0)],
    }

    assert traces.refused("Lease", {**fine, **broken}) == list(broken)


@pytest.mark.full
def test_the_step_that_was_not_possible_is_named() -> None:
    trace = [("Acquire", 1, 1), ("Expire", 1, 0), ("Acquire", 2, 2), ("Fence", 1, 1), ("Write", 1, 0)]

    assert str(traces.replay("Lease", {"r": trace})) == "r, line 4: Fence by 1 (number 1) is no step"


LIFE = [
    ("1", "claimed", 1, None),
    ("2", "left", 1, False),
    ("3", "claimed", 2, None),
    ("4", "taken over", 3, None),
    ("5", "left", 3, True),
    ("6", "claimed", 4, None),
    ("7", "left", 4, False),
    ("7", "finished", 4, None),
]


def test_lives_of_jobs_are_behaviours_and_broken_ones_are_not() -> None:
    again = [*LIFE, ("8", "claimed", 5, None)]
    fine = {"whole": traces.attempt_trace(LIFE, [4]), "without a write": traces.attempt_trace(LIFE, [])}
    broken = {
        "the effect of another attempt": traces.attempt_trace(LIFE, [3]),
        "claimed when it was finished": traces.attempt_trace(again, [4]),
        "an attempt twice": traces.attempt_trace([*LIFE[:2], LIFE[0]], []),
        "an effect more": traces.attempt_trace(LIFE, [4, 4]),
    }

    assert traces.refused("Attempt", {**fine, **broken}) == list(broken)


def test_requests_are_behaviours_and_broken_ones_are_not() -> None:
    whole = traces.idempotency_trace(1, ["a", "a", "a"])
    broken = {
        "two effects": traces.idempotency_trace(2, ["a"]),
        "two answers": traces.idempotency_trace(1, ["a", "b"]),
        "an answer without an effect": traces.idempotency_trace(0, ["a"]),
    }

    silent = traces.idempotency_trace(1, [])
    assert traces.refused("IdempotencyKey", {"whole": whole, "silent": silent, **broken}) == list(broken)


def test_lines_of_messages_are_behaviours_and_broken_ones_are_not() -> None:
    put = [(71, "put", 0), (75, "put", 0)]
    settled = [
        *put,
        (71, "taken", 1),
        (71, "taken", 2),
        (71, "settled", 2),
        (75, "taken", 1),
        (75, "settled", 1),
    ]
    broken = {
        "the second before the first": [*put, (75, "taken", 1)],
        "settled by a take that is over": [*put, (71, "taken", 1), (71, "taken", 2), (71, "settled", 1)],
        "settled twice": [*settled[:5], (71, "settled", 2)],
        "a take twice": [*put, (71, "taken", 1), (71, "taken", 1)],
        "settled and never taken": [*put, (71, "settled", 0)],
    }

    assert traces.refused(
        "Outbox",
        {name: traces.message_trace(events) for name, events in {"whole": settled, **broken}.items()},
    ) == list(broken)


def test_commits_of_a_key_group_are_behaviours_and_broken_ones_are_not() -> None:
    expected = ["a-1", "b-1", "a-2", "b-2"]
    first: list[tuple[str, int, list[str]]] = [("acquired", 1, []), ("committed", 1, ["a-1", "b-1"])]
    whole: list[tuple[str, int, list[str]]] = [
        *first,
        ("acquired", 2, []),
        ("committed", 2, ["a-2"]),
        ("committed", 2, ["b-2"]),
    ]
    broken: dict[str, list[tuple[str, int, list[str]]]] = {
        "a record twice": [*first, ("committed", 1, ["b-1", "a-2"])],
        "a record left out": [*first, ("committed", 1, ["b-2"])],
        "records in another order": [first[0], ("committed", 1, ["b-1", "a-1"])],
        "a commit of who was taken over from": [*first, ("acquired", 2, []), ("committed", 1, ["a-2"])],
        "the same token twice": [*first, ("acquired", 1, [])],
        "a record that nobody sent": [*first, ("committed", 1, ["c-1"])],
    }

    assert traces.refused(
        "Sink",
        {name: traces.commit_trace(events, expected) for name, events in {"whole": whole, **broken}.items()},
    ) == list(broken)


SAGA: list[traces.Event] = [
    ("1", "claimed", 1, None),
    ("2", "reversible", 1, "a"),
    ("3", "step", 1, "price"),
    ("4", "lost", 1, None),
    ("5", "claimed", 2, None),
    ("6", "reversible", 2, "b"),
    ("7", "sleep", 2, "sleep"),
    ("7", "left", 2, None),
    ("8", "claimed", 3, None),
    ("9", "left", 3, None),
    ("9", "dead", 3, None),
    ("9", "undo", None, "a"),
    ("9", "undo", None, "b"),
]
LISTENER: list[traces.Event] = [
    ("1", "claimed", 1, None),
    ("2", "awaits", None, "go"),
    ("2", "left", 1, None),
    ("3", "emitted", None, "go"),
    ("4", "claimed", 2, None),
    ("5", "event", 2, "go"),
    ("6", "step", 2, "a"),
    ("7", "left", 2, None),
    ("7", "finished", 2, None),
]


def test_lives_of_workflows_are_behaviours_and_broken_ones_are_not() -> None:
    written = [("a", 1), ("b", 2)]
    in_time = [*LISTENER[:3], *LISTENER[4:5], ("5", "timed out", 2, "go"), *LISTENER[6:]]
    cancelled: list[traces.Event] = [*LISTENER[:3], ("3", "cancelled", 1, None)]
    fine = {
        "undone": traces.workflow_trace(SAGA, written, ["b", "a"]),
        "waited": traces.workflow_trace(LISTENER, [("a", 2)]),
        "timed out": traces.workflow_trace(in_time, [("a", 2)]),
        "cancelled while it waits": traces.workflow_trace(cancelled, []),
    }
    broken = {
        "a step of an attempt that is over": traces.workflow_trace(SAGA, [("a", 1), ("b", 1)], ["b", "a"]),
        "a row more": traces.workflow_trace(SAGA, [*written, ("b", 2)], ["b", "a"]),
        "an undo is missing": traces.workflow_trace(SAGA[:-1], written, ["a"]),
        "undone in the wrong order": traces.workflow_trace(SAGA, written, ["a", "b"]),
        "undone twice": traces.workflow_trace(SAGA, written, ["b", "a", "a"]),
        "an event that was never emitted": traces.workflow_trace([*LISTENER[:1], *LISTENER[5:]], [("a", 2)]),
        "a step after the end": traces.workflow_trace(
            [*LISTENER, ("8", "step", 2, "b")], [("a", 2), ("b", 2)]
        ),
        "an end without its last step": traces.workflow_trace(
            [*LISTENER[:3], ("3", "left", 1, None), ("3", "finished", 1, None)], []
        ),
    }

    assert traces.refused("Workflow", {**fine, **broken}) == list(broken)


@pytest.mark.parametrize("specification", HIDDEN)
def test_every_action_can_be_replayed_or_is_hidden(specification: str) -> None:
    """An action that is added to a specification is either looked for in the histories, or named here."""
    text = (SPECS / f"{specification}.tla").read_text()
    moves = re.search(r"^Next ==(.*?)(?:^\\\*|^\w+ ==)", text, re.DOTALL | re.MULTILINE)
    assert moves is not None
    actions = set(re.findall(r"\b([A-Z]\w+)(?=\(| |$)", moves[1], re.MULTILINE)) - SETS
    replayed = set(re.findall(r'name = "(\w+)"', (traces.TRACES / f"{specification}Trace.tla").read_text()))

    assert actions - HIDDEN[specification] == replayed
