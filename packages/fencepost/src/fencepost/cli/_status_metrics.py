"""The status as metrics. They are read during a scrape, so no loop updates them and none can be stale."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from fencepost.cli._status_snapshot import StatusSnapshot
from fencepost.errors import FencepostError
from fencepost.metrics import Collector, CounterMetricFamily, GaugeMetricFamily

Family = GaugeMetricFamily | CounterMetricFamily


class StatusCollector(Collector):
    """Adds the status to a scrape; an unreachable database is reported as a metric of its own."""

    def __init__(self, read: Callable[[], StatusSnapshot]) -> None:
        self._read = read

    def collect(self) -> Iterator[Family]:
        reachable = GaugeMetricFamily("fencepost_database_reachable", "1 when the views could be read.")
        try:
            board = self._read()
        except FencepostError:
            reachable.add_metric((), 0)
            yield reachable
            return
        reachable.add_metric((), 1)
        yield from (
            reachable,
            *_queues(board),
            _suspects(board),
            _workers(board),
            _unserved(board),
            _out_of_service(board),
            *_outbox(board),
            _leases(board),
            _refusals(board),
            _schedules(board),
            _flows(board),
            *_workflows(board),
        )


IS_WORKFLOW_QUEUE = re.compile(r"[^/]+/[^/@]+@[0-9]{1,9}").fullmatch


def _queues(board: StatusSnapshot) -> Iterator[Family]:
    jobs = GaugeMetricFamily("fencepost_jobs", "Jobs by queue and state.", labels=("queue", "state"))
    oldest = GaugeMetricFamily(
        "fencepost_jobs_oldest_waiting_seconds", "Age of the oldest waiting job.", labels=("queue",)
    )
    for queue in board.queues:
        for state in ("pending", "dispatched", "running", "dead"):
            jobs.add_metric((queue.queue, state), getattr(queue, state))
        oldest.add_metric((queue.queue,), queue.oldest_waiting_seconds or 0)
    yield from (jobs, oldest)


def _suspects(board: StatusSnapshot) -> Family:
    suspects = GaugeMetricFamily(
        "fencepost_jobs_suspects", "Jobs of lost workers that are to run apart.", labels=("queue",)
    )
    counts = {found.queue: found.suspects for found in board.suspects}
    for queue in board.queues:
        suspects.add_metric((queue.queue,), counts.get(queue.queue, 0))
    return suspects


def _workers(board: StatusSnapshot) -> Family:
    workers = GaugeMetricFamily("fencepost_job_workers", "Registered job workers.", labels=("mode",))
    counts = {found.drive: found.workers for found in board.workers}
    for drive in ("redis", "postgresql"):
        workers.add_metric((drive,), counts.get(drive, 0))
    return workers


def _unserved(board: StatusSnapshot) -> Family:
    """A sample for each row of `unserved_work`: how many jobs wait; 1 for a schedule."""
    unserved = GaugeMetricFamily(
        "fencepost_unserved_work",
        "Due jobs that no live worker takes, and schedules of kinds that no live worker has.",
        labels=("reason", "queue", "kind", "schedule", "missing"),
    )
    for one in board.unserved:
        labels = (one.reason, one.queue, one.kind or "", one.schedule or "", ", ".join(one.missing))
        unserved.add_metric(labels, one.waiting if one.schedule is None else 1)
    return unserved


def _out_of_service(board: StatusSnapshot) -> Family:
    """How many are held, by state, and whether a person decided it or the judge's system errors did."""
    held = GaugeMetricFamily(
        "fencepost_workers_out_of_service",
        "Workers and hosts that are drained or disabled.",
        labels=("state", "reason"),
    )
    for state in ("draining", "disabled"):
        for reason in ("operator", "system_errors"):
            matching = (
                one.state == state and (one.actor == "judge") == (reason == "system_errors")
                for one in board.out_of_service
            )
            held.add_metric((state, reason), sum(matching))
    return held


def _outbox(board: StatusSnapshot) -> Iterator[Family]:
    messages = GaugeMetricFamily(
        "fencepost_outbox_messages", "Unsettled messages by channel and state.", labels=("channel", "state")
    )
    lag = GaugeMetricFamily(
        "fencepost_outbox_lag_seconds", "Age of the oldest unsettled message.", labels=("channel",)
    )
    for channel in board.outbox:
        for state in ("queued", "sending", "failed", "unknown", "parked"):
            messages.add_metric((channel.channel, state), getattr(channel, state))
        lag.add_metric((channel.channel,), channel.lag_seconds or 0)
    yield from (messages, lag)


def _leases(board: StatusSnapshot) -> Family:
    held = GaugeMetricFamily("fencepost_leases_held", "Leases that are held.")
    held.add_metric((), board.leases_held)
    return held


def _refusals(board: StatusSnapshot) -> Family:
    """Refusals of all clients, from the database; `fencepost_refusals_total` counts those of one process."""
    refused = CounterMetricFamily("fencepost_database_refusals", "Refusals by reason.", labels=("reason",))
    for reason in board.refusals:
        refused.add_metric((reason.reason,), reason.refused)
    return refused


def _schedules(board: StatusSnapshot) -> Family:
    late = GaugeMetricFamily(
        "fencepost_schedule_late_seconds",
        "Time since the next tick of a schedule should have fired.",
        labels=("schedule",),
    )
    for one in board.schedules:
        late.add_metric((one.schedule,), one.late_seconds)
    return late


def _flows(board: StatusSnapshot) -> Family:
    held = GaugeMetricFamily(
        "fencepost_flow_held_tasks",
        "Tasks that live workers hold, of each flow that is neither drained nor at its end.",
        labels=("flow",),
    )
    for one in board.flows:
        held.add_metric((one.flow,), one.held_tasks)
    return held


def _workflows(board: StatusSnapshot) -> Iterator[Family]:
    undos = GaugeMetricFamily("fencepost_workflow_dead_undos", "Dead jobs that should have undone a step.")
    undos.add_metric((), board.dead_undos)
    parked = GaugeMetricFamily(
        "fencepost_workflow_parked",
        "Workflows that sleep, or wait for an event or for children.",
        labels=("queue",),
    )
    for queue in board.queues:
        if IS_WORKFLOW_QUEUE(queue.queue):
            parked.add_metric((queue.queue,), max(0, queue.pending + queue.dispatched - queue.due))
    waiting = GaugeMetricFamily(
        "fencepost_workflow_event_waits", "Events that workflows wait for, counted to 10,000."
    )
    waiting.add_metric((), board.event_waits)
    stuck = GaugeMetricFamily(
        "fencepost_workflow_stuck",
        "Workflows that ran for an hour without recording a step, or wait for a week for an event without a "
        "deadline.",
        labels=("queue", "reason"),
    )
    for one in board.stuck_workflows:
        stuck.add_metric((one.queue, one.reason), one.workflows)
    yield from (undos, parked, waiting, stuck)
