"""Requests without an id: counted by method in phase 1, refused in phase 2 (`mutation_request_ids.sql`)."""

from __future__ import annotations

from dataclasses import dataclass

from fencepost.kernel.call import Call, duration, each, nothing, optional_text, scalar, text


@dataclass(frozen=True, slots=True)
class MissingIdRate:
    """How many requests came without an id within the window."""

    method: str
    passed: int
    refused: int


def note(service: str, method: str) -> Call[int]:
    """Count one request; returns the phase."""
    return Call(
        "select fencepost.mutation_unkeyed_note(%s::text, %s::text)",
        (text("service", service), text("method", method)),
        scalar,
    )


def rate(service: str, window_seconds: float) -> Call[list[MissingIdRate]]:
    return Call(
        "select method, passed, refused from fencepost.mutation_unkeyed_rate(%s::text, %s::interval)",
        (text("service", service), duration("window", window_seconds)),
        each(MissingIdRate),
    )


def phase(service: str) -> Call[int]:
    return Call("select fencepost.mutation_phase(%s::text)", (text("service", service),), scalar)


def set_phase(service: str, phase: int, window_seconds: float, *, actor: str | None = None) -> Call[None]:
    """Phase 2 is allowed only if none has passed within the window; otherwise Mismatch, with the counts."""
    return Call(
        "select fencepost.mutation_phase_set(%s::text, %s::integer, %s::interval, %s::text)",
        (text("service", service), phase, duration("window", window_seconds), optional_text("actor", actor)),
        nothing,
    )


def clean(keep_seconds: float, limit: int) -> Call[int]:
    """Delete counts that are older; returns how many."""
    return Call(
        "select fencepost.mutation_unkeyed_clean(%s::interval, %s::integer)",
        (duration("keep", keep_seconds), limit),
        scalar,
    )
