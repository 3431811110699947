"""The chain that an event goes through, ours and that of other libraries: enriched, redacted, then rendered.

`fencepost.logs` loads it with structlog when a process first configures its logs or has something to say.
"""

from __future__ import annotations

import logging
from typing import Literal, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from fencepost.redaction import redact_named


def install(number: int, form: Literal["console", "json"], target: TextIO) -> None:
    """Route structlog and the standard `logging` through it, from this level on."""
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
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(number)


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
    # Plain tracebacks: the pretty ones print local variables, and those hold what was just redacted.
    return structlog.dev.ConsoleRenderer(
        colors=target.isatty(), exception_formatter=structlog.dev.plain_traceback
    )
