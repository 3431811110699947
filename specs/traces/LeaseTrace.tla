----------------------------- MODULE LeaseTrace -----------------------------
(***************************************************************************)
(* Histories that a torture recorded, as behaviours of Lease. Every line   *)
(* of a history is one action of the specification, or a refusal that the  *)
(* specification must give too. A history that cannot go on is a deadlock. *)
(***************************************************************************)
EXTENDS Lease, Sequences, TLC, Recorded

VARIABLES which, line

\* <<action, worker, the token that was answered>>
Step(name, w, n) ==
    CASE name = "Acquire" -> Acquire(w) /\ token' = n
      [] name = "Renew" -> Renew(w) /\ token = n
      [] name = "Release" -> Release(w)
      [] name = "Expire" -> Expire
      [] name = "Fence" -> Fence(w) /\ token = n
      [] name = "Write" -> Write(w)
      [] name = "Commit" -> Commit(w)
      [] name = "Acquire refused" -> owner \notin {w, NoOwner} /\ UNCHANGED vars
      [] name = "Fence refused" -> ~(ENABLED Fence(w)) /\ UNCHANGED vars
      [] name = "Release refused" -> ~(ENABLED Release(w)) /\ UNCHANGED vars

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
