"""Traces: one id from the request to the effect.

The id is stored as `trace_id` in the headers of a job or a message, written in the caller's transaction, and
in every log event. If OpenTelemetry is installed and configured, there are spans too, and the current span's
context is stored as `traceparent`. If it is not, a span costs one check.
"""

from __future__ import annotations

import os
import re
import secrets
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from fencepost.errors import SettingsError

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

Kind = Literal["server", "consumer", "client", "internal"]
Note = Callable[..., None]
"""Adds attributes to the span, or does nothing."""

TRACEPARENT = "traceparent"
TRACE_HEADERS = frozenset({"trace_id", TRACEPARENT})
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_SHAPE = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")
T = TypeVar("T")


def with_trace(headers: Mapping[str, T] | None = None) -> dict[str, T | str]:
    """The headers with the current trace, or a new one, unless they name one already."""
    carried = within_trace(headers)
    return carried if "trace_id" in carried else {"trace_id": secrets.token_hex(16), **carried}


def within_trace(headers: Mapping[str, T] | None = None) -> dict[str, T | str]:
    """The headers with the current trace, if there is one, unless they name one already."""
    headers = headers or {}
    if "trace_id" in headers:
        return dict(headers)
    current = current_traceparent()
    if current is not None:
        return {"trace_id": current[3:35], TRACEPARENT: current, **headers}
    present = _present()
    return dict(headers) if present is None else {"trace_id": present, **headers}


def _present() -> str | None:
    """The trace id bound to the log context: a job that submits another one passes its own on."""
    # Code that has bound an id has loaded the module; other processes need not load it to find none.
    bound = sys.modules.get("structlog.contextvars")
    present = bound.get_contextvars().get("trace_id") if bound else None
    return present if isinstance(present, str) and present else None


def trace_id_of(traceparent: str | None) -> str | None:
    """The trace id in a `traceparent` header of another system, or None if the header is invalid."""
    found = _SHAPE.fullmatch(traceparent or "")
    return found[1] if found else None


def place_of(carried: Mapping[str, Any]) -> str | None:
    """The `traceparent` that headers name; None without one. With a trace id alone the parent span is
    invented: the trace is right, and its root is missing."""
    given = carried.get(TRACEPARENT) or f"00-{carried.get('trace_id')}-{secrets.token_hex(8)}-01"
    return given if isinstance(given, str) and _SHAPE.fullmatch(given) else None


def is_traced() -> bool:
    """Whether a span made now is recorded: data that only spans use is collected only then."""
    return _tracer() is not None


def span(
    name: str, kind: Kind, carried: Mapping[str, Any], **attributes: str | int
) -> AbstractContextManager[Note]:
    """A span whose parent is what `carried` names (`traceparent`, or `trace_id` alone), or else the current
    span; exceptions raised inside it are recorded."""
    tracer = _tracer()
    return _NO_SPAN if tracer is None else _span(tracer, name, kind, carried, attributes)


def past_span(name: str, kind: Kind, place: str, began_ns: int, **attributes: str | int) -> None:
    """A span that ends now, below `place`: for work done at once that belongs to many traces."""
    tracer = _tracer()
    if tracer is not None:
        told = {f"fencepost.{key}": value for key, value in attributes.items()}
        began = tracer.start_span(name, _remote({TRACEPARENT: place}), _kind(kind), told, start_time=began_ns)
        began.end()


@contextmanager
def _span(
    tracer: Tracer, name: str, kind: Kind, carried: Mapping[str, Any], attributes: Mapping[str, str | int]
) -> Generator[Note]:
    with tracer.start_as_current_span(name, _remote(carried), _kind(kind)) as started:

        def note(**more: str | int) -> None:
            started.set_attributes({f"fencepost.{key}": value for key, value in more.items()})

        note(**attributes)
        yield note


def export_traces(service: str, environ: Mapping[str, str] | None = None) -> bool:
    """Send this process's spans to the collector that the environment names; returns whether there is one."""
    environ = os.environ if environ is None else environ
    named = [name for name in ENDPOINTS if environ.get(name)]
    if not named:
        return False
    try:
        from opentelemetry import trace  # noqa: PLC0415 - An optional dependency.
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError as error:
        raise SettingsError(
            f"{named[0]} is set, and {error.name} is not installed: pip install 'fencepost[traces]'."
        ) from error
    # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES, if set, take precedence.
    provider = TracerProvider(
        resource=Resource({SERVICE_NAME: f"fencepost-{service}"}).merge(Resource.create())
    )
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return True


@cache
def _api() -> Any:
    """OpenTelemetry, or None. It is optional, and checking for it must not load it."""
    return import_module("opentelemetry.trace") if find_spec("opentelemetry") else None


def _tracer() -> Tracer | None:
    """None until OpenTelemetry is configured: its default tracer would make spans that are never exported."""
    api = _api()
    if api is None:
        return None
    provider = api.get_tracer_provider()
    return None if isinstance(provider, api.ProxyTracerProvider) else provider.get_tracer("fencepost")


def _kind(kind: Kind) -> Any:
    return getattr(_api().SpanKind, kind.upper())


def current_traceparent() -> str | None:
    """The current span as a `traceparent`."""
    api = _api()
    context = None if api is None else api.get_current_span().get_span_context()
    if context is None or not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def _remote(carried: Mapping[str, Any]) -> Any:
    """The context of the sender."""
    found = _SHAPE.fullmatch(place_of(carried) or "")
    if found is None:
        return None
    trace_id, span_id, flags = (int(part, 16) for part in found.groups())
    api = _api()
    place = api.SpanContext(trace_id, span_id, is_remote=True, trace_flags=api.TraceFlags(flags))
    return api.set_span_in_context(api.NonRecordingSpan(place))


def _nothing(**_more: str | int) -> None:
    pass


_NO_SPAN: AbstractContextManager[Note] = nullcontext(_nothing)
