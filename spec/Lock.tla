-------------------------------- MODULE Lock --------------------------------
(***************************************************************************)
(* The lock of one name: processes with clocks that drift, callers that    *)
(* queue inside each process, a store that grants, renews, expires and     *)
(* releases, a network that loses, delays, repeats and reorders messages,  *)
(* and a resource that checks the token.                                   *)
(*                                                                         *)
(* Time is counted in ticks of the store's clock, and only as what is left *)
(* of something: what is left of the TTL in the store, of the trust in a   *)
(* process. So the same state is the same state at any hour.               *)
(*                                                                         *)
(* A pause needs no action of its own. No action of a process is urgent:   *)
(* any number of ticks can pass before each of them.                       *)
(*                                                                         *)
(* README.md names the Go function behind every action.                    *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
  Processes,    \* a process is the set of its callers: {{a1, a2}, {b1}}
  TTL,          \* how long the store keeps a lock, in ticks
  Margin,       \* by how much the trust of a process is shorter
  Speeds,       \* by how many ticks a clock may move in one tick of the store: {0, 1, 2}
  Steady,       \* ticks between two deviations of a clock; 0: a clock may always deviate
  Span,         \* how many tokens a grant has
  MayCrash,     \* the processes that may crash
  MayGiveUp,    \* whether a waiter may give up
  Renews,       \* whether holders renew
  Writes,       \* whether holders write to the resource
  Prompt,       \* whether calls are made and answered within a tick, or never, and nothing is repeated
  MaxOwners, MaxRequests,  \* the bounds of the search
  MaxGrants,    \* the same; 0: tokens are not counted, and the search has no end
  Mutation      \* the mistake that this run makes; "none" for the right protocol

None      == "none"
Callers   == UNION Processes
Owners    == 1..MaxOwners
Home(c)   == CHOOSE p \in Processes : c \in p
Max(a, b) == IF a > b THEN a ELSE b
Minus(a, b) == IF a > b THEN a - b ELSE 0
Mutated(m)  == Mutation = m

VARIABLES
  lock,      \* the store's record of the lock
  grants,    \* how many grants the store has made
  last,      \* the last token that the store has given out
  requests,  \* the requests on their way to the store
  call,      \* by caller: its call to the store, and the answer that is on its way back
  queue,     \* by process: the callers that wait, first come, first served
  slot,      \* by process: the caller that competes for the lock or holds it
  handed,    \* by process: the lock that a caller has left to the next one
  hold,      \* by caller: its acquisition
  writing,   \* by caller: the hold with which it is about to write, after its check
  steady,    \* by process: the ticks since its clock deviated
  resource,  \* the hold that wrote last, and the largest token
  seen       \* what the invariants remember: the largest token of a lease, and mistakes

vars == <<lock, grants, last, requests, call, queue, slot, handed, hold, writing, steady, resource, seen>>

Free == [owner |-> 0, grant |-> 0, first |-> 0, left |-> 0]

\* grant is the number of the grant, which no process knows: the invariants compare it with tokens.
NoCall == [kind |-> None, age |-> 0, answer |-> None, grant |-> 0, first |-> 0]
NoHold == [state |-> "idle", owner |-> 0, grant |-> 0, first |-> 0, token |-> 0, trust |-> 0]

Init ==
  /\ lock = Free
  /\ grants = 0
  /\ last = 0
  /\ requests = {}
  /\ call = [c \in Callers |-> NoCall]
  /\ queue = [p \in Processes |-> <<>>]
  /\ slot = [p \in Processes |-> None]
  /\ handed = [p \in Processes |-> NoHold]
  /\ hold = [c \in Callers |-> NoHold]
  /\ writing = [c \in Callers |-> NoHold]
  /\ steady = [p \in Processes |-> Steady]
  /\ resource = [grant |-> 0, token |-> 0]
  /\ seen = [token |-> 0, disorder |-> FALSE, back |-> FALSE]

(***************************************************************************)
(* The network. A call has one request, and an age: the time since it was  *)
(* made, on the clock of its process. A caller makes one call at a time,   *)
(* and does not wait for the answer to an earlier one. The request of an   *)
(* earlier call, which timed out, may still reach the store.               *)
(***************************************************************************)
Request(kind, owner, first) ==
  [kind |-> kind, owner |-> owner, first |-> first, awaited |-> kind # "release", late |-> FALSE]

\* A network that is full loses the next request.
Send(sent, m) == requests' = IF Cardinality(sent) < MaxRequests THEN sent \union {m} ELSE sent

\* A prompt network delivers a request once. Another one may deliver it again at any later time, without an answer.
Delivered(m) == requests' = (requests \ {m}) \union (IF Prompt THEN {} ELSE {[m EXCEPT !.awaited = FALSE]})

\* The store answers the call that m belongs to.
Answer(m, answer, grant, first) ==
  call' = [c \in Callers |->
    IF m.awaited /\ hold[c].owner = m.owner /\ call[c].kind = m.kind
    THEN [call[c] EXCEPT !.answer = answer, !.grant = grant, !.first = first] ELSE call[c]]

\* The requests, when the caller with that owner does not wait for an answer any more.
Unawaited(owner) == {IF m.owner = owner THEN [m EXCEPT !.awaited = FALSE] ELSE m : m \in requests}

\* Owners are random and never used twice. The model uses a number again when no trace of it is left.
UsedOwners == {lock.owner} \union {m.owner : m \in requests}
              \union {hold[c].owner : c \in Callers} \union {handed[p].owner : p \in Processes}
NewOwners == Owners \ UsedOwners
NewOwner  == CHOOSE o \in NewOwners : \A other \in NewOwners : o <= other

\* An attempt that waits for the release of the lock, which the store would refuse now.
Held == lock.left > 0
Waits(m) == m.kind = "acquire" /\ Held /\ lock.owner # m.owner

\* In a prompt network a waiter asks again at once, so that a refused attempt is never missing.
Lose ==
  /\ \E m \in requests : (Prompt => ~Waits(m)) /\ requests' = requests \ {m}
  /\ UNCHANGED <<lock, grants, last, call, queue, slot, handed, hold, writing, steady, resource, seen>>

\* The caller does not wait for the answer any longer. In a prompt network the request or the answer is lost.
Timeout(c) ==
  /\ call[c].kind # None
  /\ Prompt => \A m \in requests : m.owner = hold[c].owner => ~m.awaited
  /\ call' = [call EXCEPT ![c] = NoCall]
  /\ requests' = Unawaited(hold[c].owner)
  /\ UNCHANGED <<lock, grants, last, queue, slot, handed, hold, writing, steady, resource, seen>>

(***************************************************************************)
(* The store. Each action is one atomic step of the server.                *)
(***************************************************************************)
Counted   == MaxGrants > 0
NextToken == IF ~Counted \/ Mutated("tokens start again") THEN 1 ELSE last + 1

Grant(m) ==
  /\ Counted => grants < MaxGrants
  /\ grants' = IF Counted THEN grants + 1 ELSE 0
  /\ last' = CASE ~Counted -> 0
               [] Mutated("span overlaps the next grant") -> NextToken
               [] OTHER -> NextToken + Span - 1
  /\ lock' = [owner |-> m.owner, grant |-> grants', first |-> NextToken, left |-> TTL]
  /\ Answer(m, "granted", grants', NextToken)

\* The owner that has the lock gets the same tokens again. A refusal changes nothing: the caller asks again.
StoreAcquire(owner) == \E m \in requests :
  /\ m.kind = "acquire" /\ m.owner = owner
  /\ \/ ~Held /\ Grant(m)
     \/ /\ Held /\ lock.owner = m.owner
        /\ lock' = [lock EXCEPT !.left = TTL]
        /\ Answer(m, "granted", lock.grant, lock.first)
        /\ UNCHANGED <<grants, last>>
  /\ Delivered(m)
  /\ UNCHANGED <<queue, slot, handed, hold, writing, steady, resource, seen>>

StoreRenew == \E m \in requests :
  /\ m.kind = "renew"
  /\ \/ /\ Held /\ lock.owner = m.owner
        /\ lock' = [lock EXCEPT !.left =
             IF Mutated("late renewal shortens") /\ m.late THEN TTL - 1 ELSE TTL]
        /\ Answer(m, "renewed", 0, 0)
     \/ /\ ~(Held /\ lock.owner = m.owner)
        /\ IF Mutated("late renewal takes the lock")
           THEN /\ lock' = [owner |-> m.owner, grant |-> 0, first |-> 0, left |-> TTL]
                /\ Answer(m, "renewed", 0, 0)
           ELSE /\ Answer(m, "not held", 0, 0)
                /\ UNCHANGED lock
  /\ Delivered(m)
  /\ UNCHANGED <<grants, last, queue, slot, handed, hold, writing, steady, resource, seen>>

\* first is the token of the grant; zero undoes an attempt of unknown outcome.
StoreRelease == \E m \in requests :
  /\ m.kind = "release"
  /\ lock' = IF \/ Mutated("release by name")
                \/ lock.owner = m.owner /\ m.first \in {0, lock.first}
             THEN Free ELSE lock
  /\ Delivered(m)
  /\ UNCHANGED <<grants, last, call, queue, slot, handed, hold, writing, steady, resource, seen>>

(***************************************************************************)
(* Locking.                                                                *)
(***************************************************************************)
NetworkUnchanged == UNCHANGED <<requests, call>>
StoreUnchanged   == UNCHANGED <<lock, grants, last>>
WorldUnchanged   == UNCHANGED <<steady, resource>>

\* The caller enters the slot of its process if it is free, otherwise the queue.
Lock(c) ==
  LET p == Home(c) IN
  /\ hold[c].state = "idle"
  /\ IF slot[p] = None
     THEN /\ hold' = [hold EXCEPT ![c].state = "asking"]
          /\ slot' = [slot EXCEPT ![p] = c]
          /\ UNCHANGED queue
     ELSE /\ hold' = [hold EXCEPT ![c].state = "queued"]
          /\ queue' = [queue EXCEPT ![p] = Append(@, c)]
          /\ UNCHANGED slot
  /\ UNCHANGED <<handed, writing, seen>>
  /\ NetworkUnchanged /\ StoreUnchanged /\ WorldUnchanged

\* The hold of c becomes h, c leaves the slot, and the first waiter of the process enters it.
LeaveSlot(c, h) ==
  LET p == Home(c) IN
  IF queue[p] = <<>>
  THEN /\ hold' = [hold EXCEPT ![c] = h]
       /\ slot' = [slot EXCEPT ![p] = None]
       /\ UNCHANGED queue
  ELSE /\ hold' = [hold EXCEPT ![c] = h, ![Head(queue[p])].state = "asking"]
       /\ slot' = [slot EXCEPT ![p] = Head(queue[p])]
       /\ queue' = [queue EXCEPT ![p] = Tail(@)]

\* The first attempt and every further one have the same owner.
Attempt(c) ==
  LET owner == IF hold[c].owner # 0 THEN hold[c].owner ELSE NewOwner IN
  /\ hold[c].state = "asking" /\ handed[Home(c)] = NoHold /\ call[c] = NoCall
  /\ hold[c].owner # 0 \/ NewOwners # {}
  /\ hold' = [hold EXCEPT ![c].owner = owner]
  /\ call' = [call EXCEPT ![c].kind = "acquire"]
  /\ Send(requests, Request("acquire", owner, 0))
  /\ UNCHANGED <<queue, slot, handed, writing, seen>>
  /\ StoreUnchanged /\ WorldUnchanged

\* What is left of the trust in a grant or a renewal: the TTL and the margin count from when the call was sent.
Promise == IF Mutated("no margin") THEN TTL ELSE TTL - Margin
TrustAfter(age) == IF Mutated("trust counted from the answer") THEN Promise ELSE Minus(Promise, age)

\* A lease begins: every lease has a larger token than all that began before.
Begin(token) == seen' = IF Counted
  THEN [seen EXCEPT !.token = Max(@, token), !.disorder = @ \/ token <= seen.token] ELSE seen

\* A grant that arrives after its trust deadline is rejected, and the caller asks again.
Accept(c) ==
  LET a == call[c]
      trust == TrustAfter(a.age)
  IN
  /\ a.answer = "granted"
  /\ call' = [call EXCEPT ![c] = NoCall]
  /\ IF trust > 0
     THEN /\ hold' = [hold EXCEPT ![c] = [state |-> "holding", owner |-> @.owner, grant |-> a.grant,
                                          first |-> a.first, token |-> a.first, trust |-> trust]]
          /\ Begin(a.first)
     ELSE UNCHANGED <<hold, seen>>
  /\ UNCHANGED <<requests, queue, slot, handed, writing>>
  /\ StoreUnchanged /\ WorldUnchanged

