"""Checkpoints: state, frontier and sink handles of a resource change together, under its lease's token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fencepost.kernel.call import Call, Json, document, each, nothing, optional_document, parsed, scalar, text


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One checkpoint of a restore. `whole` is False for a delta against the one before it."""

    number: int
    status: str
    whole: bool
    frontier: Json
    state: bytes | None
    handles: Sequence[Json]

    @property
    def durable(self) -> bool:
        """Recovery starts from a durable checkpoint and commits its handles; any other is aborted."""
        return self.status in ("stored", "committed")


def begin(resource: str, token: int, *, handles: Sequence[Json] = ()) -> Call[int]:
    """Begin the next checkpoint; returns its number."""
    return Call(
        "select fencepost.checkpoint_begin(%s::text, %s::bigint, %s::jsonb)",
        (text("resource", resource), token, document("handles", list(handles))),
        scalar,
    )


def store(
    resource: str,
    token: int,
    number: int,
    *,
    expected: Json,
    frontier: Json,
    state: bytes | None,
    handles: Sequence[Json] = (),
    whole: bool = True,
) -> Call[None]:
    """Make it durable, if `expected` is still the newest durable frontier (None for the first)."""
    return Call(
        "select fencepost.checkpoint_store"
        "(%s::text, %s::bigint, %s::bigint, %s::jsonb, %s::jsonb, %s::bytea, %s::jsonb, %s::boolean)",
        (
            text("resource", resource),
            token,
            number,
            optional_document("expected", expected),
            document("frontier", frontier),
            state,
            document("handles", list(handles)),
            whole,
        ),
        nothing,
    )


def commit(resource: str, token: int, number: int) -> Call[None]:
    """Record that the sinks have committed its handles. Idempotent."""
    return Call(
        "select fencepost.checkpoint_commit(%s::text, %s::bigint, %s::bigint)",
        (text("resource", resource), token, number),
        nothing,
    )


def abort(resource: str, token: int, number: int) -> Call[None]:
    """Record that it was begun and will never be stored. Idempotent."""
    return Call(
        "select fencepost.checkpoint_abort(%s::text, %s::bigint, %s::bigint)",
        (text("resource", resource), token, number),
        nothing,
    )


def restore(resource: str, token: int) -> Call[list[Checkpoint]]:
    """The newest durable checkpoint with the deltas that lead to it, then those begun and never stored."""
    return Call(
        "select number, status, whole, frontier::text, state, handles::text"
        " from fencepost.checkpoint_restore(%s::text, %s::bigint)",
        (text("resource", resource), token),
        each(_checkpoint),
    )


def prune(resource: str, token: int, keep: int) -> Call[int]:
    """Delete all but the newest `keep` durable ones and those they build on; returns how many."""
    return Call(
        "select fencepost.checkpoint_prune(%s::text, %s::bigint, %s::integer)",
        (text("resource", resource), token, keep),
        scalar,
    )


def _checkpoint(
    number: int,
    status: str,
    whole: bool,
    frontier: str | None,
    state: bytes | memoryview | None,
    handles: str,
) -> Checkpoint:
    return Checkpoint(
        number, status, whole, parsed(frontier), None if state is None else bytes(state), parsed(handles)
    )
