------------------------------- MODULE Marker -------------------------------
(***************************************************************************)
(* One request that must take effect once: kernel/functions/idempotency.sql.    *)
(*                                                                         *)
(* Clients send the same request as often as they like, at once and one    *)
(* after another; each try is one transaction that may be rolled back at   *)
(* any step, and whose reply may be lost after the commit. The promise:    *)
(* the effect commits at most once, and whoever is answered is answered    *)
(* with the result of that one effect.                                     *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets

CONSTANTS
    Clients,
    TriesMax,
    ClaimFirst,     \* the marker is written before the effect, in its transaction
    OneTransaction  \* marker and effect commit together

VARIABLES
    marker,     \* the committed marker: 0, or the try that made it
    lock,       \* the client whose open transaction holds the advisory lock on (scope, key)
    tx,         \* client -> "none", "claimed", "written"
    effects,    \* committed effects
    answers,    \* tries whose results clients were told
    tries       \* client -> how often it has tried

vars == <<marker, lock, tx, effects, answers, tries>>

Init ==
    /\ marker = 0
    /\ lock = {}
    /\ tx = [c \in Clients |-> "none"]
    /\ effects = 0
    /\ answers = {}
    /\ tries = [c \in Clients |-> 0]

\* claim answers "claimed": no marker is committed, and nobody is at it.
Claim(c) ==
    /\ tx[c] = "none" /\ tries[c] < TriesMax
    /\ ClaimFirst => marker = 0
    /\ lock = {}
    /\ tries' = [tries EXCEPT ![c] = @ + 1]
    /\ tx' = [tx EXCEPT ![c] = "claimed"]
    /\ lock' = {c}
    /\ UNCHANGED <<marker, effects, answers>>

\* claim answers "in_flight" at once: the client comes again.
InFlight(c) ==
    /\ tx[c] = "none" /\ tries[c] < TriesMax
    /\ lock # {}
    /\ tries' = [tries EXCEPT ![c] = @ + 1]
    /\ UNCHANGED <<marker, lock, tx, effects, answers>>

\* claim answers "replay", with the stored response.
Replay(c) ==
    /\ tx[c] = "none" /\ tries[c] < TriesMax
    /\ marker # 0
    /\ tries' = [tries EXCEPT ![c] = @ + 1]
    /\ answers' = answers \cup {marker}
    /\ UNCHANGED <<marker, lock, tx, effects>>

Write(c) ==
    /\ tx[c] = "claimed"
    /\ tx' = [tx EXCEPT ![c] = "written"]
    \* Without one transaction the effect is there at once.
    /\ effects' = IF OneTransaction THEN effects ELSE effects + 1
    /\ UNCHANGED <<marker, lock, answers, tries>>

\* The unique key refuses a second marker.
Commit(c) ==
    /\ tx[c] = "written"
    /\ ClaimFirst => marker = 0
    /\ marker' = IF marker = 0 THEN effects + 1 ELSE marker
    /\ effects' = IF OneTransaction THEN effects + 1 ELSE effects
    /\ tx' = [tx EXCEPT ![c] = "none"]
    /\ lock' = lock \ {c}
    \* The reply arrives, or is lost.
    /\ \/ answers' = answers \cup {effects + 1}
       \/ UNCHANGED answers
    /\ UNCHANGED tries

RollBack(c) ==
    /\ tx[c] # "none"
    /\ tx' = [tx EXCEPT ![c] = "none"]
    /\ lock' = lock \ {c}
    /\ UNCHANGED <<marker, effects, answers, tries>>

Next == \E c \in Clients :
    Claim(c) \/ InFlight(c) \/ Replay(c) \/ Write(c) \/ Commit(c) \/ RollBack(c)

Spec == Init /\ [][Next]_vars

AtMostOnce == effects <= 1
OneAnswer == Cardinality(answers) <= 1
MarkerMeansEffect == OneTransaction => (marker # 0) = (effects # 0)
=============================================================================