\* A waiter gives up. An attempt of unknown outcome is undone.
Abandon(c) ==
  LET owner == hold[c].owner IN
  /\ MayGiveUp
  /\ hold[c].state = "asking" /\ handed[Home(c)] = NoHold
  /\ IF owner = 0 THEN UNCHANGED requests ELSE Send(Unawaited(owner), Request("release", owner, 0))
  /\ call' = [call EXCEPT ![c] = NoCall]
  /\ LeaveSlot(c, NoHold)
  /\ UNCHANGED <<handed, writing, seen>>
  /\ StoreUnchanged /\ WorldUnchanged

(***************************************************************************)
(* Holding: the watchdog, and the work under the lock.                     *)
(***************************************************************************)

\* A caller trusts its lock while the context of its lease is not done. The context reads the clock.
Trusts(c) == hold[c].state = "holding" /\ hold[c].trust > 0

Renew(c) ==
  /\ Renews /\ hold[c].state = "holding" /\ call[c] = NoCall
  /\ call' = [call EXCEPT ![c].kind = "renew"]
  /\ Send(requests, Request("renew", hold[c].owner, 0))
  /\ UNCHANGED <<queue, slot, handed, hold, writing, seen>>
  /\ StoreUnchanged /\ WorldUnchanged

\* An answer after the trust deadline does not revive the hold: another caller may have had the lock meanwhile.
Renewed(c) ==
  /\ call[c].answer = "renewed"
  /\ hold[c].trust > 0 \/ Mutated("late answer revives the hold")
  /\ call' = [call EXCEPT ![c] = NoCall]
  /\ hold' = [hold EXCEPT ![c].trust = TrustAfter(call[c].age)]
  /\ UNCHANGED <<requests, queue, slot, handed, writing, seen>>
  /\ StoreUnchanged /\ WorldUnchanged

