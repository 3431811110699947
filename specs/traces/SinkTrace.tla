------------------------------ MODULE SinkTrace ------------------------------
(***************************************************************************)
(* What a torture recorded of one key group of a flow, as behaviours of    *)
(* Sink: the owners of its lease, and the records of each commit. A        *)
(* worker is one acquisition.                                              *)
(***************************************************************************)
EXTENDS Sink, TLC, Recorded

VARIABLES which, line

\* <<action, worker, the token or the record that was recorded>>
Step(name, w, n) ==
    CASE name = "Acquire" -> Acquire(w) /\ token' = n
      [] name = "Process" -> Process(w) /\ upto'[w] = n
      [] name = "Commit" -> Commit(w) /\ frontier' = n /\ from'[w] = n

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
