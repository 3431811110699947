"""Renders jobs for a terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fencepost.cli._durations import span
from fencepost.cli._job_queries import Cause, JobPage, JobRow
from fencepost.redis_streams.stream_names import PRIORITIES

ERROR_CHARACTERS_MAX = 60


def page_screen(page: JobPage, *, again: str) -> RenderableType:
    if not page.jobs:
        return Text("No job fits.")
    heads = ("job", "state", "queue", "kind", "priority", "tries", "since", "by", "error")
    parts: list[RenderableType] = [table(heads, [_line(job) for job in page.jobs])]
    if page.next_before is not None:
        parts.append(Text(f"More: {again} --before {page.next_before}", style="dim"))
    return Group(*parts)


def job_lines(job: Mapping[str, Any]) -> Iterable[str]:
    """The facts about one job, one per line; then each failed try with its traceback."""
    facts = {
        name: value
        for name, value in job.items()
        if value is not None and value != {} and name != "failed_tries"
    }
    width = max(len(name) for name in facts)
    for name, value in facts.items():
        yield f"{name:<{width}}  {PRIORITIES[int(value)] if name == 'priority' else _shown(value)}"
    for failed in job["failed_tries"]:
        yield f"try {failed['try']} failed (attempt {failed['attempt']}, {moment_text(failed['at'])}):"
        yield from (f"  {plain(line)}" for line in failed["traceback"].split("\n"))


def causes_screen(causes: Sequence[Cause]) -> RenderableType:
    if not causes:
        return Text("No dead letters.")
    heads = ("queue", "kind", "cause", "jobs", "first", "last", "newest", "its error")
    rows = [
        (
            c.queue,
            c.kind,
            c.cause,
            c.jobs,
            _ago(c.first_at),
            _ago(c.last_at),
            c.newest_job_id,
            _cut(c.newest_error),
        )
        for c in causes
    ]
    return table(heads, rows)


def _line(job: JobRow) -> tuple[Any, ...]:
    since = job.finished_at or job.claimed_at or job.run_at or job.submitted_at
    state = job.state if job.final_status in (None, "ok", job.state) else f"{job.state} ({job.final_status})"
    return (
        job.job_id,
        state,
        job.queue,
        job.kind,
        PRIORITIES[job.priority],
        f"{job.tries}/{job.tries_max}",
        _ago(since),
        job.owner or "",
        _cut(job.error),
    )


def _ago(moment: datetime) -> str:
    seconds = (datetime.now(UTC) - moment).total_seconds()
    return f"{span(seconds)} ago" if seconds >= 0 else f"in {span(-seconds)}"


def moment_text(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"


def _cut(text: str | None) -> str:
    line = plain(text or "")
    return line if len(line) <= ERROR_CHARACTERS_MAX else f"{line[: ERROR_CHARACTERS_MAX - 1]}…"


def _shown(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    return plain(json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value))


def plain(text: str) -> str:
    """Text on one line, without control characters: what handlers wrote cannot move the cursor."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f]+", " ", text)


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> RenderableType:
    cells = [[str(cell) for cell in row] for row in rows]
    table = Table(box=None, pad_edge=False)
    for place, head in enumerate(heads):
        numbers = all(row[place].isdigit() for row in cells)
        table.add_column(head, justify="right" if numbers else "left", header_style="dim")
    for row in cells:
        # As Text: a queue named [red] is a name, not markup.
        table.add_row(*(Text(cell) for cell in row))
    return table
