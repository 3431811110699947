------------------------------- MODULE Outbox -------------------------------
(***************************************************************************)
(* Messages of one ordering key: kernel/functions/outbox*.sql.             *)
(*                                                                         *)
(* Two writers put messages in transactions of their own; relays take,     *)
(* send and settle, and may be paused or killed in between. The promises:  *)
(* every committed message is delivered, none is overtaken by a later one  *)
(* of its key, and only the take that is current settles.                  *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
    Messages,       \* each is put by a transaction of its own
    Relays,
    NoOwner,
    TakeMax,
    PutLocks,       \* a keyed put takes the key's lock before its id
    TakeHeads,      \* only the lowest unsettled message of a key is taken
    SettleFenced    \* settling compares the take's number

VARIABLES
    next,       \* the next id of the sequence
    id,         \* message -> its id, 0 before
    put,        \* message -> "none", "open", "committed", "gone"
    keyLock,    \* the message whose transaction holds the key's lock, or NoOwner
    status,     \* message -> "queued", "sending", "sent"
    take,       \* message -> how often it was taken
    mine,       \* relay -> <<message, take>> or <<>>
    sent,       \* the order of first deliveries, as ids in the order of commits
    commits,    \* messages in the order of their commits
    stale       \* whether a take that was over settled

vars == <<next, id, put, keyLock, status, take, mine, sent, commits, stale>>

Init ==
    /\ next = 1
    /\ id = [m \in Messages |-> 0]
    /\ put = [m \in Messages |-> "none"]
    /\ keyLock = NoOwner
    /\ status = [m \in Messages |-> "queued"]
    /\ take = [m \in Messages |-> 0]
    /\ mine = [r \in Relays |-> <<>>]
    /\ sent = <<>>
    /\ commits = <<>>
    /\ stale = FALSE

Put(m) ==
    /\ put[m] = "none"
    /\ PutLocks => keyLock = NoOwner
    /\ keyLock' = IF PutLocks THEN m ELSE keyLock
    /\ id' = [id EXCEPT ![m] = next]
    /\ next' = next + 1
    /\ put' = [put EXCEPT ![m] = "open"]
    /\ UNCHANGED <<status, take, mine, sent, commits, stale>>

End(m, how) ==
    /\ put[m] = "open"
    /\ put' = [put EXCEPT ![m] = how]
    /\ keyLock' = IF keyLock = m THEN NoOwner ELSE keyLock
    /\ commits' = IF how = "committed" THEN Append(commits, m) ELSE commits
    /\ UNCHANGED <<next, id, status, take, mine, sent, stale>>

Visible == {m \in Messages : put[m] = "committed"}
Unsettled == {m \in Visible : status[m] # "sent"}
IsHead(m) == \A other \in Unsettled : id[m] <= id[other]

\* A take whose lease is over may be taken again, under the next number.
Take(r, m) ==
    /\ mine[r] = <<>>
    /\ m \in Unsettled
    /\ TakeHeads => IsHead(m)
    /\ take[m] < TakeMax
    /\ take' = [take EXCEPT ![m] = @ + 1]
    /\ status' = [status EXCEPT ![m] = "sending"]
    /\ mine' = [mine EXCEPT ![r] = <<m, take[m] + 1>>]
    /\ UNCHANGED <<next, id, put, keyLock, sent, commits, stale>>

Has(s, m) == \E i \in 1..Len(s) : s[i] = m

\* The other side sees the message; a second delivery carries the same id, and does not count.
Send(r) ==
    /\ mine[r] # <<>>
    /\ LET m == mine[r][1] IN sent' = IF Has(sent, m) THEN sent ELSE Append(sent, m)
    /\ UNCHANGED <<next, id, put, keyLock, status, take, mine, commits, stale>>

Settle(r) ==
    /\ mine[r] # <<>>
    /\ LET m == mine[r][1] IN
        /\ Has(sent, m)
        /\ status[m] = "sending"
        /\ SettleFenced => mine[r][2] = take[m]
        /\ stale' = (stale \/ mine[r][2] # take[m])
        /\ status' = [status EXCEPT ![m] = "sent"]
    /\ mine' = [mine EXCEPT ![r] = <<>>]
    /\ UNCHANGED <<next, id, put, keyLock, take, sent, commits>>

\* Refused, or killed.
Drop(r) ==
    /\ mine[r] # <<>>
    /\ mine' = [mine EXCEPT ![r] = <<>>]
    /\ UNCHANGED <<next, id, put, keyLock, status, take, sent, commits, stale>>

Next ==
    \/ \E m \in Messages : Put(m) \/ End(m, "committed") \/ End(m, "gone")
    \/ \E r \in Relays : Send(r) \/ Settle(r) \/ Drop(r) \/ \E m \in Messages : Take(r, m)

Spec == Init /\ [][Next]_vars

\* What was delivered, was delivered in the order in which it was committed.
InOrder == \A i, j \in 1..Len(sent) : i < j =>
    \E a, b \in 1..Len(commits) : a < b /\ commits[a] = sent[i] /\ commits[b] = sent[j]
OnlyCommitted == \A i \in 1..Len(sent) : put[sent[i]] = "committed"
NothingStale == ~stale
SentWasDelivered == \A m \in Messages : status[m] = "sent" => Has(sent, m)
=============================================================================
