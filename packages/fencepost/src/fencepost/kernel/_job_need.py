"""Which worker may take which job: `functions/job_need.sql`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from fencepost.errors import InvalidInput
from fencepost.kernel.call import Call, document, duration, nothing, one, scalar, text

ANY_ARGUMENT = "*"


@dataclass(frozen=True)
class Serves:
    """What a worker serves: kinds, each with the arguments that its handler knows (None: it ignores unknown
    ones), and the abilities that it offers to jobs whose header `needs` lists some."""

    kinds: Mapping[str, Iterable[str] | None]
    offers: Sequence[str] = ()

    def __post_init__(self) -> None:
        for ability in self.offers:
            if not ability or any(character.isspace() for character in ability):
                raise InvalidInput(
                    f"offers has {ability!r}; an ability is a word without blanks.", field="offers"
                )

    @cached_property
    def document(self) -> str:
        """As the database reads it. Made once: it goes with every claim."""
        kinds = {
            kind: ANY_ARGUMENT if names is None else " ".join(names) for kind, names in self.kinds.items()
        }
        return document("serves", {"kinds": kinds, "offers": " ".join(self.offers)})


def document_of(serves: Serves | None) -> str | None:
    return None if serves is None else serves.document


@dataclass(frozen=True, slots=True)
class NextDue:
    """How many seconds until the next pending job of a queue is due, and until the next that was set aside;
    None when there is none."""

    pending: float | None
    aside: float | None


def next_due(queue: str, serves: Serves | None) -> Call[NextDue]:
    """By the database's clock: the machine of the loop may have another opinion of the time."""
    return Call(
        "select extract(epoch from fencepost.job_next_due(%s::text) - fencepost.clock())::double precision,"
        " extract(epoch from fencepost.job_aside_due(%s::text, %s::jsonb) - fencepost.clock())"
        "::double precision",
        (text("queue", queue), queue, document_of(serves)),
        one(NextDue),
    )


def prune(keep_seconds: float, limit: int) -> Call[int]:
    """Delete needs that no job has had for so long."""
    return Call(
        "select fencepost.job_need_prune(%s::interval, %s::integer)",
        (duration("keep", keep_seconds), limit),
        scalar,
    )


def announce_worker(resource: str, token: int, queues: Sequence[str], serves: Serves) -> Call[None]:
    """Record what the worker at this place of the registry serves."""
    return Call(
        "select fencepost.job_worker_announce(%s::text, %s::bigint, %s::text[], %s::jsonb)",
        (resource, token, list(queues), serves.document),
        nothing,
    )
