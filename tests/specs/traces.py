"""What a torture recorded, as behaviours of the specifications: TLC replays them by the specification's own
actions, so that what the code does and what is proved cannot drift apart.

A history of concurrent calls is put into one order that explains it (`linearize`); each call of that order
becomes the actions that it is made of. The hidden ones are written down too: a lease that was taken over had
expired. What is left for TLC is to say whether each action was possible, and led where the history says.
"""

import json
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, LiteralString

from fencepost_torture._linearizability import linearize
from fencepost_torture._models import LeaseModel
from fencepost_torture._operation_log import Operation
from fencepost_torture._system_environment import SystemEnvironment
from fencepost_torture.systems import _flows as flows
from fencepost_torture.systems import _leases as leases
from fencepost_torture.systems import _players as players
from tests.specs.tlc import SPECS, Outcome, search

TRACES = SPECS / "traces"
PLACE = re.compile(r"^/\\ (which|line) = (\d+)$", re.MULTILINE)
ACCEPTED = re.compile(r'^<<"accepted", (\d+)>>$', re.MULTILINE)

Step = tuple[str, int, int]
Trace = Sequence[Step]


@dataclass(frozen=True)
class Rejected:
    """A history that is no behaviour of its specification, and the action that was not possible."""

    subject: str
    line: int
    step: Step
    output: str

    def __str__(self) -> str:
        action, who, number = self.step
        return f"{self.subject}, line {self.line}: {action} by {who} (number {number}) is no step"


def replay(specification: str, traces: Mapping[str, Trace]) -> Rejected | None:
    """Whether every history is a behaviour of the specification, or one that is none."""
    rejected = refused(specification, traces)
    if not rejected:
        return None
    # Alone, TLC stops where it cannot go on.
    outcome = _search(specification, [traces[rejected[0]]], deadlocks=True)
    place = dict(PLACE.findall(outcome.output))
    assert place, outcome.output
    steps, line = traces[rejected[0]], int(place["line"])
    return Rejected(rejected[0], line, steps[min(line, len(steps)) - 1], outcome.output)


def refused(specification: str, traces: Mapping[str, Trace]) -> list[str]:
    """The histories that are no behaviours: they do not come to their end, or break an invariant."""
    outcome = _search(specification, list(traces.values()), deadlocks=False)
    accepted = {int(which) for which in ACCEPTED.findall(outcome.output)}
    assert outcome.holds or outcome.violated, outcome.output
    return [subject for which, subject in enumerate(traces, 1) if which not in accepted]


def _search(specification: str, traces: Sequence[Trace], *, deadlocks: bool) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="fencepost-traces-") as scratch:
        folder = Path(scratch)
        for file in [*SPECS.glob("*.tla"), *TRACES.iterdir()]:
            shutil.copy(file, folder)
        (folder / "Recorded.tla").write_text(recorded(traces))
        return search(folder, f"{specification}Trace.cfg", f"{specification}Trace.tla", deadlocks=deadlocks)


def recorded(traces: Sequence[Trace]) -> str:
    """The module that the trace specifications extend."""
    steps = [step for trace in traces for step in trace]
    lines = ",\n".join(
        "  <<" + ", ".join(f'<<"{name}", {who}, {number}>>' for name, who, number in trace) + ">>"
        for trace in traces
    )
    return (
        "---- MODULE Recorded ----\nEXTENDS Naturals\n"
        f"TraceWorkers == 1..{max((who for _, who, _ in steps), default=1)}\n"
        f"NumberMax == {max((number for *_, number in steps), default=1) + 1}\n"
        f"Traces == <<\n{lines}\n>>\n====\n"
    )


def of_leases(operations: Iterable[Operation]) -> dict[str, Trace]:
    """One history for each resource."""
    found: dict[str, list[Operation]] = {}
    for operation in operations:
        if operation.answer != leases.NOTHING:
            found.setdefault(operation.subject, []).append(operation)
    return {subject: lease_trace(history) for subject, history in sorted(found.items())}


def lease_trace(history: Sequence[Operation]) -> Trace:
    finding = linearize(history, LeaseModel())
    assert finding.holds, finding.explanation
    assert finding.decided, finding.explanation
    return list(_lease_steps(finding.order))


