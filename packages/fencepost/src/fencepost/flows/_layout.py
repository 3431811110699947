"""The stateful steps of a flow, in each version that the database has accepted.

A state is stored under the layout that its worker ran with. Under a later layout its steps are found through
the renames and drops in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fencepost.flows._errors import StateMismatch


@dataclass(frozen=True, slots=True)
class LayoutChange:
    """How one layout was derived from another: `origin` is the previous one, or that of a savepoint."""

    layout: int
    origin: int
    renamed: Mapping[str, str]
    dropped: Sequence[str]


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout that a worker runs with, and the layouts before it."""

    number: int = 0
    changes: Mapping[int, LayoutChange] = field(default_factory=dict[int, LayoutChange])

    def name_of(self, step: str, since: int) -> str | None:
        """The current name of a step of an earlier layout; None if its state was dropped."""
        name = step
        for change in self._since(since):
            if name in change.dropped:
                return None
            name = change.renamed.get(name, name)
        return name

    def _since(self, since: int) -> list[LayoutChange]:
        """The changes from that layout to this one, the oldest first."""
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
