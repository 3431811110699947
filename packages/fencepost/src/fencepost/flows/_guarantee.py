"""The guarantee of a flow, computed when its graph is built: the lowest of its sources and its sinks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from fencepost.flows._errors import GuaranteeNotMet


class Guarantee(IntEnum):
    """Ordered: a higher guarantee includes the lower ones."""

    AT_MOST_ONCE = 0
    AT_LEAST_ONCE = 1
    EXACTLY_ONCE = 2

    @property
    def words(self) -> str:
        """The name as it is shown, such as exactly-once."""
        return self.name.lower().replace("_", "-")

    @classmethod
    def named(cls, name: str) -> Guarantee:
        """The guarantee of this name. Raises GuaranteeNotMet, naming those that there are."""
        try:
            return cls[name.upper()]
        except KeyError:
            known = ", ".join(member.name.lower() for member in cls)
            raise GuaranteeNotMet(f"{name!r} is no guarantee; there are {known}.") from None


@dataclass(frozen=True, slots=True)
class Promise:
    """The highest guarantee that one source or sink keeps, why, and what could be used instead."""

    guarantee: Guarantee
    reason: str
    alternatives: Sequence[str] = ()


EXACTLY_ONCE = Guarantee.EXACTLY_ONCE
AT_LEAST_ONCE = Guarantee.AT_LEAST_ONCE
AT_MOST_ONCE = Guarantee.AT_MOST_ONCE


def require(asked: Guarantee, promises: Sequence[tuple[str, Promise]]) -> None:
    """Raise GuaranteeNotMet, naming every part that cannot keep the requested guarantee."""
    broken = [(name, promise) for name, promise in promises if promise.guarantee < asked]
    if broken:
        raise GuaranteeNotMet("\n".join(_user_error(asked, name, promise) for name, promise in broken))


def _user_error(asked: Guarantee, name: str, promise: Promise) -> str:
    instead = [*promise.alternatives, f"ask for {promise.guarantee.name.lower()}"]
    return (
        f"{asked.words} was asked, and {name} is {promise.guarantee.words}: {promise.reason}. "
        f"Instead: {'; or '.join(instead)}."
    )
