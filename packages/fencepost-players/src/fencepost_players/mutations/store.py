"""The store that a service provides to the pipeline: calls that look and execute, in its own functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from fencepost.kernel.call import Call, Json
from fencepost_players.mutations.planning import Planned

S = TypeVar("S")
P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class RequestContext:
    """One request. Without a key nothing protects it from repeats; the request id policy counts those."""

    user: str
    scope: str
    key: str | None
    digest: str
    method: str
    actor: str | None
    keep_seconds: float | None = None
    """How long the idempotency key is kept; None: the library's default."""
    is_ordered: bool = False
    """The key is a UUIDv7 or a ULID, and refused when it is older than `keep_seconds`."""


@dataclass(frozen=True, slots=True)
class Lookup(Generic[S]):
    """What is known before planning: the request's outcome, or `open` with a snapshot to plan from."""

    outcome: str
    response: Json
    version: int | None
    snapshot: S
    body: str | None = None
    """The stored response text, byte for byte."""


@dataclass(frozen=True, slots=True)
class Executed:
    """The result of the claim: claimed (done), replay, duplicate, mismatch or in_flight.

    Or stale: the plan must be made again.
    """

    outcome: str
    response: Json
    body: str | None = None
    """The response text that was stored, or would have been. Without it the response is rendered."""


class MutationStore(Protocol[S, P]):
    """The database side of a service's mutations."""

    @property
    def service(self) -> str:
        """The name, for metrics and the request id policy."""
        ...

    def scope(self, user: str) -> str:
        """The scope of a user's request ids: the user's, not the method's."""
        ...

    def recall(self, context: RequestContext, needs: Any) -> Lookup[S] | None:
        """What this node has cached, if that is enough to plan from; None requires a look.

        It may be out of date: the execution recognises a repeat and compares the version.
        """
        ...

    def look(self, context: RequestContext, needs: Any) -> Call[Lookup[S]]:
        """One STABLE function, so that idempotency key and state are of one snapshot."""
        ...

    def execute(
        self, context: RequestContext, planned: Planned[P], version: int | None, *, keep: bool
    ) -> Call[Executed]:
        """One function: claim first, lock, check again what the plan rests on, write, audit.

        `keep` says whether the response is stored with the idempotency key.
        """
        ...


@runtime_checkable
class HoldsRows(Protocol):
    """A store that can look at locked rows: a plan made from them cannot become stale."""

    def hold(self, context: RequestContext, needs: Any) -> Call[Lookup[Any]] | None:
        """Lock what the mutation will change, in the transaction that runs this, and look.

        None where the plan rests on nothing that could change.
        """
        ...

    def evict_holders(self, context: RequestContext, needs: Any) -> Call[list[int]]:
        """Terminate backends that have held these rows past the service's limit; returns their pids."""
        ...
