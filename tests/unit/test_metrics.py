from __future__ import annotations

import pytest

from fencepost.metrics import LABELS, KernelMetrics, Metrics, observe_many


def text(metrics: Metrics) -> str:
    return metrics.page().body.decode()


@pytest.mark.parametrize(
    "label", ["job_id", "resource", "owner", "key", "token", "order", "attempt", "trace_id"]
)
@pytest.mark.parametrize("kind", ["counter", "gauge", "histogram"])
def test_an_id_may_not_be_a_label(kind: str, label: str) -> None:
    with pytest.raises(ValueError, match=rf"^x: {label} may not be a label.*Allowed: chain, channel, flow"):
        getattr(Metrics(), kind)("x", "Something.", labels=("reason", label))


def test_no_allowed_label_is_an_id() -> None:
    assert not [
        label for label in LABELS if label.endswith("id") or label in {"key", "owner", "token", "resource"}
    ]


def test_two_values_do_not_count_into_each_other() -> None:
    first, second = Metrics(), Metrics()
    KernelMetrics.on(first).refusals.labels(reason="stale_attempt", noun="job").inc()
    KernelMetrics.on(second)
    assert 'fencepost_refusals_total{noun="job",reason="stale_attempt"} 1.0' in text(first)
    assert "stale_attempt" not in text(second)


@pytest.mark.parametrize("amount", [0.5, 1.0, 1.5, 99.0])
def test_an_amount_observed_many_times_at_once_counts_as_if_one_by_one(amount: float) -> None:
    at_once, one_by_one = Metrics(), Metrics()
    observe_many(at_once.histogram("x", "Something.", buckets=(1.0, 2.0)), amount, 3)
    histogram = one_by_one.histogram("x", "Something.", buckets=(1.0, 2.0))
    for _ in range(3):
        histogram.observe(amount)
    told = [[line for line in text(m).splitlines() if "_created" not in line] for m in (at_once, one_by_one)]
    assert told[0] == told[1]
    assert any("x_count 3.0" in line for line in told[0])


def test_a_call_is_timed_by_function_and_outcome() -> None:
    metrics = Metrics()
    KernelMetrics.on(metrics).call_seconds.labels(function="job_finish", outcome="ok").observe(0.004)
    assert 'fencepost_call_seconds_bucket{function="job_finish",le="0.005",outcome="ok"} 1.0' in text(metrics)


def test_a_pool_is_read_at_each_scrape() -> None:
    metrics = Metrics()
    stats = {"pool_size": 4, "pool_available": 3, "requests_waiting": 2, "requests_num": 9}
    metrics.watch_pool("service", lambda: stats)
    stats["pool_available"] = 1
    page = text(metrics)
    assert 'fencepost_pool_connections{pool="service",state="idle"} 1.0' in page
    assert 'fencepost_pool_connections{pool="service",state="busy"} 3.0' in page
    assert 'fencepost_pool_waiting{pool="service"} 2.0' in page
    assert 'fencepost_pool_requests_total{pool="service"} 9.0' in page


def test_a_gauge_and_a_plain_counter_need_no_labels() -> None:
    metrics = Metrics()
    metrics.gauge("fencepost_depth", "Depth.").set(3)
    metrics.counter("fencepost_things", "Things.").inc(2)
    assert "fencepost_depth 3.0" in text(metrics)
    assert "fencepost_things_total 2.0" in text(metrics)
