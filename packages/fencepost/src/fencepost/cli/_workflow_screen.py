"""Reads workflows for `fencepost workflows`, and renders them for a terminal."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from psycopg.rows import dict_row
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fencepost.cli._job_screen import plain
from fencepost.cli.database_reader import Reader
from fencepost.cli.exit_codes import ExitCode, UserError
from fencepost.kernel import _workflow_operator as operator
from fencepost.kernel._workflow import Version
from fencepost.kernel.drivers import run

RESULT_CHARACTERS_MAX = 60
BATCH = 500
LIFE_MAX = 1000
Row = Mapping[str, Any]


def read_page(
    connection: Reader, wanted: operator.WorkflowFilter, *, before_id: int | None, limit: int
) -> dict[str, Any]:
    """One page, newest first, and where the next one begins."""
    ids, following = run(connection, operator.page(wanted, before_id=before_id, limit=limit))
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute("select * from fencepost.workflow_rows(%s::bigint[])", (ids,)).fetchall()
    return {"workflows": rows, "next_before": following}


def live_ids(connection: Reader, wanted: operator.WorkflowFilter) -> list[int]:
    """Every live workflow that the filter selects now."""
    live = replace(wanted, state=wanted.state or "live")
    found, before = run(connection, operator.page(live, limit=BATCH))
    while before is not None:
        ids, before = run(connection, operator.page(live, before_id=before, limit=BATCH))
        found += ids
    return found


def cancel_all(connection: Reader, ids: Sequence[int], actor: str) -> dict[str, int]:
    """Cancel these, a batch at a time; how many had each outcome."""
    counts: Counter[str] = Counter()
    for start in range(0, len(ids), BATCH):
        settled = run(connection, operator.settle(ids[start : start + BATCH], "cancel", actor))
        counts.update(one.outcome for one in settled)
    return dict(counts)


def read_workflow(connection: Reader, job_id: int) -> dict[str, Any]:
    """Everything about one workflow."""
    with connection.cursor(row_factory=dict_row) as cursor:
        found = cursor.execute(
            """select job_id, headers -> 'workflow' as workflow, state, attempt, tries, run_at, payload,
                      result, error, submitted_at, finished_at
               from fencepost.jobs where job_id = %s and headers ? 'workflow'""",
            (job_id,),
        ).fetchone()
        if found is None:
            raise UserError(
                f"There is no workflow {job_id}: it never existed, it is a plain job, or it was pruned.",
                ExitCode.NOT_FOUND,
            )
        steps = cursor.execute(
            """select name, what, attempt, result, undo ->> 'kind' as undo, undone_by, at
               from fencepost.workflow_steps where job_id = %s order by step_id""",
            (job_id,),
        ).fetchall()
        waits = cursor.execute(
            """select w.name, w.event, w.deadline, w.since, e.at as emitted_at, e.actor as emitted_by
               from fencepost.workflow_waits w left join fencepost.workflow_events e on e.event = w.event
               where w.job_id = %s order by w.since""",
            (job_id,),
        ).fetchall()
        failures = cursor.execute(
            """select at, token as attempt, event, detail ->> 'error' as error,
                      detail ->> 'traceback' as traceback
               from fencepost.workflow_life(%s::bigint, %s) where detail ? 'traceback' order by at""",
            (job_id, LIFE_MAX),
        ).fetchall()
        children = cursor.execute(
            """select s.name, b.batch_id, b.size, b.remaining, b.finished, b.dead, b.cancelled
               from fencepost.workflow_steps s
               join fencepost.batches b on b.batch_id = (s.result ->> 'batch')::bigint
               where s.job_id = %s and s.what = 'spawn' order by s.step_id""",
            (job_id,),
        ).fetchall()
    return {**found, "steps": steps, "waits": waits, "children": children, "failures": failures}


def page_screen(page: Row, *, again: str) -> RenderableType:
    following = page["next_before"]
    onward = [] if following is None else [Text(f"The next page: {again} --before {following}")]
    if not page["workflows"]:
        return Group(Text("No workflow fits."), *onward)
    listed = _table(
        ("workflow", "name", "version", "state", "attempt", "steps", "waits for", "error"),
        [
            (
                row["job_id"],
                row["name"],
                row["version"],
                row["state"],
                row["attempt"],
                row["steps"],
                ", ".join(row["waits"]),
                _short(row["error"] or ""),
            )
            for row in page["workflows"]
        ],
    )
    return Group(listed, *onward)


def workflow_screen(workflow: Row) -> RenderableType:
    described = workflow["workflow"]
    title = f"{workflow['job_id']}  {described['name']}@{described['version']}  {workflow['state']}"
    parts: list[RenderableType] = [
        Text(title),
        _table(
            ("step", "what", "attempt", "at", "result", "undo"),
            [
                (
                    step["name"],
                    step["what"],
                    step["attempt"],
                    f"{step['at']:%Y-%m-%d %H:%M:%S}",
                    _short(json.dumps(step["result"], ensure_ascii=False)),
                    f"{step['undo']} (job {step['undone_by']})" if step["undone_by"] else step["undo"] or "",
                )
                for step in workflow["steps"]
            ],
        ),
    ]
    parts += [Text(_wait(wait)) for wait in workflow["waits"]]
    for batch in workflow["children"]:
        ended = f"{batch['finished']} finished, {batch['dead']} dead, {batch['cancelled']} cancelled"
        parts.append(Text(f"children of {batch['name']}: {batch['size']}; {ended}"))
    if workflow["error"]:
        parts.append(Text(f"error: {_short(workflow['error'])}"))
    if workflow["failures"]:
        newest = workflow["failures"][-1]
        lines = (plain(line) for line in newest["traceback"].splitlines())
        parts.append(Text("\n".join([f"The newest failure, attempt {newest['attempt']}:", *lines])))
    return Group(*parts)


def versions_screen(versions: Sequence[Version]) -> RenderableType:
    if not versions:
        return Text("No live workflows.")
    rows = [
        (v.queue, v.name, v.version, v.waiting, v.running, f"{v.oldest:%Y-%m-%d %H:%M}" if v.oldest else "")
        for v in versions
    ]
    return _table(("queue", "name", "version", "waiting", "running", "oldest"), rows)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= RESULT_CHARACTERS_MAX else line[: RESULT_CHARACTERS_MAX - 1] + "…"


def _table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for head in heads:
        table.add_column(head, overflow="fold")
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    return table


def _wait(wait: Row) -> str:
    if wait["emitted_at"] is not None:
        by = f" by {wait['emitted_by']}" if wait["emitted_by"] else ""
        return f"{wait['event']} was emitted at {wait['emitted_at']:%Y-%m-%d %H:%M:%S}{by}"
    until = f" until {wait['deadline']:%Y-%m-%d %H:%M:%S}" if wait["deadline"] else ""
    return f"waits for {wait['event'] or 'the time'}{until}"
