"""What workflows must have left behind, read from tables that no function of the kernel writes.

A trigger notes each step that is recorded, each end of a workflow and each undo that was submitted; the steps
themselves write rows. Nothing here is unique: a second record, row, end or undo is a second line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

from fencepost.testing import Breach
from fencepost_torture._effects import DOUBLED, LOST, exactly_once, in_order

TIMED_OUT = "timed out"

SCHEMA: LiteralString = """
    create table asked (key text primary key, job_id bigint);
    create table effect (id bigint generated always as identity primary key, key text, step text,
                         job_id bigint, attempt bigint, value text, name text);
    create table undone (id bigint generated always as identity primary key, key text, step text,
                         workflow_id bigint);
    create table emission (event text, payload text, is_first boolean);
    create table recorded (id bigint generated always as identity primary key, job_id bigint, key text,
                           kind text, name text, what text, attempt bigint, has_undo boolean);
    create table ending (job_id bigint, key text, kind text, state text, is_root boolean);
    grant select, insert on asked, effect, undone, emission to fencepost_app;
    create function note_step() returns trigger language plpgsql security definer as $f$
    begin
      insert into public.recorded (job_id, key, kind, name, what, attempt, has_undo)
      select new.job_id, j.payload ->> 'key', j.kind, new.name, new.what, new.attempt, new.undo is not null
      from fencepost.job j where j.job_id = new.job_id;
      return null;
    end $f$;
    create trigger note_step after insert on fencepost.workflow_step
      for each row execute function note_step();
    create function note_ending() returns trigger language plpgsql security definer as $f$
    begin
      insert into public.ending
      select new.job_id, j.payload ->> 'key', j.kind, new.state,
             exists (select 1 from public.asked a where a.job_id = new.job_id)
      from fencepost.job j where j.job_id = new.job_id and j.headers ? 'workflow';
      return null;
    end $f$;
    create trigger note_ending after insert on fencepost.job_finished
      for each row execute function note_ending();
"""
ENDED: LiteralString = "select key, state from ending where is_root"
WRITTEN: LiteralString = "select key, step, job_id, attempt, value, name from effect order by id"
RECORDED: LiteralString = """
    select r.job_id, r.key, a.job_id is not null, r.name, r.attempt, r.has_undo from recorded r
    left join asked a using (job_id) order by r.id
"""
UNDONE: LiteralString = "select workflow_id, step from undone order by id"
FIRST: LiteralString = "select event, payload from emission where is_first"
EMITTED: LiteralString = "select event, payload #>> '{}' from fencepost.workflow_event"
MISMATCHES: LiteralString = """
    select refused from fencepost.refusal_status where reason = 'mismatch' and refused > 0
"""

Rows = Callable[[LiteralString], list[tuple[Any, ...]]]


@dataclass(frozen=True, slots=True)
class Shape:
    """What a workflow of this shape has done when it has finished."""

    rows: Sequence[str]
    """The rows of its steps and of its children, by their names."""
    records: Sequence[str] = ()
    """Its steps that have no row: sleeps, events, children, computations. `{key}` is the workflow's key."""
    event: bool = False
    """Whether it waits for an event."""
    ends: str = "finished"
    """The one state that it may end in; empty for any."""


LONG = tuple(f"step-{number}" for number in range(30))
SHAPES: Mapping[str, Shape] = {
    "rows": Shape(("a", "b", "c", "d"), ("uuid", "_pure", "beside")),
    "sleeper": Shape(("a", "b"), ("sleep", "sleep:2")),
    "listener": Shape(("a", "b"), ("go:{key}", "sleep"), event=True),
    "deadline": Shape(("a",), ("go:{key}",), event=True),
    "parent": Shape(
        ("a", "child-0", "child-1", "grandchild"),
        ("offspring@1", "offspring@1/result", "gather", "gather/results"),
    ),
    "long": Shape(LONG),
    "rounds": Shape(("round-0", "round-1", "round-2")),
    "thread": Shape(
        ("a", "b", "child-0"), ("uuid", "sleep", "go:{key}", "gather", "gather/results"), event=True
    ),
    "failing": Shape(("a", "b", "c"), ("sleep", "gather", "gather/results"), ends="dead"),
    "frail": Shape(("a", "b", "c", "d"), ("sleep",), ends=""),
    "cancelled": Shape(("a", "b", "c", "d"), ("sleep", "sleep:2"), ends=""),
}
OF_CHILDREN = ("child-", "grandchild")


def check(rows: Rows, asked: Mapping[str, str]) -> Iterator[Breach]:
    """Every guarantee that is broken. `asked` is the shape of each workflow by its key."""
    ended = rows(ENDED)
    written = rows(WRITTEN)
    recorded = rows(RECORDED)
    yield from exactly_once(asked, [key for key, _ in ended])
    states = {key: state for key, state in ended if key in asked}
    for key, state in states.items():
        ends = SHAPES[asked[key]].ends
        if ends and state != ends:
            yield Breach("as planned", key, f"ended as {state}, not as {ends}")
    yield from _steps(asked, states, written, recorded)
    yield from _attempts(written, recorded)
    yield from _undos(asked, states, recorded, rows(UNDONE))
    yield from _values(asked, written, rows(FIRST), rows(EMITTED))
    for (count,) in rows(MISMATCHES):
        yield Breach("same arguments", "steps", f"{count} were refused as mismatch; none has other arguments")


