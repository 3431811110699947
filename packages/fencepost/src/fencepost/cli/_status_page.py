"""The status as a page: the same figures as in the terminal, in HTML without scripts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from fencepost.cli._status_screen import (
    LEASES,
    OUT_OF_SERVICE,
    OUTBOX,
    QUEUES,
    REFUSALS,
    UNSERVED,
    WORKERS,
    lease_rows,
    out_of_service_rows,
    outbox_rows,
    queue_rows,
    refusal_rows,
    unserved_rows,
    worker_rows,
)
from fencepost.cli._status_snapshot import StatusSnapshot

_STYLE = (
    ":root{color-scheme:light dark}"
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:64rem;padding:0 1rem}"
    "table{border-collapse:collapse;margin-bottom:1.5rem;width:100%}"
    "th,td{text-align:left;padding:.25rem .75rem;border-bottom:1px solid #8884}"
    "th{font-weight:600}h2{font-size:1.1rem;margin:0 0 .25rem}p.empty,footer{color:#888}"
)


def board_page(board: StatusSnapshot) -> str:
    sections = (
        _section("Queues", QUEUES, queue_rows(board), "No jobs in any queue."),
        _section("Workers", WORKERS, worker_rows(board), "No workers are registered."),
        _section("Work without a worker", UNSERVED, unserved_rows(board), "None."),
        _section("Out of service", OUT_OF_SERVICE, out_of_service_rows(board), "None."),
        _section("Leases", LEASES, lease_rows(board), "No leases yet."),
        _section("Outbox", OUTBOX, outbox_rows(board), "Nothing waits."),
        _section("Refusals", REFUSALS, refusal_rows(board), "None."),
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="5">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>Fencepost</title><style>{_STYLE}</style></head><body><h1>Fencepost</h1>"
        f"{''.join(sections)}<footer>at {board.at:%Y-%m-%d %H:%M:%S} UTC · metrics at "
        '<a href="/metrics">/metrics</a></footer></body></html>'
    )


def _section(title: str, heads: Sequence[str], rows: Iterable[Sequence[Any]], empty: str) -> str:
    lines = [_row("td", row) for row in rows]
    if not lines:
        return f'<section><h2>{title}</h2><p class="empty">{empty}</p></section>'
    return (
        f"<section><h2>{title}</h2><table><thead>{_row('th', heads)}</thead>"
        f"<tbody>{''.join(lines)}</tbody></table></section>"
    )


def _row(tag: str, cells: Sequence[Any]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(str(cell))}</{tag}>' for cell in cells)}</tr>"
