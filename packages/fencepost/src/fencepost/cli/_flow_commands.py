"""The actions of `fencepost flows`: inspect flows, and control them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, TypeVar

from fencepost.cli.database_reader import Reader
from fencepost.cli.exit_codes import ExitCode, UserError
from fencepost.cli.job_commands import acting, actor_name, looking
from fencepost.cli.terminal import answer, answer_json, answer_rich
from fencepost.flows import _dead_letters as dead_letters
from fencepost.flows import _flow_store as flow_store
from fencepost.flows import _savepoint_request as savepoint_request
from fencepost.flows._errors import StartRefused
from fencepost.kernel.call import Call
from fencepost.kernel.drivers import run

T = TypeVar("T")
LOOK_SECONDS = 0.2


def show_all(*, as_json: bool) -> None:
    with looking() as connection:
        flows = [_summary(connection, *row) for row in connection.execute(_FLOWS).fetchall()]
    if as_json:
        answer_json({"flows": flows})
        return
    _table("flows", flows, ("name", "tasks", "held", "workers", "savepoints", "draining"))


def show_one(name: str, *, as_json: bool) -> None:
    with looking() as connection:
        found = connection.execute(_PLAN, (name,)).fetchall()
        if not found:
            raise UserError(
                f"There is no flow {name}. `fencepost flows list` lists the flows.", ExitCode.NOT_FOUND
            )
        tasks = _tasks(connection, name)
        lates = run(connection, flow_store.lates(name))
        rows = connection.execute(_SAVEPOINTS, (name,)).fetchall()
        failing = connection.execute(_FAILING, (name,)).fetchall()
    stopped: list[dict[str, Any]] = [dict(zip(_FAILING_COLUMNS, row, strict=True)) for row in failing]
    kept: list[dict[str, Any]] = [dict(zip(_SAVEPOINT_COLUMNS, row, strict=True)) for row in rows]
    if as_json:
        answer_json(
            {"name": name, "plan": found[0][0], "tasks": tasks, "stopped": stopped, "savepoints": kept}
        )
        return
    for task in tasks:
        marks: dict[str, Any] = task["frontier"] or {}
        task["frontier"] = ", ".join(f"{sender} {mark['at']}" for sender, mark in marks.items())
    _table(name, tasks, ("task", "owner", "checkpoint", "status", "state_bytes", "late", "frontier"))
    for task in stopped:
        answer(_stop(task))
    if kept:
        _table("savepoints", kept, _SAVEPOINT_COLUMNS)
    if lates:
        _table("late records", [_late(late) for late in lates], ("task", "records", "last_at", "newest"))


def save(name: str, savepoint: str, *, within: float) -> None:
    with acting() as connection:
        sender = _OnConnection(connection)
        tasks = asyncio.run(savepoint_request.save(sender, name, savepoint, within_seconds=within))
    answer(f"{savepoint}: {tasks} tasks of {name}.")


class _OnConnection:
    """Makes calls on the command's own connection, which blocks: nothing else runs in its event loop."""

    def __init__(self, connection: Reader) -> None:
        self._connection = connection

    async def run(self, call: Call[T]) -> T:
        return run(self._connection, call)


def drop(name: str, savepoint: str) -> None:
    with acting() as connection:
        tasks = run(connection, flow_store.drop(name, savepoint))
    answer(f"{savepoint} of {name} is gone: {tasks} tasks.")


def restore(name: str, savepoint: str) -> None:
    with acting() as connection:
        run(connection, flow_store.restore(name, savepoint))
    answer(f"{name} is back at {savepoint}. `fencepost flows drain {name} --undo` resumes it.")


def regroup(name: str, savepoint: str, groups: int) -> None:
    with acting() as connection:
        sender = _OnConnection(connection)
        try:
            asyncio.run(savepoint_request.regroup(sender, name, savepoint, groups))
        except StartRefused as refused:
            raise UserError(str(refused)) from None
    answer(
        f"{name} has {groups} key groups now, as of {savepoint}. Deploy key_by(groups={groups}), and resume "
        f"it: `fencepost flows drain {name} --undo`."
    )


def drain(name: str, *, undo: bool, within: float) -> None:
    with acting() as connection:
        run(connection, flow_store.drain(name, draining=not undo))
        if undo:
            answer(f"{name} may go on.")
            return
        deadline = time.monotonic() + within
        while held := _held(connection, name):
            if time.monotonic() > deadline:
                raise UserError(
                    f"{len(held)} tasks of {name} are still held after {within:g} s: {', '.join(held)}."
                )
            time.sleep(LOOK_SECONDS)
    answer(f"No worker holds a task of {name}.")


def dead(name: str, *, step: str | None, limit: int, as_json: bool) -> None:
    with looking() as connection:
        rows = connection.execute(_DEAD, (name, step, step, limit)).fetchall()
    letters: list[dict[str, Any]] = [dict(zip(_DEAD_COLUMNS, row, strict=True)) for row in rows]
    for letter in letters:
        letter["body"] = None if letter["body"] is None else bytes(letter["body"]).decode(errors="replace")
    if as_json:
        answer_json({"flow": name, "dead": letters})
        return
    shown = ("id", "step", "died_at", "error", "preview")
    sent = ("body", "answer") if any(letter["answer"] is not None for letter in letters) else ()
    _table(f"dead letters of {name}", letters, (*shown, *sent))


