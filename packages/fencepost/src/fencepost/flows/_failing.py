"""What stops a task: which step, which record, and the remedy, as far as they are known.

An error propagates through steps, source stages and commits. Each attaches the facts that it knows, and
existing facts are kept: the innermost are the most exact. The error keeps its type.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psycopg

from fencepost.errors import ServerUnavailable
from fencepost.flows._errors import FlowError
from fencepost.flows._record import Offset
from fencepost.redis_streams.errors import RedisConnectionError, RedisTimeoutError

_FACTS = "_fencepost_facts"
AWAY = (psycopg.OperationalError, RedisConnectionError, RedisTimeoutError, ServerUnavailable, OSError)
LACKS = (
    psycopg.errors.UndefinedTable,
    psycopg.errors.UndefinedColumn,
    psycopg.errors.InvalidColumnReference,
    psycopg.errors.InsufficientPrivilege,
)


def blame(error: BaseException, **facts: Any) -> None:
    """Attach facts to an error, except those that it already has."""
    # An exception with slots has no room for them: then the facts are lost.
    with suppress(AttributeError):
        setattr(error, _FACTS, {**facts, **facts_of(error)})


def facts_of(error: BaseException) -> dict[str, Any]:
    return dict(getattr(error, _FACTS, {}))


@contextmanager
def within(step: str) -> Generator[None]:
    """Attribute errors that arise here to this step or sink."""
    try:
        yield
    except Exception as error:
        blame(error, step=step)
        raise


@contextmanager
def reading(stream: str, offsets: Sequence[Offset], *, exactly: bool = True) -> Generator[None]:
    """Attribute errors that arise here to records of this stream: to the one that a step named by its index
    among those that were read together, or to one of them."""
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
    """For operators: step, stream, offset and remedy, as far as they are known."""
    facts = facts_of(error)
    shown = {name: str(facts[name]) for name in ("step", "stream", "offset") if facts.get(name)}
    remedy = remedy_of(error, facts)
    return shown if remedy is None else {**shown, "remedy": remedy}


def remedy_of(error: Exception, facts: dict[str, Any]) -> str | None:
    """The remedy for an error. The message of a FlowError contains it."""
    if isinstance(error, FlowError):
        return None
    if isinstance(error, AWAY):
        return "A server does not answer. The task restarts by itself when it does."
    if isinstance(error, LACKS):
        return "Restart the worker: it examines the tables of its sinks and says which statement helps."
    if isinstance(error, psycopg.DataError | psycopg.IntegrityError):
        return (
            "The database refuses a row. Fix the step that produces it, or keep such values apart with "
            'on_reject=DeadLetters("a name") at the sink.'
        )
    if "at" in facts:
        return (
            f"Fix the function of {facts.get('step')}; or put .dead_letters(name) or .errors behind it, to "
            "go on without such records."
        )
    return "Mend what the error names and restart the worker. Until then the task begins again by itself."