def _lease_steps(order: Iterable[Operation]) -> Iterator[Step]:
    """A lease that one holds and another gets had expired in between."""
    numbers: dict[str, int] = {}
    owner, token = 0, 0
    for operation in order:
        who = numbers.setdefault(str(operation.question["owner"]), len(numbers) + 1)
        match operation.what, operation.answer:
            case "acquire", "not_owner":
                yield "Acquire refused", who, 0
            case "acquire", int() as answer if answer == token and who == owner:
                yield "Renew", who, token
            case "acquire", answer:
                if owner:
                    yield "Expire", who, 0
                # Of one whose answer was lost we know only that it happened.
                owner, token = who, token + 1 if answer is None else int(answer)
                yield "Acquire", who, token
            case _, "lease_expired":
                pass  # Time is not in the specification.
            case "write", str():
                yield "Fence refused", who, 0
            case "write", _:
                yield "Fence", who, int(operation.question["token"])
                yield "Write", who, 0
                yield "Commit", who, 0
            case _, "released" | None:
                owner = 0
                yield "Release", who, 0
            case _:
                yield "Release refused", who, 0


# Whatever happens to a job's row, in its order: a row is locked by the call that moves it.
JOURNAL: LiteralString = """
    create table journal (id bigint generated always as identity primary key, job_id bigint, what text,
                          attempt bigint, expired boolean, xid xid8 default pg_current_xact_id());
    create function note_running() returns trigger language plpgsql security definer as $f$
    begin
      if tg_op = 'UPDATE' then
        if new.attempt <> old.attempt or new.owner <> old.owner then
          insert into public.journal (job_id, what, attempt) values (new.job_id, 'taken over', new.attempt);
        end if;
      elsif tg_op = 'INSERT' then
        insert into public.journal (job_id, what, attempt) values (new.job_id, 'claimed', new.attempt);
      else
        insert into public.journal (job_id, what, attempt, expired)
        values (old.job_id, 'left', old.attempt, old.expires_at <= fencepost.clock());
      end if;
      return null;
    end $f$;
    create trigger note_running after insert or update or delete on fencepost.job_running
      for each row execute function note_running();
    create function note_end() returns trigger language plpgsql security definer as $f$
    begin
      insert into public.journal (job_id, what, attempt) values (new.job_id, 'finished', new.attempt);
      return null;
    end $f$;
    create trigger note_end after insert on fencepost.job_finished for each row execute function note_end();
"""
LIVES: LiteralString = "select job_id, xid::text, what, attempt, expired from journal order by job_id, id"
WRITES: LiteralString = "select job_id, attempt from effect order by id"


def of_jobs(env: SystemEnvironment, jobs_max: int = 1000) -> dict[str, Trace]:
    """One history for each job; those with the most attempts first."""
    lives: dict[int, list[Sequence[Any]]] = {}
    for job_id, *event in env.rows(LIVES):
        lives.setdefault(job_id, []).append(event)
    writes: dict[int, list[int]] = {}
    for job_id, attempt in env.rows(WRITES):
        writes.setdefault(job_id, []).append(attempt)
    longest = sorted(lives.items(), key=lambda life: -len(life[1]))[:jobs_max]
    return {f"job {job_id}": attempt_trace(events, writes.get(job_id, [])) for job_id, events in longest}


def attempt_trace(events: Sequence[Sequence[Any]], writes: Sequence[int]) -> Trace:
    """`events` are (transaction, what, attempt, expired); `writes` are the attempts that had an effect."""
    return list(_attempt_steps(events, list(writes)))


def _attempt_steps(events: Sequence[Sequence[Any]], writes: list[int]) -> Iterator[Step]:
    finishing = {xid for xid, what, *_ in events if what == "finished"}
    entries = 0
    for xid, what, attempt, expired in events:
        match what:
            case "finished":
                # The writer is the finisher: an effect of another attempt is no step.
                who = writes.pop(0) if writes else attempt
                yield "Fence", who, attempt
                yield "Write", who, 0
                yield "Finish", who, attempt
            case "left":
                if xid in finishing:
                    continue
                if expired:
                    yield "Expire", attempt, 0
                    yield "Reclaim", attempt, 0
                else:
                    yield "PutBack", attempt, 0
            case _:
                if what == "taken over":
                    yield "Expire", attempt, 0
                    yield "Reclaim", attempt, 0
                if not entries:
                    yield "Dispatch", attempt, 0
                entries = 1
                yield "Claim", attempt, attempt
    for attempt in writes:
        yield "Write", attempt, 0


