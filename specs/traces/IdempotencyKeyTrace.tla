----------------------------- MODULE IdempotencyKeyTrace -----------------------------
(***************************************************************************)
(* Requests that a torture recorded, as behaviours of IdempotencyKey: the      *)
(* recorded effects, and what every copy of the request was answered.      *)
(***************************************************************************)
EXTENDS IdempotencyKey, Sequences, TLC, Recorded

VARIABLES which, line

\* <<action, client, which of the request's answers it was told>>
Step(name, c, n) ==
    CASE name = "Claim" -> Claim(c)
      [] name = "InFlight" -> InFlight(c)
      [] name = "Write" -> Write(c)
      [] name = "Commit" -> Commit(c) /\ key' = n
      [] name = "Replay" -> Replay(c) /\ key = n
      [] name = "RollBack" -> RollBack(c)

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
