"""The names that an operator knows: columns of the views, metrics and their labels."""

from dataclasses import fields
from typing import Any

import pytest

from fencepost import Fencepost
from fencepost.jobs.metrics import JobMetrics
from fencepost.kernel import job as kernel_job
from fencepost.metrics import Metrics
from tests.integration.job_features.probes import Probes

COLUMNS = {
    "submissions": {
        "job_id",
        "attempt_id",
        "status",
        "state",
        "lease_owner",
        "lease_until",
        "result",
        "created_at",
        "updated_at",
    },
    "outbox_events": {
        "job_id",
        "payload",
        "status",
        "attempts",
        "next_attempt_at",
        "last_error",
        "dispatched_at",
        "stream_entry_id",
    },
}

SERIES = {
    "fencepost_jobs_claims_total": {"status", "reason"},
    "fencepost_jobs_renewals_total": {"status", "reason"},
    "worker_stale_attempt_total": set[str](),
    "fencepost_jobs_outcomes_total": {"status"},
    "fencepost_jobs_outcomes_refused_total": {"reason"},
    "fencepost_jobs_outcome_errors_total": set[str](),
    "fencepost_jobs_run_seconds": set[str](),
    "fencepost_jobs_reclaims_total": {"status", "reason"},
    "fencepost_jobs_reclaim_seconds": set[str](),
    "fencepost_jobs_reclaims_in_progress": set[str](),
    "fencepost_jobs_dispatches_total": {"status", "reason"},
    "fencepost_jobs_dispatch_seconds": set[str](),
    "fencepost_jobs_pending": {"queue"},
    "fencepost_jobs_stream_length": {"stream"},
    "fencepost_jobs_stream_pending": {"stream"},
    "fencepost_jobs_stream_retention_seconds": {"stream"},
}


@pytest.mark.parametrize("view", COLUMNS)
async def test_a_view_has_the_columns_that_operators_know(fp: Fencepost, probes: Probes, view: str) -> None:
    columns = probes.column(
        "select column_name from information_schema.columns"
        " where table_schema = 'fencepost' and table_name = %s",
        view,
    )
    assert COLUMNS[view] <= set(columns)


async def test_the_views_tell_a_jobs_life(fp: Fencepost, probes: Probes) -> None:
    job = await fp.run(kernel_job.submit("work", "one", {"n": 1}))
    look = "select status, state, attempt_id, lease_owner from fencepost.submissions"
    assert probes.rows(look) == [("pending", "queued", 0, None)]
    assert probes.rows("select status, payload from fencepost.outbox_events") == [("pending", {"n": 1})]
    await fp.run(kernel_job.dispatched([job.job_id], ["1-0"], "life"))
    assert probes.rows("select status, stream_entry_id from fencepost.outbox_events") == [
        ("delivered", "1-0")
    ]
    await fp.run(kernel_job.claim(job.job_id, "w-1"))
    assert probes.rows(look) == [("running", "processing", 1, "w-1")]
    await fp.run(kernel_job.finish(kernel_job.Finish(job.job_id, 1, "AC"), "w-1"))
    assert probes.rows(look) == [("AC", "done", 1, "w-1")]


def test_every_series_is_there_with_its_labels_and_none_carries_an_id() -> None:
    metrics = JobMetrics.on(Metrics())
    # prometheus_client shows a metric's labels to nobody but itself.
    known: list[Any] = [getattr(metrics, field.name) for field in fields(metrics)]
    families: dict[str, set[str]] = {
        metric._name + ("_total" if metric._type == "counter" else ""): set(metric._labelnames)
        for metric in known
    }
    for series, labels in SERIES.items():
        assert families[series] == labels, series
    assert not {"job_id", "attempt", "owner", "trace_id"} & set[str]().union(*families.values())
