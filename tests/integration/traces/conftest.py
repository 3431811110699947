"""Spans are heard, as by a process that has set OpenTelemetry up."""

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from tests.integration.traces.otlp_collector import OtlpCollector


@pytest.fixture
def ear(monkeypatch: pytest.MonkeyPatch) -> OtlpCollector:
    ear = OtlpCollector()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(ear.exporter))
    monkeypatch.setattr("opentelemetry.trace.get_tracer_provider", lambda: provider)
    return ear
