---------------------------- MODULE OutboxTrace ----------------------------
(***************************************************************************)
(* What a torture recorded of the messages of one key, as behaviours of    *)
(* Outbox: how their rows came, were taken and went. One relay stands for  *)
(* all: what an older take still holds, it lets go of when the next begins. *)
(***************************************************************************)
EXTENDS Outbox, TLC, Recorded

VARIABLES which, line

Relay == 1

\* <<action, message, the take that was recorded>>
Step(name, m, n) ==
    CASE name = "Put" -> Put(m)
      [] name = "End" -> End(m, "committed")
      [] name = "Take" -> Take(Relay, m) /\ take'[m] = n
      [] name = "Send" -> mine[Relay] # <<>> /\ mine[Relay][1] = m /\ Send(Relay)
      [] name = "Settle" -> mine[Relay] = <<m, n>> /\ Settle(Relay)
      [] name = "Drop" -> Drop(Relay)

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