\* The hold ends, and its caller leaves the slot. The caller itself may not have noticed it yet.
Lost(c) ==
  /\ LET h == [hold[c] EXCEPT !.state = "lost", !.trust = 0] IN
     IF Mutated("a lost hold keeps the slot")
     THEN hold' = [hold EXCEPT ![c] = h] /\ UNCHANGED <<slot, queue>>
     ELSE LeaveSlot(c, h)
  /\ call' = [call EXCEPT ![c] = NoCall]
  /\ requests' = Unawaited(hold[c].owner)
  /\ UNCHANGED <<handed, writing, seen>>
  /\ StoreUnchanged /\ WorldUnchanged

NotHeld(c) == call[c].answer = "not held" /\ Lost(c)

Expire(c) == hold[c].state = "holding" /\ hold[c].trust = 0 /\ Lost(c)

\* The caller checks the context of its lease. It may be paused before it writes.
Check(c) ==
  /\ Writes /\ Trusts(c) /\ writing[c] = NoHold
  /\ writing' = [writing EXCEPT ![c] = hold[c]]
  /\ UNCHANGED <<queue, slot, handed, hold, seen>>
  /\ NetworkUnchanged /\ StoreUnchanged /\ WorldUnchanged

\* The resource compares and writes in one step. It has gone back if a hold writes after a later one.
Write(c) ==
  LET w == writing[c]
      accepted == w.token >= resource.token \/ Mutated("no fence")
      earlier  == w.grant < resource.grant \/ (w.grant = resource.grant /\ w.token < resource.token)
  IN
  /\ w # NoHold
  /\ writing' = [writing EXCEPT ![c] = NoHold]
  /\ IF accepted
     THEN /\ resource' = [grant |-> w.grant, token |-> w.token]
          /\ seen' = [seen EXCEPT !.back = @ \/ earlier]
     ELSE UNCHANGED <<resource, seen>>
  /\ UNCHANGED <<queue, slot, handed, hold, steady>>
  /\ NetworkUnchanged /\ StoreUnchanged