# What happens to a workflow: its row, its steps, its ends and its undo jobs. All are written while its row is
# locked, and emissions while the event is: what is noted stands in the order of the commits.
WORKFLOW_JOURNAL: LiteralString = """
    create table life (id bigint generated always as identity primary key, job_id bigint, what text,
                       attempt bigint, detail text, xid xid8 default pg_current_xact_id());
    create function note_life() returns trigger language plpgsql security definer as $f$
    begin
      case tg_table_name
        when 'job_running' then
          if tg_op = 'UPDATE' then
            if new.attempt <> old.attempt or new.owner <> old.owner then
              insert into public.life (job_id, what, attempt) values (new.job_id, 'taken over', new.attempt);
            end if;
          elsif tg_op = 'INSERT' then
            insert into public.life (job_id, what, attempt) values (new.job_id, 'claimed', new.attempt);
          else
            insert into public.life (job_id, what, attempt, detail)
            values (old.job_id, case when old.expires_at <= fencepost.clock() then 'lost' else 'left' end,
                    old.attempt, null);
          end if;
        when 'workflow_step' then
          insert into public.life (job_id, what, attempt, detail)
          values (new.job_id, case when new.undo is not null then 'reversible'
                                   when new.result ->> 'outcome' = 'timed_out' then 'timed out'
                                   else new.what end, new.attempt, new.name);
        when 'workflow_wait' then
          insert into public.life (job_id, what, detail) values (new.job_id, 'awaits', new.event);
        when 'workflow_event' then
          insert into public.life (job_id, what, detail)
          select a.job_id, 'emitted', new.event from public.asked a where 'go:' || a.key = new.event;
        when 'job_finished' then
          insert into public.life (job_id, what, attempt) values (new.job_id, new.state, new.attempt);
        else
          insert into public.life (job_id, what, detail) values (new.workflow_id, 'undo', new.name);
      end case;
      return null;
    end $f$;
    create trigger note_life after insert or update or delete on fencepost.job_running
      for each row execute function note_life();
    create trigger note_life after insert on fencepost.workflow_step
      for each row execute function note_life();
    create trigger note_life after insert on fencepost.workflow_wait
      for each row when (new.event is not null) execute function note_life();
    create trigger note_life after insert on fencepost.workflow_event
      for each row execute function note_life();
    create trigger note_life after insert on fencepost.job_finished
      for each row execute function note_life();
    create trigger note_life after insert on fencepost.workflow_undo
      for each row execute function note_life();
"""
# A restart drops the steps: each round would be a life of its own. A workflow of many steps would be most of
# a replay, and does nothing that those of a few do not.
WORKFLOW_LIVES: LiteralString = """
    select l.job_id, l.xid::text, l.what, l.attempt, l.detail from life l join asked a using (job_id)
    where not starts_with(a.key, 'rounds-') and not starts_with(a.key, 'long-') order by l.job_id, l.id
"""
STEP_ROWS: LiteralString = "select job_id, name, attempt from effect where name is not null order by id"
UNDO_ROWS: LiteralString = "select workflow_id, step from undone order by id"
KINDS = ("write", "reversible", "step", "sleep", "event")
STEPS = {"step", "reversible", "sleep", "event", "timed out", "spawn"}
ENDS = {"finished", "dead", "cancelled"}
Event = tuple[str, str, int | None, str | None]
"""What happened to a workflow: transaction, what, attempt, name."""


