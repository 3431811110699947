"""Workers in and out of service: `functions/job_worker.sql` says what a target is and what each call does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from fencepost.kernel.call import Call, Json, each, nothing, parsed, scalar, text

HoldState = Literal["draining", "disabled"]
WorkerState = Literal["working", "draining", "drained", "disabled"]


@dataclass(frozen=True, slots=True)
class Hold:
    """Why a worker claims nothing."""

    target: str
    state: HoldState
    reason: str
    actor: str
    held_at: datetime


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A worker as people see it, or a held or pinned target of which no worker is there (no `owner`)."""

    target: str
    owner: str | None
    name: str | None
    host: str
    since: datetime | None
    queues: Sequence[str]
    kinds: Sequence[str]
    offers: Sequence[str]
    running: int
    state: WorkerState
    held_by: str | None
    """The target that is held: the worker itself, its name on its host, or its host."""
    reason: str | None
    actor: str | None
    held_at: datetime | None
    pinned_to: Json
    """What its pins leave: queues, kinds and offers; None without a pin."""
    pin_reason: str | None
    pin_actor: str | None


def standing(owner: str) -> Call[Hold | None]:
    """The hold that keeps this owner from claiming; None when it may claim."""
    return Call(
        "select target, state, reason, actor, held_at from fencepost.worker_standing(%s::text)",
        (text("owner", owner),),
        lambda rows: Hold(*rows[0]) if rows else None,
    )


def listing() -> Call[list[WorkerRow]]:
    """Every worker, and every target that is held or pinned, in order of host."""
    return Call(
        "select target, owner, name, host, since, queues, kinds, offers, running, state, held_by, reason,"
        " actor, held_at, pinned_to::text, pin_reason, pin_actor from fencepost.worker_list()",
        (),
        each(_row),
    )


def drain(target: str, actor: str, reason: str) -> Call[list[str]]:
    """Let the processes of the target finish what they hold; returns their owners. A process that is started
    later claims."""
    return Call(
        "select fencepost.worker_drain(%s::text, %s::text, %s::text)",
        _decision(target, actor, reason),
        scalar,
    )


def disable(target: str, actor: str, reason: str) -> Call[list[str]]:
    """Let the target claim nothing until it is enabled, also after a restart; returns the owners that are
    there."""
    return Call(
        "select fencepost.worker_disable(%s::text, %s::text, %s::text)",
        _decision(target, actor, reason),
        scalar,
    )


def enable(target: str, actor: str, reason: str) -> Call[list[str]]:
    """Put the target, and what belongs to it, back into service; returns the targets that were held."""
    return Call(
        "select fencepost.worker_enable(%s::text, %s::text, %s::text)",
        _decision(target, actor, reason),
        scalar,
    )


def pin(
    target: str,
    actor: str,
    reason: str,
    *,
    queues: Sequence[str] | None = None,
    kinds: Sequence[str] | None = None,
    abilities: Sequence[str] | None = None,
) -> Call[list[str]]:
    """Let the target claim only these; None leaves one unrestricted. Returns the owners that are there."""
    return Call(
        "select fencepost.worker_pin(%s::text, %s::text[], %s::text[], %s::text[], %s::text, %s::text)",
        (
            text("target", target),
            *(
                None if one is None else [text("pin", word) for word in one]
                for one in (queues, kinds, abilities)
            ),
            text("actor", actor),
            text("reason", reason),
        ),
        scalar,
    )


def unpin(target: str, actor: str, reason: str) -> Call[None]:
    """Remove the pin of a worker or host."""
    return Call(
        "select fencepost.worker_unpin(%s::text, %s::text, %s::text)",
        _decision(target, actor, reason),
        nothing,
    )


def _decision(target: str, actor: str, reason: str) -> tuple[str, str, str]:
    return text("target", target), text("actor", actor), text("reason", reason)


def _row(*values: Any) -> WorkerRow:
    row = list(values)
    row[-3] = parsed(row[-3])
    return WorkerRow(*row)
