"""Reads workflows for `fencepost workflows`, and renders them for a terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from psycopg.rows import dict_row
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fencepost.cli.database_reader import Reader
from fencepost.cli.exit_codes import ExitCode, UserError
from fencepost.kernel._workflow import Version

RESULT_CHARACTERS_MAX = 60
Row = Mapping[str, Any]


def read_page(
    connection: Reader, *, state: str | None, name: str | None, before_id: int | None, limit: int
) -> list[dict[str, Any]]:
    """One page, newest first."""
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(
            """select j.job_id, j.headers #>> '{workflow, name}' as name,
                      (j.headers #>> '{workflow, version}')::integer as version, j.state, j.attempt, j.run_at,
                      (select count(*) from fencepost.workflow_steps s where s.job_id = j.job_id) as steps,
                      array(select coalesce(w.event, 'sleeps') from fencepost.workflow_waits w
                            where w.job_id = j.job_id order by w.since) as waits, j.error
               from fencepost.jobs j
               where j.headers ? 'workflow' and j.job_id < coalesce(%(before)s, 9223372036854775807)
                 and (%(state)s::text is null or j.state = %(state)s)
                 and (%(name)s::text is null or j.headers #>> '{workflow, name}' = %(name)s)
               order by j.job_id desc limit %(limit)s""",
            {"before": before_id, "state": state, "name": name, "limit": limit},
        ).fetchall()


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
            """select name, event, deadline, since from fencepost.workflow_waits
               where job_id = %s order by since""",
            (job_id,),
        ).fetchall()
    return {**found, "steps": steps, "waits": waits}


def page_screen(page: Sequence[Row]) -> RenderableType:
    if not page:
        return Text("No workflow fits.")
    return _table(
        ("workflow", "name", "version", "state", "attempt", "steps", "waits for", "error"),
        [
            (
                row["job_id"],
                row["name"],
                row["version"],
                row["state"],
                row["attempt"],
                row["steps"],
                ", ".join(row["waits"]) if row["state"] == "pending" else "",
                _short(row["error"] or ""),
            )
            for row in page
        ],
    )


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
    for wait in workflow["waits"]:
        until = f" until {wait['deadline']:%Y-%m-%d %H:%M:%S}" if wait["deadline"] else ""
        parts.append(Text(f"waits for {wait['event'] or 'the time'}{until}"))
    if workflow["error"]:
        parts.append(Text(f"error: {_short(workflow['error'])}"))
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
