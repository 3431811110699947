"""One id from the request to the effect, with OpenTelemetry and without."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from fencepost.errors import SettingsError
from fencepost.logs import log_context
from fencepost.tracing import export_traces, span, trace_id_of, with_trace

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"
PROGRAM = """
from fencepost.tracing import export_traces, span, with_trace
assert export_traces("test")
with span("outer", "server", {"traceparent": "%s"}, path="/x") as note:
    note(status=200)
    carried = with_trace()
with span("inner", "consumer", carried):
    pass
from opentelemetry import trace
trace.get_tracer_provider().shutdown()
"""


class Collector:
    """What a collector hears: every span, by its name."""

    def __init__(self) -> None:
        heard: dict[str, Span] = {}
        self.spans = heard

        class Ear(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                request = ExportTraceServiceRequest.FromString(body)
                for resource in request.resource_spans:
                    for scope in resource.scope_spans:
                        heard.update({one.name: one for one in scope.spans})
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - As above.
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Ear)


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    thread = threading.Thread(target=collector.server.serve_forever)
    thread.start()
    yield collector
    collector.server.shutdown()
    thread.join()
    collector.server.server_close()


def test_spans_reach_the_collector_as_one_trace(collector: Collector) -> None:
    address = f"http://127.0.0.1:{collector.server.server_address[1]}"
    environ = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": address}
    subprocess.run([sys.executable, "-c", PROGRAM % PARENT], env=environ, check=True, timeout=60)

    outer, inner = collector.spans["outer"], collector.spans["inner"]
    assert outer.trace_id.hex() == inner.trace_id.hex() == TRACE
    assert (outer.parent_span_id.hex(), inner.parent_span_id) == ("b7ad6b7169203331", outer.span_id)
    assert {one.key for one in outer.attributes} == {"fencepost.path", "fencepost.status"}


def test_no_caller_is_asked_to_listen_when_no_collector_is_named() -> None:
    assert not export_traces("test", {})


def test_a_collector_without_the_library_is_said_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(SettingsError, match=r"pip install 'fencepost\[traces\]'"):
        export_traces("test", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"})


def test_without_a_trace_there_is_a_new_one_and_inside_one_it_is_passed_on() -> None:
    first, second = with_trace(), with_trace()
    assert first["trace_id"] != second["trace_id"]
    assert trace_id_of(f"00-{first['trace_id']}-{'1' * 16}-01") == first["trace_id"]
    with log_context(trace_id=TRACE):
        assert with_trace({"a": 1}) == {"trace_id": TRACE, "a": 1}
    assert with_trace({"trace_id": "mine"}) == {"trace_id": "mine"}


@pytest.mark.parametrize(
    "given",
    [None, "", "nonsense", f"00-{'0' * 32}-{'1' * 16}-01", f"00-{TRACE}-{'0' * 16}-01", f"{PARENT}-more"],
)
def test_what_is_no_trace_is_none(given: str | None) -> None:
    assert trace_id_of(given) is None


def test_without_a_provider_a_span_is_nothing() -> None:
    with span("nothing", "consumer", {"trace_id": TRACE}) as note:
        note(outcome="nothing")
    assert with_trace().keys() == {"trace_id"}
