"""Renders the status for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fencepost.cli._durations import span
from fencepost.cli._status_snapshot import LEASES_MAX, StatusSnapshot


def board_screen(board: StatusSnapshot) -> RenderableType:
    return Group(
        _table("Queues", QUEUES, queue_rows(board), empty="no jobs in any queue"),
        _table("Workers", WORKERS, worker_rows(board), empty="no workers are registered"),
        _table("Work without a worker", UNSERVED, unserved_rows(board), empty="none"),
        _table("Out of service", OUT_OF_SERVICE, out_of_service_rows(board), empty="none"),
        _table("Leases", LEASES, lease_rows(board), empty="none yet"),
        *_more_leases(board),
        _table("Outbox", OUTBOX, outbox_rows(board), empty="nothing waits"),
        _table("Refusals", REFUSALS, refusal_rows(board), empty="none"),
        Text(f"Compatible names: {', '.join(board.compatible_names) or 'off'}", style="dim"),
        Text(f"at {board.at:%Y-%m-%d %H:%M:%S} UTC, from {board.read_from}", style="dim"),
    )


QUEUES = ("queue", "pending", "dispatched", "running", "dead", "oldest waits", "")
WORKERS = ("workers", "driven by")
UNSERVED = ("what", "oldest waits")
OUT_OF_SERVICE = ("worker or host", "state", "for", "by", "why")
LEASES = ("resource", "owner", "token", "held for", "expires in")
OUTBOX = ("channel", "queued", "sending", "failed", "unknown", "parked", "lag")
REFUSALS = ("reason", "refused", "meaning")


def queue_rows(board: StatusSnapshot) -> Iterable[Sequence[Any]]:
    for q in board.queues:
        waits = span(q.oldest_waiting_seconds)
        yield q.queue, q.pending, q.dispatched, q.running, q.dead, waits, "paused" if q.paused else ""


DRIVES = {"redis": "Redis", "postgresql": "PostgreSQL alone: Redis is away, or REDIS_URL is not set"}


def worker_rows(board: StatusSnapshot) -> Iterable[Sequence[Any]]:
    for w in board.workers:
        yield w.workers, DRIVES[w.drive]


def unserved_rows(board: StatusSnapshot) -> Iterable[Sequence[Any]]:
    for one in board.unserved:
        yield one.message, span(one.oldest_seconds)


def out_of_service_rows(board: StatusSnapshot) -> Iterable[Sequence[Any]]:
    for one in board.out_of_service:
        held = span((board.at - one.held_at).total_seconds())
        yield one.target, one.state, held, one.actor, one.reason


def lease_rows(board: StatusSnapshot) -> Iterable[Sequence[Any]]:
    for lease in board.leases:
        if lease.held:
            held = span((board.at - lease.acquired_at).total_seconds())
            yield (
                lease.resource,
                lease.owner,
                lease.token,
                held,
                span((lease.expires_at - board.at).total_seconds()),
            )
        else:
            yield lease.resource, lease.owner or "", lease.token, "", "expired" if lease.owner else "free"


def outbox_rows(board: StatusSnapshot) -> Iterable[Sequence[Any]]:
    for c in board.outbox:
        yield c.channel, c.queued, c.sending, c.failed, c.unknown, c.parked, span(c.lag_seconds)


def refusal_rows(board: StatusSnapshot) -> Iterable[Sequence[Any]]:
    for r in board.refused:
        yield r.reason, r.refused, r.meaning


def _more_leases(board: StatusSnapshot) -> Iterable[RenderableType]:
    if board.leases_held > LEASES_MAX:
        yield Text(f"and {board.leases_held - LEASES_MAX} more held\n", style="dim")


def _table(title: str, heads: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str) -> RenderableType:
    cells = [[str(cell) for cell in row] for row in rows]
    if not cells:
        return Text.assemble((title, "bold"), f"  {empty}\n")
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for position, head in enumerate(heads):
        numbers = all(row[position].isdigit() for row in cells)
        table.add_column(head, justify="right" if numbers else "left", header_style="dim")
    for row in cells:
        # As Text: a queue named [red] is a name, not markup.
        table.add_row(*(Text(cell) for cell in row))
    return Group(table, "")
