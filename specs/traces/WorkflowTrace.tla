--------------------------- MODULE WorkflowTrace ---------------------------
(***************************************************************************)
(* The lives of workflows that a torture recorded, as behaviours of        *)
(* Workflow. A worker is one attempt. The first lines of a trace are its   *)
(* program: the kinds of its steps, in the order in which they were        *)
(* recorded. A park that waits for children is a PutBack.                  *)
(***************************************************************************)
EXTENDS Workflow, TLC, Recorded

VARIABLES which, line

KindOf == <<"write", "reversible", "step", "sleep", "event">>

Plan(kind) ==
    /\ program' = Append(program, KindOf[kind])
    /\ writes' = Append(writes, 0)
    /\ UNCHANGED <<row, recorded, undos, undone, event, worker, stale>>

\* <<action, worker, a number that was recorded: the attempt, the steps so far, or the undo jobs>>
Step(name, w, n) ==
    CASE name = "Claim" -> Claim(w) /\ attempt' = n
      [] name = "Expire" -> Expire
      [] name = "Reclaim" -> Reclaim
      [] name = "PutBack" -> PutBack(w)
      [] name = "Fence" -> Fence(w)
      [] name = "Write" -> Write(w)
      [] name = "Commit" -> Commit(w) /\ recorded' = n
      [] name = "Record" -> Record(w) /\ recorded' = n
      [] name = "Sleep" -> Sleep(w) /\ recorded' = n
      [] name = "WakeUp" -> WakeUp
      [] name = "Await" -> Await(w) /\ recorded' = n
      [] name = "Emit" -> Emit
      [] name = "Deadline" -> Deadline
      [] name = "Finish" -> Finish(w)
      [] name = "Fail" -> Fail(w) /\ undos' = n
      [] name = "Cancel" -> Cancel /\ undos' = n
      [] name = "ReclaimLast" -> ReclaimLast /\ undos' = n
      [] name = "Undo" -> Undo /\ undone' = n

TraceInit == program = <<>> /\ writes = <<>> /\ Start /\ which \in 1..Len(Traces) /\ line = 1

Over == line > Len(Traces[which])

TraceNext ==
    /\ UNCHANGED which
    /\ \/ /\ ~Over
          /\ LET e == Traces[which][line] IN IF e[1] = "Plan" THEN Plan(e[3]) ELSE Step(e[1], e[2], e[3])
          /\ line' = line + 1
       \/ /\ Over
          /\ line = Len(Traces[which]) + 1 => PrintT(<<"accepted", which>>)
          /\ line' = Len(Traces[which]) + 2
          /\ UNCHANGED vars
=============================================================================
