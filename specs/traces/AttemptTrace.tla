---------------------------- MODULE AttemptTrace ----------------------------
(***************************************************************************)
(* The lives of jobs that a torture recorded, as behaviours of Attempt. A  *)
(* worker is one attempt. The stream is not recorded: a worker that claims *)
(* had an entry, or none was needed.                                       *)
(***************************************************************************)
EXTENDS Attempt, Sequences, TLC, Recorded

VARIABLES which, line

\* <<action, worker, the attempt that was recorded>>
Step(name, w, n) ==
    CASE name = "Dispatch" -> Dispatch
      [] name = "LoseEntries" -> LoseEntries
      [] name = "Claim" -> Claim(w) /\ attempt' = n
      [] name = "Expire" -> Expire
      [] name = "Reclaim" -> Reclaim
      [] name = "PutBack" -> PutBack(w)
      [] name = "Fence" -> Fence(w) /\ attempt = n
      [] name = "Write" -> Write(w)
      [] name = "Finish" -> Finish(w) /\ attempt = n
      [] name = "Lose" -> Lose(w)

TraceInit == Init /\ which \in 1..Len(Traces) /\ line = 1

Over == line > Len(Traces[which])

TraceNext ==
    /\ UNCHANGED which
    /\ \/ /\ ~Over
          /\ LET e == Traces[which][line] IN Step(e[1], e[2], e[3])
          /\ line' = line + 1
       \/ /\ Over
          /\ line = Len(Traces[which]) + 1 => PrintT(<<"accepted", which>>)
          /\ line' = Len(Traces[which]) + 2
          /\ UNCHANGED vars
=============================================================================
