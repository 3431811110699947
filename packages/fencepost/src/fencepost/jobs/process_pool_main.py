"""The main loop of a handler's process: finds the handler, runs one job after another, and answers in
JSON."""

from __future__ import annotations

import importlib
import json
import math
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from datetime import datetime
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import structlog

from fencepost._connections import Connections
from fencepost._instrumentation import CallObserver
from fencepost._sync_form import SyncContext, complete
from fencepost.database import SyncDatabase
from fencepost.errors import InvalidInput, Refusal, ServerUnavailable
from fencepost.jobs._failure_text import error_text, traceback_text
from fencepost.jobs._handler import Handler
from fencepost.jobs._job_fields import trace_id_of
from fencepost.jobs.hooks import tell_sync
from fencepost.jobs.job import Job
from fencepost.jobs.retry_policy import Bury, Cancel, Retry, Snooze, exponential, server_wait
from fencepost.kernel.call import Call, document
from fencepost.kernel.job import Running
from fencepost.kernel.lease import owner_name
from fencepost.logs import configure_logging
from fencepost.metrics import Metrics
from fencepost.transaction import SyncTransaction

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from fencepost.settings import Settings

T = TypeVar("T")
BEGUN = "begun"


@dataclass(frozen=True, slots=True)
class HandlerCall:
    """A job, and where the function that runs it is found."""

    module: str
    qualname: str
    owner: str
    running: Mapping[str, Any]

    @classmethod
    def of(cls, handler: Handler[...], running: Running, owner: str) -> HandlerCall:
        """The call of a handler for a running job, as values that another process can read."""
        facts = {
            **running._asdict(),
            "expires_at": running.expires_at.isoformat(),
            "submitted_at": running.submitted_at.isoformat(),
        }
        return cls(handler.function.__module__, handler.function.__qualname__, owner, facts)

    def as_json(self) -> dict[str, Any]:
        """The fields as JSON types."""
        return asdict(self)

    def claimed(self) -> Running:
        """The running job, with its times as datetimes again."""
        facts: dict[str, Any] = dict(self.running)
        for name in ("expires_at", "submitted_at"):
            facts[name] = datetime.fromisoformat(facts[name])
        return Running(**facts)

    def handler(self) -> Handler[...]:
        """The handler under the function's own name, or under another name in its module."""
        module = _module(self.module)
        found: Any = module
        for name in self.qualname.split("."):
            found = getattr(found, name, None)
        if isinstance(found, Handler):
            return found
        for value in vars(module).values():
            if isinstance(value, Handler) and value.kind == self.running["kind"]:
                return value
        raise InvalidInput(
            f"{self.module} has no handler for {self.running['kind']} that a process could find; keep it in "
            "a variable of its module.",
            field="run_in",
        )


def serve(pipe: Connection[Any, Any], database_url: str, settings: Settings) -> None:
    """Answer one call after another until the pipe is closed."""
    # Ctrl-C reaches every process of the terminal; the worker decides when this one ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, name="fencepost-parent-watch", daemon=True).start()
    configure_logging(level=settings.log_level, form=settings.log_format)
    database = _Database(database_url, settings)
    while True:
        try:
            call = HandlerCall(**json.loads(pipe.recv_bytes()))
        except (EOFError, OSError):
            return
        answer = _answer(call, database, lambda: _tell(pipe, {BEGUN: True}))
        _tell(pipe, answer)


def _tell(pipe: Connection[Any, Any], message: Mapping[str, Any]) -> None:
    pipe.send_bytes(json.dumps(message).encode())


def _answer(call: HandlerCall, database: _Database, begin: Callable[[], None]) -> dict[str, Any]:
    running = call.claimed()
    job = Job(running, call.owner, _no_loop, database.open)
    context = {
        "job_id": running.job_id,
        "attempt": running.attempt,
        "trace_id": trace_id_of(running),
    }
    with structlog.contextvars.bound_contextvars(**context):
        try:
            handler = call.handler().running_as(running.headers)
        except Exception as error:
            return {**_failed(error, None), "finished": False}
        begin()
        return {**_run(handler, job, running), "finished": job.finished}


def _run(handler: Handler[...], job: Job, running: Running) -> dict[str, Any]:
    try:
        result = handler.run(job, handler.parse(running.payload))
        document("result", result)
    except Refusal as refusal:
        return {"refusal": _told(refusal)}
    except Snooze as snooze:
        return {"snooze_seconds": snooze.seconds}
    except Cancel as cancel:
        return {"cancel": str(cancel)}
    except (Exception, SystemExit) as error:
        if isinstance(error, ServerUnavailable) and server_wait(running.attempt, running.tries) is not None:
            return {"unavailable": str(error)}
        if not job.finished:
            tell_sync("error", handler.hooks.error, job, error)
        return _failed(error, _judged(handler, running, error))
    return {"result": result}


def _failed(error: BaseException, retry_seconds: float | None) -> dict[str, Any]:
    return {
        "error": error_text(error),
        "traceback": traceback_text(error),
        "retry_seconds": retry_seconds,
    }


def _judged(handler: Handler[...], running: Running, error: BaseException) -> float | None:
    """When to try again by the handler's policy; None for never. A policy that fails gets the default."""
    known = error if isinstance(error, Exception) else RuntimeError(str(error))
    try:
        verdict: object = handler.declared.retry(running.tries, known)
    except Exception:
        verdict = None
    match verdict if isinstance(verdict, Retry | Bury) else exponential()(running.tries, known):
        case Retry(delay_seconds) if math.isfinite(delay_seconds):
            return delay_seconds
        case Retry():
            return sys.float_info.max
        case Bury():
            return None


def _told(refusal: Refusal) -> dict[str, Any]:
    return {
        "reason": refusal.reason,
        "message": str(refusal),
        "noun": refusal.noun,
        "subject": refusal.subject,
        "attempted": dict(refusal.attempted),
        "seen": dict(refusal.seen),
    }


def _module(name: str) -> ModuleType:
    """The named module. A script that was started as `__main__` has another name in its processes."""
    if name == "__main__":
        return sys.modules.get("__mp_main__") or sys.modules["__main__"]
    return importlib.import_module(name)


class _Database:
    """Its own pool, opened when the first job needs it: most handlers that compute never do."""

    def __init__(self, database_url: str, settings: Settings) -> None:
        alone, metrics, owner = settings.model_copy(update={"pool_min": 0}), Metrics(), owner_name("process")
        observer = CallObserver.of(database_url, owner, alone, metrics)
        self._connections = Connections(database_url, alone, metrics, observer, owner, SyncTransaction)
        self._is_open = False

    def open(self) -> SyncDatabase:
        if not self._is_open:
            complete(self._connections.open())
            self._is_open = True
        return self

    def run(self, call: Call[T]) -> T:
        return complete(self._connections.run(call))

    def transaction(
        self, *, first: Call[Any] | None = None, last: Callable[[], Call[Any]] | None = None
    ) -> AbstractContextManager[SyncTransaction]:
        return SyncContext(self._connections.transaction(first, last))


class _NoLoop:
    """There is no event loop in a handler's process."""

    def transaction(self, **_: object) -> NoReturn:
        raise InvalidInput("A handler in a process has no event loop: use finish_sync.", field="run_in")

    def transaction_in(self, _line: object, **options: object) -> NoReturn:
        self.transaction(**options)

    async def run(self, call: object) -> NoReturn:
        raise InvalidInput("A handler in a process has no event loop: use progress_sync.", field="run_in")


_no_loop = _NoLoop()


def _die_with_parent() -> None:
    """Ends with the worker, also after kill -9. The database gives an unfinished job to another worker."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)