def replay(name: str, step: str, ids: Sequence[int], *, everything: bool, limit: int) -> None:
    wanted = _wanted(ids, everything=everything)
    with acting() as connection:
        count = run(connection, dead_letters.replay(name, step, ids=wanted, limit=limit, by=actor_name(None)))
    answer(f"{count} dead letters go back to {step} of {name}.")


def discard(name: str, step: str, ids: Sequence[int], *, everything: bool, limit: int) -> None:
    wanted = _wanted(ids, everything=everything)
    with acting() as connection:
        count = run(connection, dead_letters.discard(name, step, ids=wanted, limit=limit))
    answer(f"{count} dead letters of {step} of {name} are gone.")


def _wanted(ids: Sequence[int], *, everything: bool) -> Sequence[int] | None:
    if bool(ids) == everything:
        raise UserError("Say which: their ids, or --all.", ExitCode.USAGE)
    return ids or None


def _held(connection: Reader, name: str) -> list[str]:
    holders = run(connection, flow_store.holders(name))
    return [holder.resource for holder in holders if holder.held and "/slot/" not in holder.resource]


def _summary(connection: Reader, name: str, draining: Any, savepoints: int) -> dict[str, Any]:
    holders = run(connection, flow_store.holders(name))
    tasks = [holder for holder in holders if "/slot/" not in holder.resource]
    return {
        "name": name,
        "tasks": len(tasks),
        "held": sum(holder.held for holder in tasks),
        "workers": sum(holder.held for holder in holders) - sum(holder.held for holder in tasks),
        "savepoints": savepoints,
        "draining": draining is not None,
    }


def _tasks(connection: Reader, name: str) -> list[dict[str, Any]]:
    frontiers = {each.resource: each for each in run(connection, flow_store.frontiers(name))}
    holders = {h.resource: h for h in run(connection, flow_store.holders(name)) if "/slot/" not in h.resource}
    late = {each.resource: each.records for each in run(connection, flow_store.lates(name))}
    tasks: list[dict[str, Any]] = []
    # A task without a commit and without a holder belongs to an earlier, larger number of key groups.
    held = {resource for resource, holder in holders.items() if holder.held}
    for resource in sorted({*frontiers, *held}):
        holder, frontier = holders.get(resource), frontiers.get(resource)
        tasks.append(
            {
                "task": resource.partition("/")[2],
                "owner": holder.owner if holder is not None and holder.held else None,
                "checkpoint": frontier and frontier.number,
                "status": frontier and frontier.status,
                "state_bytes": frontier and frontier.state_bytes,
                "stored_at": frontier and frontier.stored_at,
                "late": late.get(resource),
                "frontier": frontier and frontier.frontier,
            }
        )
    return tasks


def _stop(task: dict[str, Any]) -> str:
    """The error that stops a task, in full: a table would truncate it."""
    since = f"{task['failed_at']:%Y-%m-%d %H:%M:%S}"
    facts = [f"  {name:<7} {task[name]}" for name in _FACTS if task[name]]
    return "\n".join([f"{task['task']} is stopped. Last try: {since}, number {task['failures']}.", *facts])


def _late(late: flow_store.Late) -> dict[str, Any]:
    return {
        "task": late.resource.partition("/")[2],
        "records": late.records,
        "last_at": late.last_at,
        "newest": ", ".join(sample["record"] for sample in late.samples),
    }


def _table(title: str, rows: list[dict[str, Any]], columns: tuple[str, ...]) -> None:
    from rich.table import Table  # noqa: PLC0415 - Takes 0.1 s, which --json saves.

    table = Table(title=title)
    for column in columns:
        table.add_column(column.replace("_", " "))
    for row in rows:
        table.add_row(*("" if row[column] is None else str(row[column]) for column in columns))
    answer_rich(table)


_FLOWS = """
    select f.name, f.draining_at, (select count(*) from fencepost.flow_savepoints s where s.flow = f.name)
    from fencepost.flows f order by f.name"""
_DEAD = """
    select id, step, died_at, error, preview, resource, body, answer from fencepost.flow_dead_letters
    where flow = %s and replay is null and (%s::text is null or step = %s) order by id limit %s"""
_DEAD_COLUMNS = ("id", "step", "died_at", "error", "preview", "resource", "body", "answer")
_SAVEPOINTS = """
    select savepoint, tasks, state_bytes, made_at from fencepost.flow_savepoints
    where flow = %s order by made_at, savepoint"""
_SAVEPOINT_COLUMNS = ("savepoint", "tasks", "state_bytes", "made_at")
_FACTS = ("step", "stream", "offset", "error", "remedy")
_FAILING = """
    select substr(resource, position('/' in resource) + 1), failed_at, failures, step, stream, at_offset,
      error, remedy
    from fencepost.flow_failing(%s)"""
_FAILING_COLUMNS = ("task", "failed_at", "failures", "step", "stream", "offset", "error", "remedy")
_PLAN = "select plan from fencepost.flows where name = %s"