def of_workflows(env: SystemEnvironment, workflows_max: int = 300) -> dict[str, Trace]:
    """One history for each workflow; those with the most events first."""
    lives: dict[int, list[Event]] = {}
    for job_id, xid, what, attempt, detail in env.rows(WORKFLOW_LIVES):
        lives.setdefault(job_id, []).append((xid, what, attempt, detail))
    writes: dict[int, list[tuple[str, int]]] = {}
    for job_id, name, attempt in env.rows(STEP_ROWS):
        writes.setdefault(job_id, []).append((name, attempt))
    undone: dict[int, list[str]] = {}
    for job_id, step in env.rows(UNDO_ROWS):
        undone.setdefault(job_id, []).append(step)
    longest = sorted(lives.items(), key=lambda life: -len(life[1]))[:workflows_max]
    return {
        f"workflow {job_id}": workflow_trace(events, writes.get(job_id, []), undone.get(job_id, []))
        for job_id, events in longest
    }


def workflow_trace(
    events: Sequence[Event], writes: Sequence[tuple[str, int]], undone: Sequence[str] = ()
) -> Trace:
    """`writes` are the rows of its steps, as (step, attempt); `undone` the steps whose undo was done."""
    return list(WorkflowHistory(events, writes, undone).steps())


class WorkflowHistory:
    """The events of one workflow, by the transactions that made them."""

    def __init__(
        self, events: Sequence[Event], writes: Sequence[tuple[str, int]], undone: Sequence[str]
    ) -> None:
        self._events = events
        self._writes = list(writes)
        self._undone = undone
        self._in = {xid: [what for other, what, *_ in events if other == xid] for xid, *_ in events}
        self._program = [self._kind(xid, what, name) for xid, what, _, name in events if what in STEPS]
        self._recorded = 0
        self._waits = ""
        self._late = False

    def steps(self) -> Iterator[Step]:
        for kind in [*self._program, *self._awaited_at_the_end()]:
            yield "Plan", 1, KINDS.index(kind) + 1
        for event in self._events:
            yield from self._event(*event)
        # A row that no step of its life has made is no step.
        for _, attempt in self._writes:
            yield "Write", attempt, 0
        submitted = [name for _, what, _, name in self._events if what == "undo"]
        for number, pair in enumerate(zip_longest(self._undone, submitted[::-1]), 1):
            # Submitted oldest first, and done newest first.
            yield "Undo", 1, number if pair[0] == pair[1] else 0

    def _kind(self, xid: str, what: str, name: str | None) -> str:
        match what:
            case "reversible":
                return what
            case "event" | "timed out":
                return "event"
            case "sleep" if self._gave_back(xid):
                return what
            case _:
                # A sleep that is recorded beside something that has happened does not park.
                return "write" if any(step == name for step, _ in self._writes) else "step"

    def _gave_back(self, xid: str) -> bool:
        together = set(self._in[xid])
        return bool(together & {"left", "lost"}) and not together & ENDS

    def _awaited_at_the_end(self) -> list[str]:
        awaited = any(what == "awaits" and self._gave_back(xid) for xid, what, *_ in self._events)
        return ["event"] if awaited and "event" not in self._program else []

    def _event(self, xid: str, what: str, attempt: int | None, name: str | None) -> Iterator[Step]:
        who = attempt or 1
        match what:
            case "claimed" | "taken over":
                if what == "taken over":
                    yield "Expire", who, 0
                    yield "Reclaim", who, 0
                yield from self._wake(who)
                yield "Claim", who, who
            case "emitted":
                self._waits = "" if self._waits == "event" else self._waits
                yield "Emit", 1, 0
            case "left" | "lost" if self._gave_back(xid):
                yield from self._give_back(xid, who)
            case "finished":
                yield "Finish", who, 0
            case "dead" | "cancelled":
                yield from self._end_badly(xid, who)
            case _ if what in STEPS:
                yield from self._record(what, who, name)
            case _:
                pass

    def _wake(self, who: int) -> Iterator[Step]:
        if self._waits == "time":
            yield "WakeUp", who, 0
        elif self._waits == "event":
            yield from self._deadline(who)
        self._waits = ""

    def _deadline(self, who: int) -> Iterator[Step]:
        if not self._late:
            yield "Deadline", who, 0
        self._late = True

    def _give_back(self, xid: str, who: int) -> Iterator[Step]:
        together = self._in[xid]
        if "sleep" in together:
            # The sleep itself is the step that gives it back.
            self._waits = "time"
        elif "awaits" in together:
            self._waits = "event"
            yield "Await", who, self._recorded
        elif "lost" in together:
            yield "Expire", who, 0
            yield "Reclaim", who, 0
        else:
            yield "PutBack", who, 0

    def _end_badly(self, xid: str, who: int) -> Iterator[Step]:
        together = self._in[xid]
        undos = together.count("undo")
        if "lost" in together:
            yield "Expire", who, 0
            yield "ReclaimLast", who, undos
        else:
            yield "Fail" if "left" in together else "Cancel", who, undos

    def _record(self, what: str, who: int, name: str | None) -> Iterator[Step]:
        kind = self._program[self._recorded]
        self._recorded += 1
        if kind in ("write", "reversible"):
            place = next((n for n, (step, _) in enumerate(self._writes) if step == name), None)
            # The attempt that wrote the row, whatever the record says.
            who = who if place is None else self._writes.pop(place)[1]
            yield "Fence", who, 0
            yield "Write", who, 0
            yield "Commit", who, self._recorded
            return
        if what == "timed out":
            yield from self._deadline(who)
        yield {"sleep": "Sleep", "event": "Await", "step": "Record"}[kind], who, self._recorded