(***************************************************************************)
(* Unlocking. The lock is handed over to the next waiter of the process,   *)
(* or released in the store. A process may always decide to release: its   *)
(* time slice may be over.                                                 *)
(***************************************************************************)
MayHandOver(c) ==
  /\ Trusts(c) /\ queue[Home(c)] # <<>>
  /\ hold[c].token - hold[c].first + 1 < Span

HandOver(c) ==
  LET p == Home(c)
      next == Head(queue[p])
      h == hold[c]
  IN
  /\ h.state = "holding" /\ writing[c] = NoHold
  /\ MayHandOver(c)
  /\ handed' = [handed EXCEPT ![p] = [h EXCEPT !.token = @ + 1]]
  /\ slot' = [slot EXCEPT ![p] = next]
  /\ queue' = [queue EXCEPT ![p] = Tail(@)]
  /\ hold' = [hold EXCEPT ![c] = NoHold, ![next].state = "asking"]
  /\ call' = [call EXCEPT ![c] = NoCall]
  /\ requests' = Unawaited(h.owner)
  /\ UNCHANGED <<writing, seen>>
  /\ StoreUnchanged /\ WorldUnchanged

\* The next caller takes the lock, unless its trust ended during the hand-over. Then it gives up the grant,
\* and asks with another owner: to the old one the store would return tokens that other leases have had.
TakeHandedOver(c) ==
  LET p == Home(c)
      h == handed[p]
      trust == IF Mutated("hand-over renews the trust") THEN TrustAfter(0) ELSE h.trust
  IN
  /\ slot[p] = c /\ h # NoHold
  /\ handed' = [handed EXCEPT ![p] = NoHold]
  /\ IF trust > 0
     THEN /\ hold' = [hold EXCEPT ![c] = [h EXCEPT !.trust = trust]]
          /\ Begin(h.token)
          /\ UNCHANGED requests
     ELSE IF Mutated("the owner asks again after a hand-over")
     THEN /\ hold' = [hold EXCEPT ![c].owner = h.owner]
          /\ UNCHANGED <<requests, seen>>
     ELSE /\ Send(requests, Request("release", h.owner, h.first))
          /\ UNCHANGED <<hold, seen>>
  /\ UNCHANGED <<call, queue, slot, writing>>
  /\ StoreUnchanged /\ WorldUnchanged

