"""Receives every span that is made, and knows the parent of each."""

from __future__ import annotations

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext

TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = 0xB7AD6B7169203331
PARENT = f"00-{TRACE}-{CALLER:016x}-01"


class OtlpCollector:
    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()

    def named(self, name: str) -> list[ReadableSpan]:
        return [one for one in self.exporter.get_finished_spans() if one.name == name]

    def only(self, name: str) -> ReadableSpan:
        found = self.named(name)
        assert len(found) == 1, [one.name for one in self.exporter.get_finished_spans()]
        return found[0]

    def about(self, name: str) -> dict[str, object]:
        return {
            key.removeprefix("fencepost."): value for key, value in (self.only(name).attributes or {}).items()
        }

    def way(self, name: str) -> list[str]:
        """The names of a span's own line, from itself to the one whose parent was not made here."""
        by_id = {place_of(one).span_id: one for one in self.exporter.get_finished_spans()}
        line, at = [name], self.only(name)
        while at.parent is not None and at.parent.span_id in by_id:
            at = by_id[at.parent.span_id]
            line.append(at.name)
        # FastAPI may have spans of its own below the request's.
        return [one for one in line if not one.startswith("fastapi.")]

    def begins_at(self, name: str) -> tuple[str, int]:
        """The trace of a span, and the foreign span that its line hangs below."""
        by_id = {place_of(one).span_id: one for one in self.exporter.get_finished_spans()}
        at = self.only(name)
        while at.parent is not None and at.parent.span_id in by_id:
            at = by_id[at.parent.span_id]
        return f"{place_of(at).trace_id:032x}", at.parent.span_id if at.parent else 0


def place_of(span: ReadableSpan) -> SpanContext:
    place = span.get_span_context()
    assert place is not None
    return place
