"""The processors of a log event, ours and those of other libraries: enriched, redacted, then rendered.

`fencepost.logs` exports the public names. It loads this module, and with it structlog, on first use.
"""

from __future__ import annotations

import logging
import sys
import threading
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Literal, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from fencepost._log_form import JSON_HANDLER
from fencepost.redaction import redact_named


def configure_logging(
    *,
    level: Literal["debug", "info", "warning", "error"] = "info",
    form: Literal["console", "json"] = "console",
    stream: TextIO | None = None,
) -> None:
    """Route structlog and the standard `logging` through one chain. A second call replaces the first."""
    target = stream or sys.stderr
    number = logging.getLevelNamesMapping()[level.upper()]
    enrich = _enrichment()
    structlog.configure(
        processors=[*enrich, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            # A foreign record carries its extra fields on the record, not in the event.
            foreign_pre_chain=[structlog.stdlib.ExtraAdder(), *enrich],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _renderer(form, target)],
        )
    )
    if form == "json":
        handler.name = JSON_HANDLER
        # What Python itself would print: a line of another form is lost to a reader of JSON.
        logging.captureWarnings(True)
        threading.excepthook = _log_thread_failure
        sys.excepthook = _log_failure
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(number)


def _log_thread_failure(failed: threading.ExceptHookArgs) -> None:
    if failed.exc_type is not SystemExit:
        name = failed.thread.name if failed.thread else "unknown"
        error = failed.exc_value or failed.exc_type()
        logging.getLogger(__name__).error("thread failed: %s", name, exc_info=error)


def _log_failure(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    logging.getLogger(__name__).critical("process failed", exc_info=(kind, error, traceback))


def log_context(
    *, job_id: int | None = None, attempt: int | None = None, trace_id: str | None = None
) -> AbstractContextManager[None]:
    """Every event inside the block, including those of other libraries, carries these fields."""
    given = {"job_id": job_id, "attempt": attempt, "trace_id": trace_id}
    return structlog.contextvars.bound_contextvars(**{k: v for k, v in given.items() if v is not None})


def redact_event(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """The last processor before the renderer, so that it sees the text of tracebacks too."""
    return {
        name: value if name.startswith("_") else redact_named(name, value) for name, value in event.items()
    }


def _enrichment() -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        redact_event,
    ]


def _renderer(form: Literal["console", "json"], target: TextIO) -> Processor:
    if form == "json":
        return structlog.processors.JSONRenderer(default=str)
    # Plain tracebacks: the pretty ones print local variables, which contain what was just redacted.
    return structlog.dev.ConsoleRenderer(
        colors=target.isatty(), exception_formatter=structlog.dev.plain_traceback
    )
