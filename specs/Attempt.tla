------------------------------ MODULE Attempt ------------------------------
(***************************************************************************)
(* One job's life: kernel/functions/job*.sql and packages/fencepost/src/fencepost/jobs/.      *)
(*                                                                         *)
(* The truth is one row, waiting or running or finished. The stream only   *)
(* drives: entries may be lost, doubled, and acknowledged by any process.  *)
(* Workers may be paused, killed, and come back from the dead. The         *)
(* promises: one finishing write; a commit belongs to the attempt that     *)
(* runs; and the job ends, whatever the stream has lost.                   *)
(***************************************************************************)
EXTENDS Naturals

CONSTANTS
    Workers,
    NoOwner,
    AttemptMax,
    EntryMax,
    ClaimDecides,     \* no claim, no execution
    FinishFenced,   \* the finish compares the attempt
    FenceLocks,     \* job_fence keeps the running row until the transaction ends
    AckAfter,       \* acknowledged after the commit
    Sweeps          \* what the truth calls waiting and the stream does not hold is driven again

VARIABLES
    state,      \* "waiting", "running", "finished"
    attempt,    \* the number of the last acquisition
    owner,
    expired,
    entries,    \* entries of the job in the stream
    mine,       \* worker -> the attempt it works on, 0 for none
    tx,         \* worker -> "none", "fenced", "written"
    finishes,   \* finishing writes that were committed
    stale       \* whether a commit belonged to an attempt that did not run

vars == <<state, attempt, owner, expired, entries, mine, tx, finishes, stale>>

TypeOK ==
    /\ state \in {"waiting", "running", "finished"}
    /\ attempt \in 0..AttemptMax
    /\ owner \in Workers \cup {NoOwner}
    /\ (owner = NoOwner) = (state # "running")
    /\ expired \in BOOLEAN
    /\ entries \in 0..EntryMax
    /\ mine \in [Workers -> 0..AttemptMax]
    /\ tx \in [Workers -> {"none", "fenced", "written"}]

Init ==
    /\ state = "waiting"
    /\ attempt = 0
    /\ owner = NoOwner
    /\ expired = FALSE
    /\ entries = 0
    /\ mine = [w \in Workers |-> 0]
    /\ tx = [w \in Workers |-> "none"]
    /\ finishes = 0
    /\ stale = FALSE

Fenced == FenceLocks /\ \E w \in Workers : tx[w] # "none" /\ mine[w] = attempt

\* The dispatcher, or the stream reconciler after a loss. A crash after XADD and before the commit doubles an entry.
Dispatch ==
    /\ state = "waiting"
    /\ entries < EntryMax
    /\ Sweeps \/ (attempt = 0 /\ entries = 0)
    /\ entries' = entries + 1
    /\ UNCHANGED <<state, attempt, owner, expired, mine, tx, finishes, stale>>

\* Redis is wiped, trimmed, or a zombie acknowledges what is not its own.
LoseEntries ==
    /\ entries > 0
    /\ entries' = 0
    /\ UNCHANGED <<state, attempt, owner, expired, mine, tx, finishes, stale>>

\* A worker reads an entry and claims. Only a claim that succeeds lets it execute.
Claim(w) ==
    /\ mine[w] = 0 /\ entries > 0
    /\ IF state = "waiting" /\ attempt < AttemptMax
       THEN /\ state' = "running"
            /\ attempt' = attempt + 1
            /\ owner' = w
            /\ expired' = FALSE
            /\ mine' = [mine EXCEPT ![w] = attempt + 1]
            /\ entries' = IF AckAfter THEN entries ELSE entries - 1
            /\ UNCHANGED <<tx, finishes, stale>>
       ELSE IF ClaimDecides
       THEN \* Refused: the entry is acknowledged with its reason, and nothing runs.
            /\ state # "waiting"
            /\ entries' = entries - 1
            /\ UNCHANGED <<state, attempt, owner, expired, mine, tx, finishes, stale>>
       ELSE /\ state = "running"
            /\ mine' = [mine EXCEPT ![w] = attempt]
            /\ UNCHANGED <<state, attempt, owner, expired, entries, tx, finishes, stale>>

Expire ==
    /\ state = "running" /\ ~expired
    /\ expired' = TRUE
    /\ UNCHANGED <<state, attempt, owner, entries, mine, tx, finishes, stale>>

\* FOR UPDATE SKIP LOCKED: a row that is fenced is left for later. Putting back mints no attempt.
Reclaim ==
    /\ state = "running" /\ expired /\ ~Fenced
    /\ state' = "waiting"
    /\ owner' = NoOwner
    /\ expired' = FALSE
    /\ UNCHANGED <<attempt, entries, mine, tx, finishes, stale>>

\* job_retry and job_release: the owner puts its own attempt back. An open fence of it is waited for.
PutBack(w) ==
    /\ mine[w] # 0 /\ tx[w] = "none"
    /\ state = "running" /\ ~Fenced
    /\ FinishFenced => (mine[w] = attempt /\ owner = w)
    /\ state' = "waiting"
    /\ owner' = NoOwner
    /\ expired' = FALSE
    /\ stale' = (stale \/ mine[w] # attempt \/ owner # w)
    /\ mine' = [mine EXCEPT ![w] = 0]
    /\ UNCHANGED <<attempt, entries, tx, finishes>>

\* job_fence: attempt, owner, state and expiry, and the row lock.
Fence(w) ==
    /\ mine[w] # 0 /\ tx[w] = "none"
    /\ state = "running"
    /\ FinishFenced => (mine[w] = attempt /\ owner = w)
    /\ ~expired
    /\ tx' = [tx EXCEPT ![w] = "fenced"]
    /\ UNCHANGED <<state, attempt, owner, expired, entries, mine, finishes, stale>>

Write(w) ==
    /\ tx[w] = "fenced"
    /\ tx' = [tx EXCEPT ![w] = "written"]
    /\ UNCHANGED <<state, attempt, owner, expired, entries, mine, finishes, stale>>

\* job_finish and COMMIT: attempt and state are compared again, the expiry is not.
Finish(w) ==
    /\ tx[w] = "written"
    /\ state = "running"
    /\ FinishFenced => (mine[w] = attempt /\ owner = w)
    /\ state' = "finished"
    /\ owner' = NoOwner
    /\ expired' = FALSE
    /\ finishes' = finishes + 1
    /\ stale' = (stale \/ mine[w] # attempt \/ owner # w)
    /\ mine' = [mine EXCEPT ![w] = 0]
    /\ tx' = [tx EXCEPT ![w] = "none"]
    /\ UNCHANGED <<attempt, entries>>

\* The finish is refused, the session is ended, or the process dies: its writes are gone with it.
Lose(w) ==
    /\ mine[w] # 0
    /\ mine' = [mine EXCEPT ![w] = 0]
    /\ tx' = [tx EXCEPT ![w] = "none"]
    /\ UNCHANGED <<state, attempt, owner, expired, entries, finishes, stale>>

Next ==
    \/ Dispatch \/ LoseEntries \/ Expire \/ Reclaim
    \/ \E w \in Workers : Claim(w) \/ PutBack(w) \/ Fence(w) \/ Write(w) \/ Finish(w) \/ Lose(w)

\* Time passes and the loops go on; a worker that neither dies nor is stopped ends its job. A session is not paused for ever: it is
\* ended by its idle time, or evicted.
Fairness ==
    /\ WF_vars(Dispatch) /\ WF_vars(Reclaim) /\ WF_vars(Expire)
    /\ \A w \in Workers : SF_vars(Claim(w)) /\ WF_vars(Fence(w)) /\ WF_vars(Write(w)) /\ SF_vars(Finish(w))
    /\ \A w \in Workers : WF_vars(Lose(w) /\ (state # "running" \/ expired \/ mine[w] # attempt))

Spec == Init /\ [][Next]_vars /\ Fairness

OneFinish == finishes <= 1 /\ (state = "finished") = (finishes = 1)
NothingStale == ~stale
NotLost == state # "finished" => (state = "running" \/ entries > 0 \/ ENABLED Dispatch)

\* Tries are bounded, so it ends as finished or with all of them spent.
Ends == <>(state = "finished" \/ attempt = AttemptMax)
=============================================================================
