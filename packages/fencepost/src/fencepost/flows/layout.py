"""The stateful steps of a flow, as the database has accepted them one after the other.

A state is stored under the layout that its worker ran with. Under a later one its steps are found by
what was renamed
and dropped on the way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fencepost.flows.errors import StateMismatch


@dataclass(frozen=True, slots=True)
class LayoutChange:
    """How one layout became of another: `origin` is the one before it, or that of a savepoint."""

    layout: int
    origin: int
    renamed: Mapping[str, str]
    dropped: Sequence[str]


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout that a worker runs with, and those that led to it."""

    number: int = 0
    changes: Mapping[int, LayoutChange] = field(default_factory=dict[int, LayoutChange])

    def name_of(self, step: str, since: int) -> str | None:
        """What a step of an earlier layout is called now; None if its state was dropped."""
        name = step
        for change in self._since(since):
            if name in change.dropped:
                return None
            name = change.renamed.get(name, name)
        return name

    def _since(self, since: int) -> list[LayoutChange]:
        """The changes that lead here, the first one first."""
        way: list[LayoutChange] = []
        number = self.number
        while number > since:
            change = self.changes.get(number)
            if change is None:
                break
            way.append(change)
            number = change.origin
        if number != since:
            raise StateMismatch(
                f"A checkpoint was stored by layout {since} of the flow's stateful steps, and nothing "
                f"leads from it to "
                f"layout {self.number}. Restore a savepoint (fencepost flows restore)."
            )
        return way[::-1]