ReleaseToStore(c) ==
  /\ hold[c].state = "holding" /\ writing[c] = NoHold
  /\ Send(Unawaited(hold[c].owner), Request("release", hold[c].owner, hold[c].first))
  /\ call' = [call EXCEPT ![c] = NoCall]
  /\ LeaveSlot(c, NoHold)
  /\ UNCHANGED <<handed, writing, seen>>
  /\ StoreUnchanged /\ WorldUnchanged

\* Unlock of a lease that was lost: the store may still count the lock as held.
UnlockLost(c) ==
  /\ hold[c].state = "lost" /\ writing[c] = NoHold
  /\ Send(requests, Request("release", hold[c].owner, hold[c].first))
  /\ hold' = [hold EXCEPT ![c] = NoHold]
  /\ UNCHANGED <<call, queue, slot, handed, writing, seen>>
  /\ StoreUnchanged /\ WorldUnchanged

(***************************************************************************)
(* The world: crashes, and time.                                           *)
(***************************************************************************)

\* A process crashes. Its requests are still on their way.
Crash(p) ==
  /\ p \in MayCrash
  /\ \E c \in p : hold[c].state # "dead"
  /\ hold' = [c \in Callers |-> IF c \in p THEN [NoHold EXCEPT !.state = "dead"] ELSE hold[c]]
  /\ writing' = [c \in Callers |-> IF c \in p THEN NoHold ELSE writing[c]]
  /\ queue' = [queue EXCEPT ![p] = <<>>]
  /\ slot' = [slot EXCEPT ![p] = None]
  /\ handed' = [handed EXCEPT ![p] = NoHold]
  /\ call' = [c \in Callers |-> IF c \in p THEN NoCall ELSE call[c]]
  /\ UNCHANGED <<requests, seen>>
  /\ StoreUnchanged /\ WorldUnchanged

\* A clock usually moves by one tick. It may deviate, but not again within Steady ticks.
Moves(p) == IF steady[p] >= Steady THEN Speeds ELSE {1}

\* Nothing is left to do before the next tick: no call has to be made, no request can be carried out, and no
\* answer is on its way. A call does not get older then: a waiter that is refused asks anew in every tick.
NothingToDo ==
  /\ \A c \in Callers : hold[c].state = "asking" => call[c].kind # None
  /\ \A c \in Callers : call[c].answer = None
  /\ \A m \in requests : Waits(m)