def of_requests(env: SystemEnvironment) -> dict[str, Trace]:
    """One history for each request of the players."""
    records = [name for (name,) in env.rows(players.RECORDS)]
    answers: dict[str, list[str]] = {name: [] for name in records}
    for operation in env.operation_log.operations():
        answer: Any = operation.answer
        # A number is a status that is no answer.
        if operation.what == "request" and answer is not None and not isinstance(answer, int):
            answers.setdefault(operation.subject, []).append(json.dumps(answer, sort_keys=True))
    return {name: idempotency_trace(records.count(name), told) for name, told in answers.items()}


def idempotency_trace(effects: int, told: Sequence[str]) -> Trace:
    """The effects that the books hold, and then what every copy was told."""
    return list(_idempotency_steps(effects, told))


def _idempotency_steps(effects: int, told: Sequence[str]) -> Iterator[Step]:
    for client in range(1, effects + 1):
        yield "Claim", client, 0
        yield "Write", client, 0
        yield "Commit", client, 1
    different = list(dict.fromkeys(told))
    for client, answer in enumerate(told, effects + 1):
        yield "Replay", client, different.index(answer) + 1


# Every row of the outbox, from its put to its end: each is locked by the call that moves it, and puts of one
# key wait for each other, so what is noted stands in the order of the commits for one key.
MESSAGES: LiteralString = """
    create table message_journal (id bigint generated always as identity primary key, line text,
                                  message bigint, what text, take bigint);
    create function note_message() returns trigger language plpgsql security definer as $f$
    begin
      if tg_op = 'INSERT' then
        insert into public.message_journal (line, message, what, take)
        values (new.channel || ' ' || new.key, new.id, 'put', new.take);
      elsif tg_op = 'DELETE' then
        insert into public.message_journal (line, message, what, take)
        values (old.channel || ' ' || old.key, old.id, 'settled', old.take);
      elsif new.take <> old.take then
        insert into public.message_journal (line, message, what, take)
        values (new.channel || ' ' || new.key, new.id, 'taken', new.take);
      end if;
      return null;
    end $f$;
    create trigger note_message after insert or update or delete on fencepost.outbox
      for each row execute function note_message();
"""
LINES: LiteralString = (
    "select line, message, what, take from message_journal where line is not null order by id"
)


def of_messages(env: SystemEnvironment, messages_max: int = 10) -> dict[str, Trace]:
    """One history for each key, of its first messages: what comes behind them changes nothing for them."""
    lines: dict[str, list[tuple[int, str, int]]] = {}
    for line, *event in env.rows(LINES):
        lines.setdefault(line, []).append((event[0], event[1], event[2]))
    return {line: message_trace(events, messages_max) for line, events in sorted(lines.items())}


