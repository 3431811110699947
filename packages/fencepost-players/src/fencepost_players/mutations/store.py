"""What a service brings to the pipeline: how to look, and how to execute, as calls of its own functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from fencepost.kernel.call import Call, Json
from fencepost_players.mutations.planning import Planned

S = TypeVar("S")
P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class RequestContext:
    """One request on its way. Without a key nothing protects it; the gate knows."""

    user: str
    scope: str
    key: str | None
    digest: str
    method: str
    actor: str | None
    keep_seconds: float | None = None
    """How long the marker is kept; None: as long as the library's."""
    is_ordered: bool = False
    """The key is a UUIDv7 or a ULID, and refused when it is older than its marker would be kept."""


@dataclass(frozen=True, slots=True)
class Lookup(Generic[S]):
    """What is known before planning: the request's own fate, or `open` with a snapshot to plan from."""

    outcome: str
    response: Json
    version: int | None
    snapshot: S
    body: str | None = None
    """The stored response as its text, byte by byte."""


@dataclass(frozen=True, slots=True)
class Executed:
    """What the claim answered: claimed and so done, replay, duplicate, mismatch or in_flight.

    Or stale: the plan must be made again.
    """

    outcome: str
    response: Json
    body: str | None = None
    """The response as the text that was stored, or would have been. Without it the response is rendered."""


class MutationStore(Protocol[S, P]):
    """The database side of a service's mutations."""

    @property
    def service(self) -> str:
        """The name, for metrics and the gate."""
        ...

    def scope(self, user: str) -> str:
        """The scope of a user's request ids: the user's, not the method's."""
        ...

    def recall(self, ticket: RequestContext, needs: Any) -> Lookup[S] | None:
        """What this node still knows, if that is enough to plan from; None asks for a look.

        It need not be true: a repeat is recognised and the version compared when it is executed.
        """
        ...

    def look(self, ticket: RequestContext, needs: Any) -> Call[Lookup[S]]:
        """One STABLE function, so that marker and state are of one snapshot."""
        ...

    def execute(
        self, ticket: RequestContext, planned: Planned[P], version: int | None, *, keep: bool
    ) -> Call[Executed]:
        """One function: claim first, lock, check again what the plan rests on, write, audit.

        `keep` says whether the answer is stored with the marker.
        """
        ...


@runtime_checkable
class HoldsRows(Protocol):
    """A ledger that can look at locked rows: a plan made from them cannot become stale."""

    def hold(self, ticket: RequestContext, needs: Any) -> Call[Lookup[Any]] | None:
        """Lock what the mutation will change, in the transaction that runs this, and look.

        None where the plan rests on nothing that could change.
        """
        ...

    def evict_holders(self, ticket: RequestContext, needs: Any) -> Call[list[int]]:
        """Terminate backends that have held these rows past the service's limit; answers their pids."""
        ...
