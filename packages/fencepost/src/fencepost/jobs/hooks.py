"""Hooks: functions of the application that are told of jobs; and middleware, which wraps their handlers.

A hook watches. It is a plain function, which is called in a thread, or a coroutine function, which runs on
the worker's loop. Whatever it raises is logged as `hook_failed`, after `HOOK_SECONDS` it is waited for no
longer, and the job's outcome is the same with it and without it.

Middleware takes part. It runs where the handler runs, inside its timeout, and what it returns or raises is
what the handler returned or raised.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from fencepost.errors import InvalidInput
from fencepost.jobs._failure_text import error_text, traceback_text
from fencepost.jobs._job_fields import job_fields
from fencepost.logs import get_logger

if TYPE_CHECKING:
    from fencepost.jobs.job import Job

_log = get_logger(__name__)
HOOK_SECONDS = 10.0
EndState = Literal["finished", "pending", "dead", "cancelled", "parked", "lost", "refused"]
InThread = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Calls a plain function beside the event loop."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a try ended, as it stands in the database."""

    state: EndState
    """`pending`: it waits for another try; `parked`: a workflow that sleeps or waits; `lost`: another worker
    has it, nothing was written; `refused`: the database refused the write."""
    seconds: float
    """How long the handler ran."""
    error: str | None = None
    traceback: str | None = None
    retry_seconds: float | None = None
    """When it is `pending`: how long it waits."""
    reason: str | None = None
    """When it is `refused`: why."""


StartHook = Callable[["Job"], object]
ErrorHook = Callable[["Job", BaseException], object]
FinishHook = Callable[["Job", Ended], object]
Middleware = Callable[[Any, Callable[[], Any]], Any]
S = TypeVar("S", bound=StartHook)
E = TypeVar("E", bound=ErrorHook)
F = TypeVar("F", bound=FinishHook)
M = TypeVar("M", bound=Middleware)


@dataclass(slots=True)
class Hooks:
    """The hooks and the middleware of one client, in the order in which they were declared."""

    start: list[StartHook] = field(default_factory=list[StartHook])
    error: list[ErrorHook] = field(default_factory=list[ErrorHook])
    finish: list[FinishHook] = field(default_factory=list[FinishHook])
    async_middleware: list[Middleware] = field(default_factory=list[Middleware])
    sync_middleware: list[Middleware] = field(default_factory=list[Middleware])

    def add_middleware(self, middleware: Middleware) -> None:
        """Wrap every handler in this function. Raises InvalidInput unless it takes two arguments."""
        if len(inspect.signature(middleware).parameters) != 2:
            raise InvalidInput(
                f"{name_of(middleware)} cannot be middleware: it is called with the job and a function that "
                "calls the handler.",
                field="middleware",
            )
        is_async = inspect.iscoroutinefunction(middleware)
        (self.async_middleware if is_async else self.sync_middleware).append(middleware)

    def wrap(self, call: Callable[[], Any], job: object, *, is_async: bool) -> Callable[[], Any]:
        """The call inside the middleware of its form; the first that was declared is the outermost."""
        for middleware in reversed(self.async_middleware if is_async else self.sync_middleware):
            call = partial(middleware, job, call)
        return call


async def tell(
    event: str, hooks: Sequence[Callable[..., object]], in_thread: InThread, job: Job, *more: object
) -> None:
    """Call each hook in turn. Raises only when the calling task is cancelled."""
    for hook in tuple(hooks):
        try:
            async with asyncio.timeout(HOOK_SECONDS):
                answer = (
                    hook(job, *more)
                    if inspect.iscoroutinefunction(hook)
                    else await in_thread(partial(hook, job, *more))
                )
                if inspect.isawaitable(answer):
                    await answer
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            _log_failed(event, hook, job, error)
        except TimeoutError as error:
            # Without a text it is ours, or as good as ours.
            late = TimeoutError(f"the hook did not finish within {HOOK_SECONDS:g} s").with_traceback(
                error.__traceback__
            )
            _log_failed(event, hook, job, error if str(error) else late)
        except (Exception, SystemExit) as error:
            _log_failed(event, hook, job, error)


def tell_sync(event: str, hooks: Sequence[Callable[..., object]], job: Job, *more: object) -> None:
    """`tell` where there is no event loop: in a handler's process. A coroutine gets a loop of its own."""

    async def call_here(function: Callable[[], Any]) -> Any:
        return function()

    asyncio.run(tell(event, hooks, call_here, job, *more))


def name_of(hook: Callable[..., object]) -> str:
    """The hook's qualified name, for messages."""
    return str(getattr(hook, "__qualname__", None) or repr(hook))


def _log_failed(event: str, hook: Callable[..., object], job: Job, error: BaseException) -> None:
    _log.error(
        "hook_failed",
        hook=name_of(hook),
        on=event,
        error=error_text(error),
        exception=traceback_text(error),
        **job_fields(job.running),
    )
