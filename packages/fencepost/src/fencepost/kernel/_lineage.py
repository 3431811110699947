"""Whether the database still has all that it ever answered; `functions/lineage.sql` says how it knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fencepost.errors import Rewound
from fencepost.kernel.call import Call, Json, one, optional_text, parsed

State = Literal["in_order", "standby", "recovered", "rewound"]


@dataclass(frozen=True, slots=True)
class Lineage:
    """What the database answered, and the mark to show it the next time."""

    state: State
    mark: str | None
    epoch: int
    evidence: Json

    def refusal(self) -> Rewound | None:
        if self.state != "rewound":
            return None
        return Rewound(
            f"The database lost commits that clients were answered from ({self.evidence['why']}: "
            f"{self.evidence['was']}, now {self.evidence['is']}), so its tokens may be issued twice. Run "
            "`fencepost recover`, or set DATABASE_RECOVER to auto.",
            noun="kernel",
            subject="lineage",
            seen=self.evidence,
        )


def check(mark: str | None, *, recover: bool) -> Call[Lineage]:
    """Show the last mark. With `recover`, a database that lost commits invalidates every old token now."""
    return Call(
        "select state, mark, epoch, evidence::text from fencepost.lineage_check(%s::text, %s::boolean)",
        (optional_text("mark", mark), recover),
        one(_lineage),
    )


def _lineage(state: State, mark: str | None, epoch: int, evidence: str | None) -> Lineage:
    return Lineage(state, mark, epoch, parsed(evidence))