def message_trace(events: Sequence[tuple[int, str, int]], messages_max: int = 10) -> Trace:
    """`events` are (message, what, take)."""
    numbers: dict[int, int] = {}
    for message, what, _ in events:
        if what == "put" and len(numbers) < messages_max:
            numbers[message] = len(numbers) + 1
    return list(_message_steps([(numbers[m], what, take) for m, what, take in events if m in numbers]))


def _message_steps(events: Iterable[tuple[int, str, int]]) -> Iterator[Step]:
    taken = False
    for message, what, take in events:
        match what:
            case "put":
                yield "Put", message, 0
                yield "End", message, 0
            case "taken":
                if taken:
                    yield "Drop", message, 0
                taken = True
                yield "Take", message, take
            case _:
                taken = False
                yield "Send", message, 0
                yield "Settle", message, take


# The owners of the lease of a key group, and which rows were written with which checkpoint: by transaction.
COMMITS: LiteralString = """
    create table commit_journal (id bigint generated always as identity primary key, resource text, what text,
                                 token bigint, xid xid8 default pg_current_xact_id());
    create table row_journal (id bigint generated always as identity primary key, value text,
                              xid xid8 default pg_current_xact_id());
    create function note_acquisition() returns trigger language plpgsql security definer as $f$
    begin
      if tg_op = 'INSERT' or new.token <> old.token then
        insert into public.commit_journal (resource, what, token)
        values (new.resource, 'acquired', new.token);
      end if;
      return null;
    end $f$;
    create trigger note_acquisition after insert or update on fencepost.lease
      for each row execute function note_acquisition();
    create function note_checkpoint() returns trigger language plpgsql security definer as $f$
    begin
      if new.status in ('stored', 'committed') then
        insert into public.commit_journal (resource, what, token)
        values (new.resource, 'committed', new.token);
      end if;
      return null;
    end $f$;
    create trigger note_checkpoint after insert or update on fencepost.checkpoint
      for each row execute function note_checkpoint();
    create function note_row() returns trigger language plpgsql security definer as $f$
    begin
      insert into public.row_journal (value) values (new.value);
      return null;
    end $f$;
    create trigger note_row after insert on effect for each row execute function note_row();
"""
ACQUIRED_AND_COMMITTED: LiteralString = (
    "select resource, what, token, xid::text from commit_journal order by id"
)
ROWS_WRITTEN: LiteralString = "select xid::text, value from row_journal order by id"


def of_commits(env: SystemEnvironment) -> dict[str, Trace]:
    """One history for each key group that wrote rows: by their places in what a run without faults gives."""
    rows: dict[str, list[str]] = {}
    for xid, value in env.rows(ROWS_WRITTEN):
        rows.setdefault(xid, []).append(value)
    events: dict[str, list[tuple[str, int, Sequence[str]]]] = {}
    keys: dict[str, set[str]] = {}
    for resource, what, token, xid in env.rows(ACQUIRED_AND_COMMITTED):
        # A checkpoint that is flagged in the transaction that stored it is one commit.
        written = rows.pop(xid, []) if what == "committed" else []
        if what == "acquired" or written:
            events.setdefault(resource, []).append((what, token, written))
        keys.setdefault(resource, set()).update(value.rpartition("-")[0] for value in written)
    assert not rows, f"rows without a checkpoint: {rows}"
    arrived = [key for (key,) in env.rows("select key from arrival order by id")]
    return {
        resource: commit_trace(events[resource], flows.undisturbed(key for key in arrived if key in own))
        for resource, own in sorted(keys.items())
        if own
    }


def commit_trace(events: Iterable[tuple[str, int, Sequence[str]]], expected: Sequence[str]) -> Trace:
    """`events` are (what, token, the values that were written)."""
    places = {value: place for place, value in enumerate(expected, 1)}
    return list(_commit_steps(events, places))


def _commit_steps(
    events: Iterable[tuple[str, int, Sequence[str]]], places: Mapping[str, int]
) -> Iterator[Step]:
    for what, token, values in events:
        if what == "acquired":
            yield "Acquire", token, token
            continue
        for value in values:
            yield "Process", token, places.get(value, 0)
        yield "Commit", token, places.get(values[-1], 0)
