------------------------------- MODULE IdempotencyKey -------------------------------
(***************************************************************************)
(* One request that must take effect once: kernel/functions/idempotency.sql.    *)
(*                                                                         *)
(* Clients send the same request as often as they like, at once and one    *)
(* after another; each try is one transaction that may be rolled back at   *)
(* any step, and whose reply may be lost after the commit. The promise:    *)
(* the effect commits at most once, and every answer that a client gets is  *)
(* the result of that one effect.                                          *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets

CONSTANTS
    Clients,
    TriesMax,
    ClaimFirst,     \* the key is written before the effect, in its transaction
    OneTransaction  \* key and effect commit together

VARIABLES
    key,     \* the committed key: 0, or the try that made it
    lock,       \* the client whose open transaction holds the advisory lock on (scope, key)
    tx,         \* client -> "none", "claimed", "written"
    effects,    \* committed effects
    answers,    \* tries whose results clients were told
    tries       \* client -> how often it has tried

vars == <<key, lock, tx, effects, answers, tries>>

Init ==
    /\ key = 0
    /\ lock = {}
    /\ tx = [c \in Clients |-> "none"]
    /\ effects = 0
    /\ answers = {}
    /\ tries = [c \in Clients |-> 0]

\* claim answers "claimed": no key is committed, and no transaction is open on it.
Claim(c) ==
    /\ tx[c] = "none" /\ tries[c] < TriesMax
    /\ ClaimFirst => key = 0
    /\ lock = {}
    /\ tries' = [tries EXCEPT ![c] = @ + 1]
    /\ tx' = [tx EXCEPT ![c] = "claimed"]
    /\ lock' = {c}
    /\ UNCHANGED <<key, effects, answers>>

\* claim answers "in_flight" at once: the client comes again.
InFlight(c) ==
    /\ tx[c] = "none" /\ tries[c] < TriesMax
    /\ lock # {}
    /\ tries' = [tries EXCEPT ![c] = @ + 1]
    /\ UNCHANGED <<key, lock, tx, effects, answers>>

\* claim answers "replay", with the stored response.
Replay(c) ==
    /\ tx[c] = "none" /\ tries[c] < TriesMax
    /\ key # 0
    /\ tries' = [tries EXCEPT ![c] = @ + 1]
    /\ answers' = answers \cup {key}
    /\ UNCHANGED <<key, lock, tx, effects>>

Write(c) ==
    /\ tx[c] = "claimed"
    /\ tx' = [tx EXCEPT ![c] = "written"]
    \* Without one transaction the effect is there at once.
    /\ effects' = IF OneTransaction THEN effects ELSE effects + 1
    /\ UNCHANGED <<key, lock, answers, tries>>

\* The unique key refuses a second key.
Commit(c) ==
    /\ tx[c] = "written"
    /\ ClaimFirst => key = 0
    /\ key' = IF key = 0 THEN effects + 1 ELSE key
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
    /\ UNCHANGED <<key, effects, answers, tries>>

Next == \E c \in Clients :
    Claim(c) \/ InFlight(c) \/ Replay(c) \/ Write(c) \/ Commit(c) \/ RollBack(c)

Spec == Init /\ [][Next]_vars

AtMostOnce == effects <= 1
OneAnswer == Cardinality(answers) <= 1
KeyMeansEffect == OneTransaction => (key # 0) = (effects # 0)
=============================================================================
