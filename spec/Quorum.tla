------------------------------- MODULE Quorum -------------------------------
(***************************************************************************)
(* A lock made of several members, each of which grants it by itself: an   *)
(* owner that a majority of members granted the lock has it. Members crash *)
(* and come back empty.                                                    *)
(*                                                                         *)
(* Time is counted in ticks, as in Lock.tla. A client calls its members in *)
(* any order, and any number of ticks passes between two calls: that       *)
(* stands for slow, lost and reordered messages. Clocks do not drift here, *)
(* so there is no margin: Lock.tla shows what it is for.                   *)
(*                                                                         *)
(* README.md names the Go function behind every action.                    *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
  Members, Clients,
  TTL,         \* how long a member keeps a lock, in ticks
  MaxCrashes, MaxToken,  \* the bounds of the search
  Mutation     \* the mistake that this run makes; "none" for the right protocol

Mutated(m)  == Mutation = m
Max(a, b)   == IF a > b THEN a ELSE b
Minus(a, b) == IF a > b THEN a - b ELSE 0
None        == "none"

VARIABLES
  member,   \* by member: the owner of its lock, what is left of it, its last token, and how long it is still away
  client,   \* by client: its attempt or its lock
  crashes,  \* how many members have crashed
  top,      \* the largest token of a lock so far
  disorder  \* a lock had no larger token than an earlier one

vars == <<member, client, crashes, top, disorder>>

\* votes: by member, the token with which it granted the attempt, or 0. token: the token of the attempt.
\* stored: the members that have stored that token. renewed: the members that have renewed the lock.
\* age: the time since the attempt or the renewal began. trust: what is left of the trust.
NoVotes == [m \in Members |-> 0]
NoLock  == [state |-> "idle", votes |-> NoVotes, token |-> 0, stored |-> {}, renewed |-> {}, age |-> 0, trust |-> 0]

Init ==
  /\ member = [m \in Members |-> [owner |-> None, left |-> 0, token |-> 0, away |-> 0]]
  /\ client = [c \in Clients |-> NoLock]
  /\ crashes = 0
  /\ top = 0
  /\ disorder = FALSE

Needed == IF Mutated("half is enough") THEN Cardinality(Members) \div 2 ELSE Cardinality(Members) \div 2 + 1
Majority(S) == Cardinality(S) >= Needed

Up(m)      == member[m].away = 0
HeldBy(m, c) == member[m].left > 0 /\ member[m].owner = c

\* A client makes a new attempt when all members have forgotten its last one. In Go every attempt has an owner of
\* its own instead.
Vote(c) ==
  /\ client[c].state = "idle"
  /\ \A m \in Members : ~HeldBy(m, c)
  /\ client' = [client EXCEPT ![c] = [NoLock EXCEPT !.state = "voting"]]
  /\ UNCHANGED <<member, crashes, top, disorder>>

\* One member grants its lock if it is free, with its next token.
Ask(c, m) ==
  /\ client[c].state = "voting" /\ client[c].token = 0 /\ client[c].votes[m] = 0
  /\ Up(m) /\ member[m].left = 0 /\ member[m].token < MaxToken
  /\ member' = [member EXCEPT ![m].owner = c, ![m].left = TTL, ![m].token = @ + 1]
  /\ client' = [client EXCEPT ![c].votes[m] = member[m].token + 1]
  /\ UNCHANGED <<crashes, top, disorder>>

\* The first majority decides the token: the largest that one of its members would give.
Count(c) ==
  LET votes == client[c].votes
      majority == {m \in Members : votes[m] # 0}
      token == CHOOSE t \in {votes[m] : m \in majority} : \A m \in majority : votes[m] <= t
  IN
  /\ client[c].state = "voting" /\ client[c].token = 0 /\ Majority(majority)
  /\ client' = [client EXCEPT ![c].token = token, ![c].stored = {m \in majority : votes[m] = token}]
  /\ UNCHANGED <<member, crashes, top, disorder>>

\* A member with a smaller token stores this one.
Raise(c, m) ==
  LET token == client[c].token IN
  /\ client[c].state = "voting" /\ token # 0 /\ m \notin client[c].stored
  /\ Up(m) /\ HeldBy(m, c)
  /\ member' = [member EXCEPT ![m].token = Max(@, token)]
  /\ client' = [client EXCEPT ![c].stored = @ \union {m}]
  /\ UNCHANGED <<crashes, top, disorder>>

\* The lock is granted when a majority has stored its token, unless the votes took too long.
Granted(c) ==
  LET token == client[c].token
      trust == IF Mutated("trust counted from the last vote") THEN TTL ELSE Minus(TTL, client[c].age)
  IN
  /\ client[c].state = "voting" /\ token # 0
  /\ Majority(client[c].stored) \/ Mutated("token is not written back")
  /\ trust > 0
  /\ client' = [client EXCEPT ![c] = [NoLock EXCEPT !.state = "holding", !.token = token, !.trust = trust]]
  /\ top' = Max(top, token)
  /\ disorder' = (disorder \/ token <= top)
  /\ UNCHANGED <<member, crashes>>

\* An attempt fails, or a lock is released or lost. What members still hold is released by and by, or expires.
End(c) ==
  /\ client[c].state # "idle"
  /\ client' = [client EXCEPT ![c] = NoLock]
  /\ UNCHANGED <<member, crashes, top, disorder>>

Release(c, m) ==
  /\ client[c].state = "idle"
  /\ Up(m) /\ HeldBy(m, c)
  /\ member' = [member EXCEPT ![m].left = 0, ![m].owner = None]
  /\ UNCHANGED <<client, crashes, top, disorder>>

\* A renewal begins. A majority renews a lock, counted from here.
Renew(c) ==
  /\ client[c].state = "holding" /\ client[c].trust > 0
  /\ client' = [client EXCEPT ![c].renewed = {}, ![c].age = 0]
  /\ UNCHANGED <<member, crashes, top, disorder>>

RenewAt(c, m) ==
  /\ client[c].state = "holding" /\ client[c].trust > 0 /\ m \notin client[c].renewed
  /\ Up(m) /\ HeldBy(m, c)
  /\ member' = [member EXCEPT ![m].left = TTL]
  /\ client' = [client EXCEPT ![c].renewed = @ \union {m}]
  /\ UNCHANGED <<crashes, top, disorder>>

Renewed(c) ==
  /\ client[c].state = "holding" /\ client[c].trust > 0 /\ Majority(client[c].renewed)
  /\ client' = [client EXCEPT ![c].trust = Max(@, Minus(TTL, client[c].age)), ![c].renewed = {}, ![c].age = 0]
  /\ UNCHANGED <<member, crashes, top, disorder>>

\* A member that lost the lock gets it again, but only while a majority renews it.
Repair(c, m) ==
  /\ client[c].state = "holding" /\ client[c].trust > 0
  /\ Majority(client[c].renewed)
  /\ Up(m) /\ member[m].left = 0 /\ member[m].token < MaxToken
  /\ member' = [member EXCEPT ![m].owner = c, ![m].left = TTL, ![m].token = Max(@ + 1, client[c].token)]
  /\ UNCHANGED <<client, crashes, top, disorder>>

\* A member crashes and forgets everything. With a delayed restart it stays away until all that it forgot has expired.
Away == IF Mutated("no delayed restart") THEN 0 ELSE TTL

Crash(m) ==
  /\ Up(m) /\ crashes < MaxCrashes
  /\ crashes' = crashes + 1
  /\ member' = [member EXCEPT ![m] = [owner |-> None, left |-> 0, token |-> 0, away |-> Away]]
  /\ UNCHANGED <<client, top, disorder>>

Tick ==
  /\ member' = [m \in Members |->
       LET left == Minus(member[m].left, 1) IN
       [member[m] EXCEPT !.left = left, !.away = Minus(@, 1), !.owner = IF left = 0 THEN None ELSE @]]
  /\ client' = [c \in Clients |->
       IF client[c].state = "idle" THEN client[c]
       ELSE [client[c] EXCEPT !.trust = Minus(@, 1), !.age = IF @ < TTL THEN @ + 1 ELSE TTL]]
  /\ UNCHANGED <<crashes, top, disorder>>

Next ==
  \/ \E c \in Clients :
       \/ Vote(c) \/ Count(c) \/ Granted(c) \/ End(c) \/ Renew(c) \/ Renewed(c)
       \/ \E m \in Members : Ask(c, m) \/ Raise(c, m) \/ Release(c, m) \/ RenewAt(c, m) \/ Repair(c, m)
  \/ \E m \in Members : Crash(m)
  \/ Tick

Spec == Init /\ [][Next]_vars

\* At most one client trusts that it holds the lock.
Trusts(c) == client[c].state = "holding" /\ client[c].trust > 0
OneHolder == Cardinality({c \in Clients : Trusts(c)}) <= 1

\* Every lock has a larger token than all locks before. This needs members that remember.
TokensRise == ~disorder

Symmetry == {f @@ g : f \in Permutations(Members), g \in Permutations(Clients)}
=============================================================================
