-------------------------------- MODULE Sink --------------------------------
(***************************************************************************)
(* A stream into a sink that holds its own frontier.                       *)
(*                                                                         *)
(* Workers read records after the frontier that they restored, and commit  *)
(* rows, state and the new frontier in one fenced transaction; then they   *)
(* acknowledge. They may be paused, killed, and taken over from. The       *)
(* promise: the output is every record up to the frontier, each once, and  *)
(* nothing that was acknowledged is missing.                               *)
(***************************************************************************)
EXTENDS Naturals, Sequences

CONSTANTS
    Workers,
    NoOwner,
    Records,        \* how many there are
    TokenMax,
    Fences,         \* the commit compares the lease's token
    FrontierMoves,  \* the commit compares the frontier that it started from
    AckAfter        \* acknowledged after the commit

VARIABLES
    owner, token,   \* the lease of this key group
    held,           \* worker -> its token, 0 for none
    from,           \* worker -> the frontier from which it reads
    upto,           \* worker -> the last record that it has processed
    frontier,       \* in the sink
    output,         \* rows in the sink
    acked           \* what the source has forgotten

vars == <<owner, token, held, from, upto, frontier, output, acked>>

Init ==
    /\ owner = NoOwner /\ token = 0
    /\ held = [w \in Workers |-> 0]
    /\ from = [w \in Workers |-> 0]
    /\ upto = [w \in Workers |-> 0]
    /\ frontier = 0
    /\ output = <<>>
    /\ acked = 0

\* The lease is free, or has expired: the new owner restores the sink's frontier.
Acquire(w) ==
    /\ token < TokenMax
    /\ token' = token + 1
    /\ owner' = w
    /\ held' = [held EXCEPT ![w] = token + 1]
    /\ from' = [from EXCEPT ![w] = frontier]
    /\ upto' = [upto EXCEPT ![w] = frontier]
    /\ UNCHANGED <<frontier, output, acked>>

Process(w) ==
    /\ held[w] # 0 /\ upto[w] < Records
    /\ upto[w] >= acked \/ ~AckAfter
    /\ upto' = [upto EXCEPT ![w] = @ + 1]
    /\ acked' = IF AckAfter THEN acked ELSE IF upto[w] + 1 > acked THEN upto[w] + 1 ELSE acked
    /\ UNCHANGED <<owner, token, held, from, frontier, output>>

Rows(w) == [i \in 1..(upto[w] - from[w]) |-> from[w] + i]

Commit(w) ==
    /\ held[w] # 0 /\ upto[w] > from[w]
    /\ Fences => held[w] = token
    /\ FrontierMoves => frontier = from[w]
    /\ output' = output \o Rows(w)
    /\ frontier' = upto[w]
    \* The reply arrives, or is lost: then the worker tries the same commit again.
    /\ from' \in {from, [from EXCEPT ![w] = upto[w]]}
    /\ UNCHANGED <<owner, token, held, upto, acked>>

\* Only what is committed: a crash before it reads the same again.
Ack(w) ==
    /\ AckAfter /\ held[w] # 0
    /\ from[w] > acked /\ from[w] <= frontier
    /\ acked' = from[w]
    /\ UNCHANGED <<owner, token, held, from, upto, frontier, output>>

Crash(w) ==
    /\ held[w] # 0
    /\ held' = [held EXCEPT ![w] = 0]
    /\ from' = [from EXCEPT ![w] = 0]
    /\ upto' = [upto EXCEPT ![w] = 0]
    /\ UNCHANGED <<owner, token, frontier, output, acked>>

Next == \E w \in Workers : Acquire(w) \/ Process(w) \/ Commit(w) \/ Ack(w) \/ Crash(w)

Spec == Init /\ [][Next]_vars

ExactlyOnce == output = [i \in 1..Len(output) |-> i] /\ Len(output) = frontier
\* What the source has forgotten is in the sink.
NothingLost == acked <= frontier
=============================================================================
