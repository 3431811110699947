------------------------------ MODULE Workflow ------------------------------
(***************************************************************************)
(* One workflow's life: kernel/functions/workflow*.sql on top of job*.sql. *)
(*                                                                         *)
(* A workflow is a job (Attempt.tla) whose steps are recorded. A worker    *)
(* reads what is recorded when it claims, and goes on behind it. It sleeps *)
(* and waits without a worker. The promises: each step's writes are        *)
(* committed once, with its record, by the attempt that runs; no wake-up   *)
(* is lost; and whatever ends it badly submits the undo of exactly the     *)
(* steps that were recorded. Waiting for children is waiting for an event: *)
(* the row of their batch is the lock.                                     *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
    Workers,
    NoOwner,
    AttemptMax,
    Programs,           \* what the code asks for, step by step
    StepFenced,         \* a step compares the attempt, and its fence keeps takeovers out
    RecordWithWrite,    \* a step's writes and its record are one commit
    RecordWithRelease,  \* a sleep is recorded in the transaction that gives the workflow back
    EventLocked,        \* awaiting and emitting take the same lock
    UndoWithEnd         \* the undo is submitted in the transaction that ends the workflow

VARIABLES
    program,
    state,      \* "waiting", "running", "finished", "dead"
    waits,      \* what a waiting one waits for: "none" is due
    attempt,
    owner,
    expired,
    recorded,   \* the number of steps that are recorded
    writes,     \* step -> how often its writes were committed
    emitted,    \* whether the event was emitted
    late,       \* whether the time for the event is over
    mine,       \* worker -> the attempt it works on, 0 for none
    known,      \* worker -> the steps that it has done or read
    tx,         \* worker -> "none", "fenced", "written"; "bare" and "released" only where a guard is off
    saw,        \* worker -> whether it looked for the event and found none; only where EventLocked is off
    undos,      \* undo jobs that were submitted
    undone,     \* undo jobs that are done, newest step first
    stale       \* whether a commit belonged to an attempt that did not run

vars == <<program, state, waits, attempt, owner, expired, recorded, writes, emitted, late, mine, known, tx, saw,
          undos, undone, stale>>
row == <<state, waits, attempt, owner, expired>>
truth == <<recorded, writes, undos, undone>>
event == <<emitted, late>>
worker == <<mine, known, tx, saw>>

Kinds == {"write", "reversible", "step", "sleep", "event"}
DefaultPrograms == {<<"reversible", "sleep", "write">>, <<"step", "event", "reversible">>}

Writes(kind) == kind \in {"write", "reversible"}
Reversible == Cardinality({i \in 1..recorded : program[i] = "reversible"})

TypeOK ==
    /\ program \in Seq(Kinds)
    /\ state \in {"waiting", "running", "finished", "dead"}
    /\ waits \in {"none", "time", "event"}
    /\ waits # "none" => state = "waiting"
    /\ attempt \in 0..AttemptMax
    /\ owner \in Workers \cup {NoOwner}
    /\ (owner = NoOwner) = (state # "running")
    /\ recorded \in 0..Len(program)
    /\ mine \in [Workers -> 0..AttemptMax]
    /\ known \in [Workers -> 0..Len(program)]
    /\ tx \in [Workers -> {"none", "fenced", "written"}]

Start ==
    /\ state = "waiting"
    /\ waits = "none"
    /\ attempt = 0
    /\ owner = NoOwner
    /\ expired = FALSE
    /\ recorded = 0
    /\ emitted = FALSE
    /\ late = FALSE
    /\ mine = [w \in Workers |-> 0]
    /\ known = [w \in Workers |-> 0]
    /\ tx = [w \in Workers |-> "none"]
    /\ saw = [w \in Workers |-> FALSE]
    /\ undos = 0
    /\ undone = 0
    /\ stale = FALSE

Init ==
    /\ program \in Programs
    /\ writes = [i \in 1..Len(program) |-> 0]
    /\ Start

Fenced == StepFenced /\ \E w \in Workers : tx[w] # "none" /\ mine[w] = attempt

\* The worker is at a step of this kind, and between two transactions.
At(w, kind) == mine[w] # 0 /\ tx[w] = "none" /\ known[w] < Len(program) /\ program[known[w] + 1] = kind

\* What the kernel asks of everything that the owner of a workflow does: attempt, owner and state.
Holds(w) == mine[w] = attempt /\ owner = w /\ state = "running"
May(w) == IF StepFenced THEN Holds(w) /\ ~expired ELSE state = "running"

\* One step more is recorded, once: the name is a key.
Recorded(w) ==
    /\ known[w] = recorded
    /\ recorded' = recorded + 1
    /\ stale' = (stale \/ ~Holds(w))
GoOn(w) == known' = [known EXCEPT ![w] = recorded + 1] /\ UNCHANGED mine

Leave(w) == mine' = [mine EXCEPT ![w] = 0] /\ known' = [known EXCEPT ![w] = 0]

\* Running to waiting. The fence of an open step is waited for.
GiveBack(for) ==
    /\ ~Fenced
    /\ state' = "waiting"
    /\ waits' = for
    /\ owner' = NoOwner
    /\ expired' = FALSE
    /\ UNCHANGED attempt

\* A worker claims what is due, and reads what is recorded.
Claim(w) ==
    /\ mine[w] = 0
    /\ state = "waiting" /\ waits = "none" /\ attempt < AttemptMax
    /\ state' = "running"
    /\ attempt' = attempt + 1
    /\ owner' = w
    /\ expired' = FALSE
    /\ mine' = [mine EXCEPT ![w] = attempt + 1]
    /\ known' = [known EXCEPT ![w] = recorded]
    /\ UNCHANGED <<program, waits, truth, event, tx, saw, stale>>

Expire ==
    /\ state = "running" /\ ~expired
    /\ expired' = TRUE
    /\ UNCHANGED <<program, state, waits, attempt, owner, truth, event, worker, stale>>

Reclaim ==
    /\ state = "running" /\ expired
    /\ GiveBack("none")
    /\ UNCHANGED <<program, truth, event, worker, stale>>

\* job_retry and job_release.
PutBack(w) ==
    /\ mine[w] # 0 /\ tx[w] = "none" /\ Holds(w)
    /\ GiveBack("none")
    /\ Leave(w)
    /\ UNCHANGED <<program, truth, event, tx, saw, stale>>

\* wf.transaction: job_fence, the step's own writes, and step_commit with the COMMIT.
Fence(w) ==
    /\ At(w, "write") \/ At(w, "reversible")
    /\ May(w)
    /\ tx' = [tx EXCEPT ![w] = "fenced"]
    /\ UNCHANGED <<program, row, truth, event, mine, known, saw, stale>>

Write(w) ==
    /\ tx[w] = "fenced"
    /\ tx' = [tx EXCEPT ![w] = "written"]
    /\ UNCHANGED <<program, row, truth, event, mine, known, saw, stale>>

Commit(w) ==
    /\ tx[w] = "written"
    /\ StepFenced => Holds(w)
    /\ writes' = [writes EXCEPT ![known[w] + 1] = @ + 1]
    /\ IF RecordWithWrite
       THEN /\ Recorded(w) /\ GoOn(w)
            /\ tx' = [tx EXCEPT ![w] = "none"]
       ELSE /\ tx' = [tx EXCEPT ![w] = "bare"]
            /\ UNCHANGED <<recorded, known, mine, stale>>
    /\ UNCHANGED <<program, row, event, saw, undos, undone>>

\* Where the record does not come with the writes, or the release: it comes later, or never.
RecordLater(w) ==
    /\ tx[w] \in {"bare", "released"}
    /\ tx[w] = "bare" => May(w)
    /\ Recorded(w)
    /\ tx' = [tx EXCEPT ![w] = "none"]
    /\ IF tx[w] = "released" THEN Leave(w) ELSE GoOn(w)
    /\ UNCHANGED <<program, row, writes, event, saw, undos, undone>>

\* wf.step: a result without writes, recorded with those of other workflows by one commit.
Record(w) ==
    /\ At(w, "step")
    /\ May(w)
    /\ Recorded(w) /\ GoOn(w)
    /\ UNCHANGED <<program, row, writes, event, tx, saw, undos, undone>>

\* workflow_sleep: the time is recorded, and the workflow is given back until then.
Sleep(w) ==
    /\ At(w, "sleep")
    /\ May(w)
    /\ GiveBack("time")
    /\ IF RecordWithRelease
       THEN /\ Recorded(w) /\ Leave(w)
            /\ UNCHANGED tx
       ELSE /\ tx' = [tx EXCEPT ![w] = "released"]
            /\ UNCHANGED <<recorded, known, mine, stale>>
    /\ UNCHANGED <<program, writes, event, saw, undos, undone>>

WakeUp ==
    /\ waits = "time"
    /\ waits' = "none"
    /\ UNCHANGED <<program, state, attempt, owner, expired, truth, event, worker, stale>>

\* Only where the event is looked for outside its lock.
Look(w) ==
    /\ ~EventLocked
    /\ At(w, "event") /\ May(w) /\ ~emitted
    /\ saw' = [saw EXCEPT ![w] = TRUE]
    /\ UNCHANGED <<program, row, truth, event, mine, known, tx, stale>>

\* event_await: the event, or that it did not come in time, is recorded; or the workflow waits for it.
Await(w) ==
    /\ At(w, "event")
    /\ May(w)
    /\ IF (emitted /\ ~saw[w]) \/ late
       THEN /\ Recorded(w) /\ GoOn(w)
            /\ UNCHANGED row
       ELSE /\ EventLocked \/ saw[w]
            /\ GiveBack("event") /\ Leave(w)
            /\ UNCHANGED <<recorded, stale>>
    /\ saw' = [saw EXCEPT ![w] = FALSE]
    /\ UNCHANGED <<program, writes, event, tx, undos, undone>>

\* event_emit, by any process: the first emission stays, and what waits is due.
Emit ==
    /\ ~emitted
    /\ emitted' = TRUE
    /\ waits' = IF waits = "event" THEN "none" ELSE waits
    /\ UNCHANGED <<program, state, attempt, owner, expired, truth, late, worker, stale>>

Deadline ==
    /\ ~late
    /\ late' = TRUE
    /\ waits' = IF waits = "event" THEN "none" ELSE waits
    /\ UNCHANGED <<program, state, attempt, owner, expired, truth, emitted, worker, stale>>

Finish(w) ==
    /\ mine[w] # 0 /\ tx[w] = "none" /\ known[w] = Len(program)
    /\ Holds(w) /\ ~expired /\ ~Fenced
    /\ state' = "finished"
    /\ owner' = NoOwner
    /\ expired' = FALSE
    /\ Leave(w)
    /\ UNCHANGED <<program, waits, attempt, truth, event, tx, saw, stale>>

\* Whatever ends it badly: its own code, a cancel while it waits, or the last try of a worker that is lost.
EndBadly ==
    /\ state' = "dead"
    /\ waits' = "none"
    /\ owner' = NoOwner
    /\ expired' = FALSE
    /\ undos' = IF UndoWithEnd THEN Reversible ELSE 0
    /\ UNCHANGED <<program, attempt, recorded, writes, event, undone, stale>>

Fail(w) ==
    /\ mine[w] # 0 /\ tx[w] = "none" /\ Holds(w) /\ ~Fenced
    /\ EndBadly
    /\ Leave(w)
    /\ UNCHANGED <<tx, saw>>

Cancel ==
    /\ state = "waiting"
    /\ EndBadly
    /\ UNCHANGED worker

ReclaimLast ==
    /\ state = "running" /\ expired /\ ~Fenced
    /\ EndBadly
    /\ UNCHANGED worker

\* Only where the undo does not come with the end: a process submits it afterwards, if it lives.
UndoLater ==
    /\ ~UndoWithEnd
    /\ state = "dead" /\ undos = 0
    /\ undos' = Reversible
    /\ UNCHANGED <<program, row, recorded, writes, undone, event, worker, stale>>

\* An undo job ends and calls the next.
Undo ==
    /\ undone < undos
    /\ undone' = undone + 1
    /\ UNCHANGED <<program, row, recorded, writes, undos, event, worker, stale>>

\* The process dies, or its transaction is refused or ended: its writes are gone with it.
Lose(w) ==
    /\ mine[w] # 0
    /\ Leave(w)
    /\ tx' = [tx EXCEPT ![w] = "none"]
    /\ saw' = [saw EXCEPT ![w] = FALSE]
    /\ UNCHANGED <<program, row, truth, event, stale>>

Work(w) == Fence(w) \/ Write(w) \/ Commit(w) \/ Record(w) \/ Sleep(w) \/ Await(w) \/ Finish(w)

Next ==
    \/ Expire \/ Reclaim \/ ReclaimLast \/ WakeUp \/ Emit \/ Deadline \/ Cancel \/ UndoLater \/ Undo
    \/ \E w \in Workers :
        \/ Claim(w) \/ PutBack(w) \/ Fence(w) \/ Write(w) \/ Commit(w) \/ RecordLater(w) \/ Record(w)
        \/ Sleep(w) \/ Look(w) \/ Await(w) \/ Finish(w) \/ Fail(w) \/ Lose(w)

\* Time passes and the loops go on; a worker that lives goes on, and one that lost the workflow leaves it. Attempts are bounded here, so
\* weak fairness is enough.
Fairness ==
    /\ WF_vars(Reclaim) /\ WF_vars(Expire) /\ WF_vars(WakeUp) /\ WF_vars(Deadline) /\ WF_vars(Undo)
    /\ WF_vars(\E w \in Workers : Claim(w)) /\ WF_vars(\E w \in Workers : Work(w))
    /\ WF_vars(\E w \in Workers : Lose(w) /\ ~Holds(w))

Spec == Init /\ [][Next]_vars /\ Fairness

WritesOnce == \A i \in 1..Len(program) : writes[i] <= 1
\* What is recorded was written, and what was written is recorded.
WritesWithRecord == \A i \in 1..Len(program) : writes[i] = IF Writes(program[i]) /\ i <= recorded THEN 1 ELSE 0
NothingStale == ~stale
NoLostWakeUp == ~(waits = "event" /\ emitted)
\* What ended badly has the undo of every recorded step, what did not has none.
UndoneOnce == undone <= undos /\ undos = (IF state = "dead" THEN Reversible ELSE 0)

\* Attempts are bounded here, so it ends, or has spent all of them.
Ends == <>(state = "finished" \/ (state = "dead" /\ undone = undos) \/ attempt = AttemptMax)
=============================================================================
