"""Models of a lease and of a signer's nonces, as callers see them: objects that do one call at a time."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from fencepost_torture._operation_log import Operation


@dataclass(frozen=True, slots=True)
class Held:
    """A lease, and the register that its holder writes under the fence."""

    token: int
    owner: str | None
    value: int


UNKNOWN_OWNER = "a caller that does not know it"


class LeaseModel:
    """acquire, write and release, each answered, refused, or unknown.

    Time is not modelled: a lease may have expired at any moment, so an acquisition may always take over, and
    `lease_expired` may always be answered. What remains is the guarantee: a write passes under the newest
    token and no other, and each write sees the one before it.
    """

    def start(self) -> Held:
        return Held(0, None, 0)

    def after(self, state: Held, operation: Operation) -> Iterable[Held]:
        match operation.what:
            case "acquire":
                return _acquired(state, operation)
            case "write":
                return _written(state, operation)
            case _:
                return _released(state, operation)

    def alike(self, operation: Operation) -> Hashable:
        if operation.what == "acquire":
            return "acquire"
        return operation.what, operation.question["owner"], operation.question["token"]


def _acquired(state: Held, operation: Operation) -> Iterable[Held]:
    owner = str(operation.question["owner"])
    taken = Held(state.token + 1, owner, state.value)
    if operation.is_unknown:
        # A caller that does not know that it holds the lease does nothing with it.
        return [Held(state.token + 1, UNKNOWN_OWNER, state.value)]
    if operation.answer == "not_owner":
        return [state] if state.owner not in (None, owner) else []
    if operation.answer == state.token and state.owner == owner:
        return [state]
    return [taken] if operation.answer == taken.token else []


def _written(state: Held, operation: Operation) -> Iterable[Held]:
    holds = _holds(state, operation)
    written = Held(state.token, state.owner, state.value + 1)
    match operation.answer:
        case None:
            return [written] if holds else []
        case "lease_expired":
            return [state]
        case str():
            return [] if holds else [state]
        case value:
            return [written] if holds and value == written.value else []


def _released(state: Held, operation: Operation) -> Iterable[Held]:
    holds = _holds(state, operation)
    match operation.answer:
        case "released" | None:
            return [Held(state.token, None, state.value)] if holds else []
        case "lease_expired":
            return [state]
        case _:
            return [] if holds else [state]


def _holds(state: Held, operation: Operation) -> bool:
    question = operation.question
    return bool(state.token == question["token"] and state.owner == question["owner"])


Run = tuple[int, int]
"""Consecutive numbers: the first, and how many."""


@dataclass(frozen=True, slots=True)
class Sequence:
    """A signer's nonces: the next new one, and those that were given back, as sorted runs."""

    next: int
    gaps: tuple[Run, ...]


class NonceModel:
    """reserve takes the lowest nonces that were given back, and then new ones; release gives some back.

    A call is for any number of nonces, and is atomic.
    """

    def start(self) -> Sequence:
        return Sequence(0, ())

    def after(self, state: Sequence, operation: Operation) -> Iterable[Sequence]:
        if operation.what == "release":
            given_back = [(int(first), int(count)) for first, count, _ in operation.question["runs"]]
            if any(first + count > state.next for first, count in given_back):
                return []
            return [Sequence(state.next, united([*state.gaps, *given_back]))]
        wanted = int(operation.question["count"])
        taken, gaps = _lowest(state.gaps, wanted)
        new = wanted - sum(count for _, count in taken)
        if not operation.is_unknown and operation.answer != united([*taken, (state.next, new)]):
            return []
        return [Sequence(state.next + new, gaps)]

    def alike(self, operation: Operation) -> Hashable:
        if operation.what == "reserve":
            return "reserve", operation.question["count"]
        return str(operation.question["runs"])


def united(runs: Iterable[Run]) -> tuple[Run, ...]:
    """The same numbers in as few runs as possible, sorted."""
    found: list[Run] = []
    for first, count in sorted(run for run in runs if run[1]):
        if found and first <= sum(found[-1]):
            begin = found[-1][0]
            found[-1] = (begin, max(sum(found[-1]), first + count) - begin)
        else:
            found.append((first, count))
    return tuple(found)


def _lowest(gaps: tuple[Run, ...], wanted: int) -> tuple[list[Run], tuple[Run, ...]]:
    """The lowest `wanted` numbers, or all if there are fewer, and what is left."""
    taken: list[Run] = []
    for place, (first, count) in enumerate(gaps):
        if wanted < count:
            left = ((first + wanted, count - wanted), *gaps[place + 1 :])
            return ([*taken, (first, wanted)] if wanted else taken), left
        taken.append((first, count))
        wanted -= count
    return taken, ()
