"""Checks whether a history of concurrent calls can come from one object that executes them one at a time.

The search of Wing and Gong with Lowe's memoization: try every call that may come next, continue from the
state that it leaves, and never visit a configuration twice. A configuration is the set of done calls and the
state; the set is kept as a prefix and a few exceptions, so that long histories stay small.

A call whose outcome is unknown may take effect at any time after its start, or never. Of equivalent unknown
calls only the first is tried: while both may come, it does not matter which does. The first search assumes
that an unknown call took effect before its caller gave up, or never: a call that may come at any time makes
every wrong guess expensive. An order found under that assumption is valid; if none is found, that proves
nothing, and the full search follows.

- J. M. Wing, C. Gong: Testing and verifying concurrent objects (1993)
- G. Lowe: Testing for linearizability (2017)
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from fencepost.testing import Breach
from fencepost_torture._effects import UNDECIDED
from fencepost_torture._operation_log import Operation

S = TypeVar("S", bound=Hashable)

# A search without a wrong guess visits one for each call; this many more are allowed for wrong guesses.
CONFIGURATIONS_MAX = 300_000
CONFIGURATIONS_PER_CALL = 10


class Model(Protocol[S]):
    """The specification: an object that executes one call after another."""

    def start(self) -> S:
        """The state before the first operation."""
        ...

    def after(self, state: S, operation: Operation) -> Iterable[S]:
        """The states that the call may leave, given its answer; none when that answer is impossible."""
        ...

    def alike(self, operation: Operation) -> Hashable:
        """Unknown calls with the same value have the same effect in every state."""
        ...


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """The result of the search. A search that gave up says so, and proves nothing."""

    holds: bool
    decided: bool
    explanation: str = ""
    order: Sequence[Operation] = ()
    """One order that explains every answer, if one was found; it includes the unknown calls that it needs."""


@dataclass(frozen=True, slots=True)
class SearchPlace(Generic[S]):
    """The position of one branch of the search."""

    prefix: int
    """This many answered calls, from the first, are done."""
    beyond: frozenset[int]
    """Answered calls after the prefix that are done."""
    guessed: frozenset[int]
    """Unknown calls that are assumed to have happened."""
    state: S


def linearize(
    operations: Sequence[Operation], model: Model[S], *, configurations_max: int | None = None
) -> CheckFinding:
    """Search for one order that explains every answer."""
    if configurations_max is None:
        configurations_max = CONFIGURATIONS_MAX + CONFIGURATIONS_PER_CALL * len(operations)
    answered = sorted((o for o in operations if not o.is_unknown), key=lambda o: o.begun)
    unknown = sorted((o for o in operations if o.is_unknown), key=lambda o: o.begun)
    if any(operation.gave_up < math.inf for operation in unknown):
        finding = _find(_Search(answered, unknown, model, hasty=True), model.start(), configurations_max)
        if finding.holds and finding.decided:
            return finding
    return _find(_Search(answered, unknown, model), model.start(), configurations_max)


def _find(search: _Search[S], state: S, configurations_max: int) -> CheckFinding:
    start = SearchPlace(0, frozenset[int](), frozenset[int](), state)
    came: dict[SearchPlace[S], tuple[SearchPlace[S], Operation] | None] = {start: None}
    stack = [start]
    furthest = start
    while stack:
        place = stack.pop()
        if search.is_over(place):
            return CheckFinding(holds=True, decided=True, order=_order(came, place))
        if place.prefix + len(place.beyond) > furthest.prefix + len(furthest.beyond):
            furthest = place
        # The most likely one is pushed last and so tried first.
        for operation, following in reversed(list(search.following(place))):
            if following not in came:
                came[following] = place, operation
                stack.append(following)
        if len(came) > configurations_max:
            return CheckFinding(
                holds=True, decided=False, explanation=f"gave up after {len(came)} configurations"
            )
    return CheckFinding(holds=False, decided=True, explanation=search.explain(furthest))


def linearizable(
    subject: str,
    operations: Sequence[Operation],
    model: Model[S],
    *,
    configurations_max: int | None = None,
) -> Iterator[Breach]:
    """The breaches of one history. A search that gave up has proved nothing, and is reported as such."""
    finding = linearize(operations, model, configurations_max=configurations_max)
    if not finding.holds:
        yield Breach("linearizable", subject, finding.explanation)
    elif not finding.decided:
        yield Breach(UNDECIDED, subject, finding.explanation)


def _order(
    came: Mapping[SearchPlace[S], tuple[SearchPlace[S], Operation] | None], last: SearchPlace[S]
) -> Sequence[Operation]:
    order: list[Operation] = []
    while (step := came[last]) is not None:
        last, operation = step
        order.append(operation)
    return order[::-1]


class _Search(Generic[S]):
    def __init__(
        self,
        answered: Sequence[Operation],
        unknown: Sequence[Operation],
        model: Model[S],
        *,
        hasty: bool = False,
    ) -> None:
        """A hasty search assumes that unknown calls took effect before their callers gave up, or never."""
        self._answered = answered
        self._unknown = unknown
        self._model = model
        self._hasty = hasty
        groups: dict[Hashable, list[int]] = {}
        for index, operation in enumerate(unknown):
            groups.setdefault(model.alike(operation), []).append(index)
        self._groups = list(groups.values())

    def is_over(self, place: SearchPlace[S]) -> bool:
        return place.prefix == len(self._answered)

    def following(self, place: SearchPlace[S]) -> Iterator[tuple[Operation, SearchPlace[S]]]:
        """Every call that may come next, with its resulting position: answered calls first, by their ends."""
        open_now, claim_cursor = self._open(place)
        for index in sorted(open_now, key=lambda index: self._answered[index].ended):
            for state in self._model.after(place.state, self._answered[index]):
                prefix, beyond = self._advance(place, index)
                yield self._answered[index], SearchPlace(prefix, beyond, place.guessed, state)
        latest = self._latest(place) if self._hasty else -math.inf
        for group in self._groups:
            left = (index for index in group if index not in place.guessed)
            first = next((index for index in left if self._unknown[index].gave_up >= latest), None)
            if first is None or self._unknown[first].begun > claim_cursor:
                continue
            for state in self._model.after(place.state, self._unknown[first]):
                if state != place.state:
                    guessed = place.guessed | {first}
                    yield self._unknown[first], SearchPlace(place.prefix, place.beyond, guessed, state)

    def explain(self, place: SearchPlace[S]) -> str:
        open_now, _ = self._open(place)
        calls = "; ".join(_describe(self._answered[index]) for index in open_now[:4])
        done = place.prefix + len(place.beyond)
        return f"after {done} calls the state is {place.state}, and none of these can follow: {calls}"

    def _open(self, place: SearchPlace[S]) -> tuple[list[int], float]:
        """The answered calls that may come next: those that began before the first of them ended."""
        found: list[int] = []
        claim_cursor = float("inf")
        for index in range(place.prefix, len(self._answered)):
            operation = self._answered[index]
            if operation.begun > claim_cursor:
                break
            if index not in place.beyond:
                found.append(index)
                claim_cursor = min(claim_cursor, operation.ended)
        return [index for index in found if self._answered[index].begun <= claim_cursor], claim_cursor

    def _latest(self, place: SearchPlace[S]) -> float:
        """When the last of the done calls began."""
        last = max(place.beyond, default=place.prefix - 1)
        return self._answered[last].begun if last >= 0 else -math.inf

    def _advance(self, place: SearchPlace[S], index: int) -> tuple[int, frozenset[int]]:
        done = place.beyond | {index}
        prefix = place.prefix
        while prefix in done:
            done -= {prefix}
            prefix += 1
        return prefix, done


def _describe(operation: Operation) -> str:
    question = ", ".join(f"{name}={value}" for name, value in operation.question.items())
    return f"{operation.what}({question}) -> {operation.answer}"