Tick ==
  /\ Prompt => NothingToDo
  /\ \E move \in [Processes -> Speeds] :
     /\ \A p \in Processes : move[p] \in Moves(p)
     /\ lock' = LET passed == IF Mutated("expiry by the clients' clocks")
                              THEN CHOOSE most \in {move[p] : p \in Processes} : \A p \in Processes : move[p] <= most
                              ELSE 1
                    left == IF Mutated("no expiry") THEN lock.left ELSE Minus(lock.left, passed)
                IN IF left = 0 THEN Free ELSE [lock EXCEPT !.left = left]
     /\ hold' = [c \in Callers |-> [hold[c] EXCEPT !.trust = Minus(@, move[Home(c)])]]
     /\ handed' = [p \in Processes |-> [handed[p] EXCEPT !.trust = Minus(@, move[p])]]
     /\ call' = [c \in Callers |-> IF call[c].kind = None \/ Prompt THEN call[c]
          ELSE [call[c] EXCEPT !.age = LET age == @ + move[Home(c)] IN IF age > Promise THEN Promise ELSE age]]
     /\ requests' = {[m EXCEPT !.late = Mutated("late renewal shortens")] : m \in requests}
     /\ steady' = [p \in Processes |->
          IF move[p] # 1 THEN 0 ELSE IF steady[p] < Steady THEN steady[p] + 1 ELSE Steady]
  /\ UNCHANGED <<grants, last, queue, slot, writing, resource, seen>>

Next ==
  \/ Tick \/ Lose \/ StoreRenew \/ StoreRelease
  \/ \E owner \in Owners : StoreAcquire(owner)
  \/ \E c \in Callers :
       \/ Lock(c) \/ Attempt(c) \/ Accept(c) \/ Timeout(c) \/ Abandon(c)
       \/ Renew(c) \/ Renewed(c) \/ NotHeld(c) \/ Expire(c) \/ Check(c) \/ Write(c)
       \/ HandOver(c) \/ TakeHandedOver(c) \/ ReleaseToStore(c) \/ UnlockLost(c)
  \/ \E p \in Processes : Crash(p)

Spec == Init /\ [][Next]_vars

(***************************************************************************)
(* Fairness: time goes on, the store works, and callers do their part. A   *)
(* caller may lose any number of requests and answers, and may find that   *)
(* another caller was faster any number of times, but a call that can be   *)
(* served again and again is served some day.                              *)
(***************************************************************************)
Grants(c)    == (\E owner \in Owners : StoreAcquire(owner)) /\ call[c].answer = None /\ call'[c].answer = "granted"
StoreWorks   == StoreRenew \/ StoreRelease \/ \E owner \in Owners : StoreAcquire(owner)
GoesOn(c)    == \/ Attempt(c) \/ Timeout(c) \/ TakeHandedOver(c)
                \/ Expire(c) \/ HandOver(c) \/ ReleaseToStore(c) \/ UnlockLost(c)

Fairness ==
  /\ SF_vars(Tick)
  /\ WF_vars(StoreWorks)
  /\ \A c \in Callers : WF_vars(GoesOn(c)) /\ SF_vars(Grants(c)) /\ SF_vars(Accept(c))

FairSpec == Spec /\ Fairness

(***************************************************************************)
(* What has to hold.                                                       *)
(***************************************************************************)

\* At most one caller trusts that it holds the lock.
OneHolder == Cardinality({c \in Callers : Trusts(c)}) <= 1

\* The lock that a caller trusts is the one that the store has granted last, and still keeps.
TrustedIsHeld == \A c \in Callers : Trusts(c) =>
                   Held /\ lock.owner = hold[c].owner /\ lock.grant = hold[c].grant

\* Every lease has a larger token than all leases that began before.
TokensRise == ~seen.disorder

\* The resource accepts no write of a hold after the write of a later one.
NeverBack == ~seen.back

\* A caller that waits is served, unless its process crashes.
Served == \A c \in Callers : hold[c].state \in {"queued", "asking"} ~> hold[c].state \in {"holding", "dead"}

\* Callers of one process can be exchanged, and processes of the same size.
Symmetry == {f \in Permutations(Callers) : {{f[c] : c \in p} : p \in Processes} = Processes}
=============================================================================
