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


@dataclass(frozen=True, slots=True)
class ReadAge:
    """Where reads were answered from, and how old they may be."""

    is_standby: bool
    age_seconds: float | None
    """At most so many seconds behind the primary, which is 0 itself; None on a standby of a database that no
    client has used."""

    def __str__(self) -> str:
        if not self.is_standby:
            return "the primary"
        if self.age_seconds is None:
            return "a standby, of unknown age"
        return f"a standby, at most {self.age_seconds:.1f} s old"


PRIMARY = ReadAge(is_standby=False, age_seconds=0.0)


def read_age() -> Call[ReadAge]:
    """To be asked before what it is about."""
    return Call("select is_standby, age_seconds from fencepost.read_age()", (), one(ReadAge))


def check(mark: str | None, *, recover: bool) -> Call[Lineage]:
    """Show the last mark. With `recover`, a database that lost commits invalidates every old token now."""
    return Call(
        "select state, mark, epoch, evidence::text from fencepost.lineage_check(%s::text, %s::boolean)",
        (optional_text("mark", mark), recover),
        one(_lineage),
    )


def _lineage(state: State, mark: str | None, epoch: int, evidence: str | None) -> Lineage:
    return Lineage(state, mark, epoch, parsed(evidence))
