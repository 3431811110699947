------------------------------- MODULE Lease -------------------------------
(***************************************************************************)
(* One lease and its fence: kernel/functions/lease.sql.                    *)
(*                                                                         *)
(* A worker acquires the lease, opens a transaction, fences, writes and    *)
(* commits. Between any two steps it may be paused for as long as it likes *)
(* and the lease may expire; it does not notice. The promise: nothing is   *)
(* committed under a token that is not the lease's token at that moment.   *)
(*                                                                         *)
(* Time is not modelled: a lease that is held may expire at any moment.    *)
(***************************************************************************)
EXTENDS Naturals

CONSTANTS
    Workers,
    NoOwner,
    TokenMax,
    FenceLocks,     \* lease_fence keeps a row lock that a takeover waits for
    FenceChecks,    \* lease_fence compares the token with the lease's own
    TokenGrows      \* every acquisition takes the next token

ASSUME NoOwner \notin Workers

VARIABLES
    owner,      \* the worker that holds the lease, or NoOwner
    token,      \* the token of the last acquisition
    expired,    \* whether the lease's time is over
    held,       \* worker -> the token it believes in, 0 for none
    tx,         \* worker -> "none", "open" (fenced), "written"
    stale       \* whether a commit ever happened under a token that was not the lease's

vars == <<owner, token, expired, held, tx, stale>>

TypeOK ==
    /\ owner \in Workers \cup {NoOwner}
    /\ token \in 0..TokenMax
    /\ expired \in BOOLEAN
    /\ held \in [Workers -> 0..TokenMax]
    /\ tx \in [Workers -> {"none", "open", "written"}]
    /\ stale \in BOOLEAN

Init ==
    /\ owner = NoOwner
    /\ token = 0
    /\ expired = FALSE
    /\ held = [w \in Workers |-> 0]
    /\ tx = [w \in Workers |-> "none"]
    /\ stale = FALSE

\* FOR KEY SHARE conflicts with an update of the token, which is part of a unique key.
Fenced == FenceLocks /\ \E w \in Workers : tx[w] # "none"

Acquire(w) ==
    /\ tx[w] = "none"
    /\ owner = NoOwner \/ expired
    /\ ~Fenced
    /\ token < TokenMax
    /\ token' = IF TokenGrows \/ token = 0 THEN token + 1 ELSE token
    /\ owner' = w
    /\ expired' = FALSE
    /\ held' = [held EXCEPT ![w] = token']
    /\ UNCHANGED <<tx, stale>>

\* A renewal changes no key column, so it passes the holder's own fence.
Renew(w) ==
    /\ owner = w /\ held[w] = token /\ ~expired
    /\ UNCHANGED vars

\* An expired lease can be released too: it says that the holder is gone and has no successor yet.
Release(w) ==
    /\ tx[w] = "none"
    /\ owner = w /\ held[w] = token
    /\ owner' = NoOwner
    /\ held' = [held EXCEPT ![w] = 0]
    /\ UNCHANGED <<token, expired, tx, stale>>

Expire ==
    /\ owner # NoOwner /\ ~expired
    /\ expired' = TRUE
    /\ UNCHANGED <<owner, token, held, tx, stale>>

\* First statement of the transaction. Refused unless all of it holds.
Fence(w) ==
    /\ tx[w] = "none" /\ held[w] # 0
    /\ FenceChecks => held[w] = token /\ owner # NoOwner
    /\ ~expired
    /\ tx' = [tx EXCEPT ![w] = "open"]
    /\ UNCHANGED <<owner, token, expired, held, stale>>

Write(w) ==
    /\ tx[w] = "open"
    /\ tx' = [tx EXCEPT ![w] = "written"]
    /\ UNCHANGED <<owner, token, expired, held, stale>>

Commit(w) ==
    /\ tx[w] = "written"
    /\ tx' = [tx EXCEPT ![w] = "none"]
    /\ stale' = (stale \/ held[w] # token)
    /\ UNCHANGED <<owner, token, expired, held>>

\* The session ends: by its own idle time, by a waiter past the expiry, or because the process was killed.
\* Its transaction is rolled back.
Evict(w) ==
    /\ tx[w] # "none"
    /\ tx' = [tx EXCEPT ![w] = "none"]
    /\ UNCHANGED <<owner, token, expired, held, stale>>

\* A worker that starts again has forgotten everything.
Crash(w) ==
    /\ held[w] # 0
    /\ tx' = [tx EXCEPT ![w] = "none"]
    /\ held' = [held EXCEPT ![w] = 0]
    /\ UNCHANGED <<owner, token, expired, stale>>

Next ==
    \/ Expire
    \/ \E w \in Workers :
        \/ Acquire(w) \/ Renew(w) \/ Release(w)
        \/ Fence(w) \/ Write(w) \/ Commit(w)
        \/ Evict(w) \/ Crash(w)

\* A worker that waits for a paused holder evicts it, and takes over.
Fairness == \A w \in Workers : WF_vars(Evict(w) /\ expired) /\ WF_vars(Acquire(w))

Spec == Init /\ [][Next]_vars /\ Fairness

NothingStale == ~stale
TokensGrow == [][token' >= token /\ (owner' \notin {owner, NoOwner} => token' > token)]_vars

\* A paused holder does not block for ever.
TakenOver == (expired /\ token < TokenMax) ~> (~expired \/ token = TokenMax)
=============================================================================