def _steps(
    asked: Mapping[str, str],
    states: Mapping[str, str],
    written: Iterable[Sequence[Any]],
    recorded: Iterable[Sequence[Any]],
) -> Iterator[Breach]:
    """Every step of a finished workflow has its row and its record once; of one that ended badly, none
    twice, and no row without its record."""
    rows = Counter((str(key), str(step)) for key, step, *_ in written)
    records = Counter((str(key), str(name)) for _, key, is_root, name, *_ in recorded if is_root)
    for name, found in (("row", rows), ("record", records)):
        for (key, step), count in found.items():
            if count > 1:
                yield Breach(DOUBLED, f"{key}/{step}", f"has {count} {name}s")
    for key in states:
        shape = SHAPES[asked[key]]
        own = [step for step in shape.rows if not step.startswith(OF_CHILDREN)]
        wanted = {(key, step) for step in (*own, *(name.format(key=key) for name in shape.records))}
        found_records = {pair for pair in wanted if pair in records}
        found_rows = {(key, step) for step in shape.rows if (key, step) in rows}
        if states[key] == "finished" or shape.ends == "dead":
            yield from (Breach(LOST, "/".join(pair), "has no record") for pair in wanted - found_records)
            missing = {(key, step) for step in shape.rows} - found_rows
            yield from (Breach(LOST, "/".join(pair), "has no row") for pair in missing)
        for step in own:
            if ((key, step) in records) != ((key, step) in rows):
                which = "a row and no record" if (key, step) in rows else "a record and no row"
                yield Breach("one commit", f"{key}/{step}", f"has {which}")
    for key, step in rows:
        if key not in asked or step not in SHAPES[asked[key]].rows:
            yield Breach("unrequested", f"{key}/{step}", "has a row, and was never requested")


def _attempts(written: Iterable[Sequence[Any]], recorded: Iterable[Sequence[Any]]) -> Iterator[Breach]:
    """The attempt that wrote is the attempt that recorded, and attempts only grow."""
    attempts = {(job_id, name): attempt for job_id, _, _, name, attempt, _ in recorded}
    order: list[tuple[str, int]] = []
    for key, step, job_id, attempt, _, name in written:
        order.append((f"{key} (job {job_id})", attempt))
        if name is not None and attempts.get((job_id, name), attempt) != attempt:
            by = attempts[job_id, name]
            yield Breach("one attempt", f"{key}/{step}", f"was written by {attempt} and recorded by {by}")
    yield from in_order("tokens grow", order)


def _undos(
    asked: Mapping[str, str],
    states: Mapping[str, str],
    recorded: Iterable[Sequence[Any]],
    undone: Iterable[Sequence[Any]],
) -> Iterator[Breach]:
    """What ended badly is undone, each recorded step once, the newest first; what finished is not."""
    undoable: dict[int, list[str]] = {}
    keys: dict[int, str] = {}
    for job_id, key, is_root, name, _, has_undo in recorded:
        if is_root and has_undo:
            undoable.setdefault(job_id, []).append(name)
            keys[job_id] = key
    done: dict[int, list[str]] = {}
    for job_id, step in undone:
        done.setdefault(job_id, []).append(step)
    for job_id in undoable.keys() | done.keys():
        key = keys.get(job_id, f"job {job_id}")
        went_well = key in asked and states.get(key) == "finished"
        wanted = [] if went_well else undoable.get(job_id, [])
        found = done.get(job_id, [])
        yield from exactly_once([f"{key}/undo {s}" for s in wanted], [f"{key}/undo {s}" for s in found])
        if sorted(found) == sorted(wanted) and found != wanted[::-1]:
            yield Breach("newest first", key, f"was undone in the order {found}")


def _values(
    asked: Mapping[str, str],
    written: Iterable[Sequence[Any]],
    first: Iterable[Sequence[Any]],
    emitted: Iterable[Sequence[Any]],
) -> Iterator[Breach]:
    """A recorded result is the same in every attempt, and the first emission is what all see."""
    payloads: dict[str, str] = {str(event): str(payload) for event, payload in emitted}
    firsts = Counter(str(event) for event, _ in first)
    for event, payload in first:
        if firsts[event] > 1 or payloads.get(event) != payload:
            yield Breach("first emission", event, f"is {payloads.get(event)}; {firsts[event]} were the first")
    values: dict[str, set[str]] = {}
    for key, step, _, _, value, _ in written:
        shape = asked.get(key, "")
        if shape == "rows":
            values.setdefault(key, set()).add(value)
        elif (read := _readable(shape, step, payloads.get(f"go:{key}"))) and value not in read:
            yield Breach("one result", f"{key}/{step}", f"read {value}, not {' or '.join(map(str, read))}")
    for key, different in values.items():
        if len(different) > 1:
            yield Breach("one result", key, f"a step had the results {sorted(different)}")


def _readable(shape: str, step: str, payload: str | None) -> Sequence[str | None]:
    """What a row may hold that was read from an event or from children; nothing where it holds neither."""
    match shape, step:
        case (("listener" | "thread"), "b"):
            return (payload,)
        case "deadline", _:
            return (payload, TIMED_OUT)
        case "parent", "a":
            return ("3",)
        case _:
            return ()
