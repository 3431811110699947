"""What stops a task: which step, which record, and what helps, as far as it is known.

An error goes up through steps, heads and commits. Each of them writes on it what it knows, and what is
known already stays: the innermost knows best. The error keeps its type.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
import redis

from fencepost.errors import ServerUnavailable
from fencepost.flows.errors import FlowError
from fencepost.flows.record import Offset

_FACTS = "_fencepost_facts"
AWAY = (psycopg.OperationalError, redis.ConnectionError, redis.TimeoutError, ServerUnavailable, OSError)
LACKS = (
    psycopg.errors.UndefinedTable,
    psycopg.errors.UndefinedColumn,
    psycopg.errors.InvalidColumnReference,
    psycopg.errors.InsufficientPrivilege,
)


def blame(error: BaseException, **facts: Any) -> None:
    """Write facts on an error, but for those that stand there."""
    # An exception with slots has no room for them: then nobody knows.
    with suppress(AttributeError):
        setattr(error, _FACTS, {**facts, **facts_of(error)})


def facts_of(error: BaseException) -> dict[str, Any]:
    return dict(getattr(error, _FACTS, {}))


@contextmanager
def within(step: str) -> Generator[None]:
    """Errors that arise here are this step's, or this sink's."""
    try:
        yield
    except Exception as error:
        blame(error, step=step)
        raise


@contextmanager
def reading(stream: str, offsets: Sequence[Offset], *, exactly: bool = True) -> Generator[None]:
    """Errors that arise here are of records of this stream: of the one that a step named by its place among
    those that were read together, or of one of them."""
    try:
        yield
    except Exception as error:
        at: int | None = facts_of(error).get("at") if exactly else None
        if at is not None and at < len(offsets):
            blame(error, stream=stream, offset=str(offsets[at]))
        elif offsets:
            blame(error, stream=stream, offset=f"{offsets[0]} to {offsets[-1]}")
        raise


def told(error: Exception) -> dict[str, str]:
    """For people: step, stream, offset and remedy, as far as they are known."""
    facts = facts_of(error)
    shown = {name: str(facts[name]) for name in ("step", "stream", "offset") if facts.get(name)}
    remedy = remedy_of(error, facts)
    return shown if remedy is None else {**shown, "remedy": remedy}


def remedy_of(error: Exception, facts: dict[str, Any]) -> str | None:
    """What helps. A FlowError says it itself."""
    if isinstance(error, FlowError):
        return None
    if isinstance(error, AWAY):
        return "A server does not answer. The task begins again by itself when it does."
    if isinstance(error, LACKS):
        return "Restart the worker: it examines the tables of its sinks and says which statement helps."
    if isinstance(error, psycopg.DataError | psycopg.IntegrityError):
        return (
            "The database refuses a row. Mend the step that makes it, or keep such values apart with "
            'on_reject=DeadLetters("a name") at the sink.'
        )
    if "at" in facts:
        return (
            f"Mend the function of {facts.get('step')}; or put .dead_letters(name) or .errors behind it, to "
            "go on without such records."
        )
    return None
