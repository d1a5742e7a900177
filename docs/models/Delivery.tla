------------------------------ MODULE Delivery ------------------------------
(* One endpoint, its lanes, the dispatchers that share them, and a receiver   *)
(* with the inbox. A step is one transaction or one effect on the outside:    *)
(* a request that leaves, a commit of the receiver, an answer that arrives.   *)
(* delivery.md explains it.                                                   *)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
  Dispatchers, Subjects,
  Entries,      \* entries of a subject
  PerLane,      \* entries that a claim takes of a lane
  Tries,        \* failed attempts until an entry is exhausted
  OrderPolicy,  \* "stop" or "skip": what a lane does behind a dead letter
  SlowClocks,   \* dispatchers whose wall clock is behind the database's
  (* How often each may happen: *)
  MaxFaults,    \* crash, stall, lost request or answer, failed or rejected attempt
  MaxReplays, MaxCancels, MaxHolds, MaxPauses,
  (* Safeties, each TRUE unless a switch removes it: *)
  OrderOfAllocation, LaneFromFirst, StateAtClaim,
  LeaseMargin, OwnDuration, RescueCheck, RescueRecords, RescueCoversClaimed, RescueIsFree,
  TokenCheck, UnknownRule, UnknownSentAgain, StopAtFirst,
  InboxKey, InboxOneCommit, SequenceFence,
  ErrorsAreTrue, HoldAtClaim, HoldWaits, ReplayLocksLane, CancelLocksLane, CancelChecksClaimed, CancelledKeyKept

VARIABLES
  written,    \* per subject: the sequences in `entry`
  routed,     \* per subject: the sequences whose batch has `routed_at`
  lane,       \* per subject: the row of `lane`
  dead,       \* per subject and sequence: its dead letter
  cancelled,  \* per subject: the sequences that a person cancelled
  item,       \* the item of a replay: an entry that is sent again beside its lane
  active,     \* the endpoint is active, not paused
  proc,       \* per dispatcher: what it has in memory
  late,       \* per subject and sequence: requests on their way that nobody waits for
  inbox,      \* per subject and sequence: the receiver's row of `inbox`
  fence,      \* per subject: the receiver's row of `inbox_subject`
  applied,    \* per subject: the receiver's actions, in order
  sent,       \* per subject: the sequences of which a request left
  unknown,    \* per subject and sequence: attempts with outcome `unknown`
  failures,   \* per subject and sequence: attempts that used up a step of the schedule
  duplicates, \* per subject and sequence: requests of a key that the receiver had kept
  resent,     \* per subject and sequence: replays
  twice,      \* a lease ended twice
  budget      \* how often each fault and verb may still happen

vars == <<written, routed, lane, dead, cancelled, item, active, proc, late, inbox, fence, applied,
          sent, unknown, failures, duplicates, resent, twice, budget>>

Sequences == 1..Entries
Tokens == 1..Cardinality(Dispatchers) + 2
None == 0

Idle == [pc |-> "idle", what |-> "lane", subject |-> CHOOSE s \in Subjects : TRUE, token |-> None,
         entries |-> <<>>, done |-> 0, request |-> "none", outcome |-> "none", stalled |-> FALSE]
NoItem == [state |-> "none", subject |-> CHOOSE s \in Subjects : TRUE, sequence |-> 0,
           token |-> None, ended |-> FALSE, steps |-> 0]
Counts == [s \in Subjects |-> [n \in Sequences |-> 0]]
Least(S) == CHOOSE n \in S : \A m \in S : n <= m
Greatest(S) == CHOOSE n \in S : \A m \in S : n >= m
Max(a, b) == IF a > b THEN a ELSE b

Init ==
  /\ written = [s \in Subjects |-> {}] /\ routed = [s \in Subjects |-> {}]
  /\ lane = [s \in Subjects |-> [exists |-> FALSE, delivered |-> 0, last |-> 0, due |-> FALSE,
                                 token |-> None, ended |-> FALSE, claimed |-> 0, steps |-> 0,
                                 held |-> "no"]]
  /\ dead = [s \in Subjects |-> [n \in Sequences |-> "none"]]
  /\ cancelled = [s \in Subjects |-> {}] /\ item = NoItem /\ active = TRUE
  /\ proc = [d \in Dispatchers |-> Idle]
  /\ late = Counts
  /\ inbox = [s \in Subjects |-> [n \in Sequences |-> "none"]]
  /\ fence = [s \in Subjects |-> 0] /\ applied = [s \in Subjects |-> <<>>]
  /\ sent = [s \in Subjects |-> {}]
  /\ unknown = Counts /\ failures = Counts /\ duplicates = Counts /\ resent = Counts
  /\ twice = FALSE
  /\ budget = [faults |-> MaxFaults, replays |-> MaxReplays, cancels |-> MaxCancels,
               holds |-> MaxHolds, pauses |-> MaxPauses]

Spend(what) == budget[what] > 0 /\ budget' = [budget EXCEPT ![what] = @ - 1]

(* The row lock of a lane: a claim has it from `lane_due` to its COMMIT.      *)
Locked(s) == \E d \in Dispatchers :
  proc[d].pc = "locked" /\ proc[d].what = "lane" /\ proc[d].subject = s
FreeToken == Least(Tokens \ ({proc[d].token : d \in Dispatchers}
                             \cup {lane[s].token : s \in Subjects} \cup {item.token}))

-----------------------------------------------------------------------------
(* The sink's transaction, and routing.                                       *)

(* Sequences are allocated under the lock of the subject's row, so they       *)
(* commit in their order.                                                     *)
Write(s) == \E n \in Sequences \ written[s] :
  /\ OrderOfAllocation => n = Least(Sequences \ written[s])
  /\ written' = [written EXCEPT ![s] = @ \cup {n}]
  /\ UNCHANGED <<routed, lane, dead, cancelled, item, active, proc, late, inbox, fence, applied,
                 sent, unknown, failures, duplicates, resent, twice, budget>>

(* The trigger `lane_cancelled`: a lane passes cancelled entries that are     *)
(* next, and is idle if nothing is left behind them.                          *)
Past(l, gone) ==
  LET d == Greatest({n \in l.delivered..l.last : (l.delivered + 1)..n \subseteq gone}) IN
  [l EXCEPT !.delivered = d, !.due = @ /\ (d < l.last \/ d = l.delivered),
            !.steps = IF d = l.delivered THEN @ ELSE 0]

(* lane_route: batches are routed in any order.                               *)
Route(s) == \E n \in written[s] \ routed[s] :
  /\ ~Locked(s)
  /\ routed' = [routed EXCEPT ![s] = @ \cup {n}]
  /\ lane' = [lane EXCEPT ![s] =
       IF ~@.exists
       THEN Past([@ EXCEPT !.exists = TRUE, !.last = n, !.due = TRUE,
                           !.delivered = (IF LaneFromFirst THEN Least(written[s]) ELSE n) - 1],
                 cancelled[s])
       ELSE IF @.last < n
       THEN Past([@ EXCEPT !.last = n, !.due = @ \/ lane[s].delivered = lane[s].last],
                 cancelled[s])
       ELSE @]
  /\ UNCHANGED <<written, dead, cancelled, item, active, proc, late, inbox, fence, applied,
                 sent, unknown, failures, duplicates, resent, twice, budget>>

-----------------------------------------------------------------------------
(* The claim: one transaction in two steps, because it reads before it        *)
(* commits.                                                                   *)

(* The stored entries that are next, up to the first that is cancelled.       *)
Waiting(s) == {n \in written[s] : /\ n > lane[s].delivered /\ n <= lane[s].last
                                  /\ (lane[s].delivered + 1)..n \cap cancelled[s] = {}}
Next(s) ==
  LET first == {n \in Waiting(s) : Cardinality({m \in Waiting(s) : m < n}) < PerLane}
  IN  [i \in 1..Cardinality(first) |->
         CHOOSE n \in first : Cardinality({m \in first : m < n}) = i - 1]

(* lane_due: locks a due lane of an active endpoint; lane_claim reads.        *)
LaneDue(d, s) ==
  /\ proc[d].pc = "idle" /\ ~Locked(s)
  /\ lane[s].due /\ lane[s].token = None
  /\ StateAtClaim => active
  /\ HoldAtClaim => lane[s].held = "no"
  /\ Next(s) # <<>>
  /\ proc' = [proc EXCEPT ![d] = [Idle EXCEPT !.pc = "locked", !.subject = s, !.token = FreeToken,
                                              !.entries = Next(s)]]
  /\ UNCHANGED <<written, routed, lane, dead, cancelled, item, active, late, inbox, fence, applied,
                 sent, unknown, failures, duplicates, resent, twice, budget>>

(* lane_claim commits: the lease begins.                                      *)
LaneClaim(d) == LET s == proc[d].subject IN
  /\ proc[d].pc = "locked" /\ proc[d].what = "lane"
  /\ proc' = [proc EXCEPT ![d].pc = "claimed"]
  /\ lane' = [lane EXCEPT ![s].token = proc[d].token, ![s].ended = FALSE,
                          ![s].claimed = Max(@, proc[d].entries[Len(proc[d].entries)])]
  /\ UNCHANGED <<written, routed, dead, cancelled, item, active, late, inbox, fence, applied,
                 sent, unknown, failures, duplicates, resent, twice, budget>>

(* lane_empty: nothing is left that the endpoint gets.                        *)
LaneEmpty(s) ==
  /\ lane[s].due /\ lane[s].token = None /\ ~Locked(s) /\ Waiting(s) = {}
  /\ lane' = [lane EXCEPT ![s].delivered = lane[s].last, ![s].due = FALSE, ![s].steps = 0]
  /\ UNCHANGED <<written, routed, dead, cancelled, item, active, proc, late, inbox, fence, applied,
                 sent, unknown, failures, duplicates, resent, twice, budget>>

(* replay_claim: the item has a lease of its own. It is one step, because it  *)
(* locks the lane's row as well, for holds; without ReplayLocksLane           *)
(* it reads before it commits.                                                *)
ItemIsDue(d) ==
  /\ proc[d].pc = "idle" /\ item.state = "due"
  /\ StateAtClaim => active
  /\ HoldAtClaim => lane[item.subject].held = "no"
LeasedItem(pc, token) ==
  [Idle EXCEPT !.pc = pc, !.what = "item", !.subject = item.subject, !.token = token,
               !.entries = <<item.sequence>>]

ReplayDue(d) ==
  /\ ~ReplayLocksLane /\ ItemIsDue(d)
  /\ \A c \in Dispatchers : proc[c].pc # "locked" \/ proc[c].what # "item"
  /\ proc' = [proc EXCEPT ![d] = LeasedItem("locked", FreeToken)]
  /\ UNCHANGED <<written, routed, lane, dead, cancelled, item, active, late, inbox, fence, applied,
                 sent, unknown, failures, duplicates, resent, twice, budget>>

ReplayClaim(d) ==
  LET token == IF ReplayLocksLane THEN FreeToken ELSE proc[d].token IN
  /\ IF ReplayLocksLane THEN ItemIsDue(d) ELSE proc[d].pc = "locked" /\ proc[d].what = "item"
  /\ item' = [item EXCEPT !.state = "leased", !.token = token, !.ended = FALSE]
  /\ proc' = [proc EXCEPT ![d] = LeasedItem("claimed", token)]
  /\ UNCHANGED <<written, routed, lane, dead, cancelled, active, late, inbox, fence, applied,
                 sent, unknown, failures, duplicates, resent, twice, budget>>

-----------------------------------------------------------------------------
(* The lease, by the database's clock. A process measures it from before the  *)
(* claim and starts no request that could still run when it ends (may_send),  *)
(* unless it stalls between that check and the request. A process that lives  *)
(* and does not stall settles in time.                                        *)

HasLease(d) == LET s == proc[d].subject IN
  IF proc[d].what = "lane" THEN lane[s].token = proc[d].token /\ ~lane[s].ended
                           ELSE item.token = proc[d].token /\ ~item.ended
Trusted(d) == ~LeaseMargin \/ HasLease(d) \/ proc[d].stalled
              \/ (~OwnDuration /\ d \in SlowClocks)
MayEnd(token) == LeaseMargin => \A d \in Dispatchers :
  proc[d].token = token => proc[d].stalled \/ (~OwnDuration /\ d \in SlowClocks)

LeaseEnds(s) ==
  /\ lane[s].token # None /\ ~lane[s].ended /\ MayEnd(lane[s].token)
  /\ lane' = [lane EXCEPT ![s].ended = TRUE]
  /\ UNCHANGED <<written, routed, dead, cancelled, item, active, proc, late, inbox, fence, applied,
                 sent, unknown, failures, duplicates, resent, twice, budget>>

ItemLeaseEnds ==
  /\ item.state = "leased" /\ ~item.ended /\ MayEnd(item.token)
  /\ item' = [item EXCEPT !.ended = TRUE]
  /\ UNCHANGED <<written, routed, lane, dead, cancelled, active, proc, late, inbox, fence, applied,
                 sent, unknown, failures, duplicates, resent, twice, budget>>

(* lane_rescue, by any dispatcher: everything that may have been sent under   *)
(* the lease is `unknown`, and the lane is due again.                         *)
Covered(s) == {n \in written[s] \ cancelled[s] : n > lane[s].delivered /\ n <= lane[s].claimed}
LaneRescue(s) ==
  /\ lane[s].token # None /\ (RescueCheck => lane[s].ended)
  /\ lane' = [lane EXCEPT ![s].token = None, ![s].ended = FALSE, ![s].due = TRUE,
                          ![s].steps = IF RescueIsFree THEN @ ELSE @ + 1]
  /\ unknown' = [unknown EXCEPT ![s] = [n \in Sequences |->
       IF RescueRecords /\ n \in Covered(s) /\ (RescueCoversClaimed \/ n = Least(Covered(s)))
       THEN @[n] + 1 ELSE @[n]]]
  /\ UNCHANGED <<written, routed, dead, cancelled, item, active, proc, late, inbox, fence, applied,
                 sent, failures, duplicates, resent, twice, budget>>

(* replay_rescue *)
ReplayRescue ==
  /\ item.state = "leased" /\ (RescueCheck => item.ended)
  /\ item' = [item EXCEPT !.state = "due", !.token = None, !.ended = FALSE]
  /\ unknown' = IF RescueRecords THEN [unknown EXCEPT ![item.subject][item.sequence] = @ + 1]
                ELSE unknown
  /\ UNCHANGED <<written, routed, lane, dead, cancelled, active, proc, late, inbox, fence, applied,
                 sent, failures, duplicates, resent, twice, budget>>

-----------------------------------------------------------------------------
(* Sender and receiver.                                                       *)

(* Sender._send: the request leaves.                                          *)
Send(d) == LET s == proc[d].subject  n == Head(proc[d].entries) IN
  /\ proc[d].pc = "claimed" /\ Trusted(d)
  /\ proc' = [proc EXCEPT ![d].pc = "flight", ![d].request = "out"]
  /\ sent' = [sent EXCEPT ![s] = @ \cup {n}]
  /\ UNCHANGED <<written, routed, lane, dead, cancelled, item, active, late, inbox, fence, applied,
                 unknown, failures, duplicates, resent, twice, budget>>

(* inbox_receive and the service's action, in one commit.                     *)
Fresh(s, n) == ~InboxKey \/ inbox[s][n] = "none"
Newest(s, n) == ~SequenceFence \/ n > fence[s]
Deal(s, n, acts) ==
  /\ duplicates' = [duplicates EXCEPT ![s][n] = IF inbox[s][n] = "none" THEN @ ELSE @ + 1]
  /\ IF Fresh(s, n)
     THEN /\ inbox' = [inbox EXCEPT ![s][n] = IF Newest(s, n) THEN "applied" ELSE "stale"]
          /\ fence' = [fence EXCEPT ![s] = Max(@, n)]
          /\ applied' = IF acts /\ Newest(s, n) THEN [applied EXCEPT ![s] = Append(@, n)]
                        ELSE applied
     ELSE UNCHANGED <<inbox, fence, applied>>

Receive(d) == LET s == proc[d].subject  n == Head(proc[d].entries) IN
  /\ proc[d].pc = "flight" /\ proc[d].request = "out"
  /\ Deal(s, n, InboxOneCommit)
  /\ proc' = [proc EXCEPT ![d].request =
       IF ~InboxOneCommit /\ Fresh(s, n) /\ Newest(s, n) THEN "acting" ELSE "delivered"]
  /\ UNCHANGED <<written, routed, lane, dead, cancelled, item, active, late,
                 sent, unknown, failures, resent, twice, budget>>

(* Without InboxOneCommit: the action has a commit of its own, or the         *)
(* receiver crashes before it.                                                *)
Act(d) == LET s == proc[d].subject  n == Head(proc[d].entries) IN
  /\ proc[d].pc = "flight" /\ proc[d].request = "acting"
  /\ applied' = [applied EXCEPT ![s] = Append(@, n)]
  /\ proc' = [proc EXCEPT ![d].request = "delivered"]
  /\ UNCHANGED <<written, routed, lane, dead, cancelled, item, active, late, inbox, fence,
                 sent, unknown, failures, duplicates, resent, twice, budget>>

(* The receiver commits nothing and answers 5xx (failed) or 4xx (rejected).   *)
(* Without ErrorsAreTrue a proxy may answer 502 after the commit.             *)
Refuse(d) == \E answer \in {"failed", "rejected"} :
  LET s == proc[d].subject  n == Head(proc[d].entries) IN
  /\ proc[d].pc = "flight" /\ proc[d].request = "out" /\ Spend("faults")
  /\ proc' = [proc EXCEPT ![d].request = answer]
  /\ IF ErrorsAreTrue \/ answer = "rejected" THEN UNCHANGED <<inbox, fence, applied, duplicates>>
     ELSE Deal(s, n, TRUE)
  /\ UNCHANGED <<written, routed, lane, dead, cancelled, item, active, late,
                 sent, unknown, failures, resent, twice>>

(* An answer arrives: on with the next entry, or settle.                      *)
Answer(d) == LET p == proc[d] IN
  /\ p.pc = "flight" /\ p.request \in {"delivered", "failed", "rejected"}
  /\ proc' = [proc EXCEPT ![d] =
       IF p.request = "delivered" \/ (~StopAtFirst /\ Len(p.entries) > 1)
       THEN [p EXCEPT !.pc = IF Len(p.entries) > 1 THEN "claimed" ELSE "answered",
                      !.done = Head(p.entries), !.entries = Tail(@), !.request = "none",
                      !.outcome = IF Len(p.entries) > 1 THEN "none" ELSE "delivered"]
       ELSE [p EXCEPT !.pc = "answered", !.request = "none", !.outcome = p.request]]
  /\ UNCHANGED <<written, routed, lane, dead, cancelled, item, active, late, inbox, fence, applied,
                 sent, unknown, failures, duplicates, resent, twice, budget>>

(* The time-out passes without an answer. A request that did not arrive is    *)
(* lost, or is still on its way.                                              *)
Abandoned(d, arrives) == LET s == proc[d].subject  n == Head(proc[d].entries) IN
  /\ arrives => proc[d].request = "out"
  /\ late' = IF arrives THEN [late EXCEPT ![s][n] = @ + 1] ELSE late

NoAnswer(d) == \E arrives \in BOOLEAN :
  /\ proc[d].pc = "flight" /\ Spend("faults") /\ Abandoned(d, arrives)
  /\ proc' = [proc EXCEPT ![d].pc = "answered", ![d].request = "none", ![d].outcome = "unknown"]
  /\ UNCHANGED <<written, routed, lane, dead, cancelled, item, active, inbox, fence, applied,
                 sent, unknown, failures, duplicates, resent, twice>>

Arrive(s) == \E n \in Sequences :
  /\ late[s][n] > 0
  /\ late' = [late EXCEPT ![s][n] = @ - 1]
  /\ Deal(s, n, TRUE)
  /\ UNCHANGED <<written, routed, lane, dead, cancelled, item, active, proc,
                 sent, unknown, failures, resent, twice, budget>>

Stall(d) ==
  /\ proc[d].pc \in {"claimed", "flight", "answered"} /\ ~proc[d].stalled /\ Spend("faults")
  /\ proc' = [proc EXCEPT ![d].stalled = TRUE]
  /\ UNCHANGED <<written, routed, lane, dead, cancelled, item, active, late, inbox, fence, applied,
                 sent, unknown, failures, duplicates, resent, twice>>

Crash(d) == \E arrives \in BOOLEAN :
  /\ proc[d].pc # "idle" /\ Spend("faults")
  /\ IF proc[d].pc = "flight" THEN Abandoned(d, arrives) ELSE ~arrives /\ UNCHANGED late
  /\ proc' = [proc EXCEPT ![d] = Idle]
  /\ UNCHANGED <<written, routed, lane, dead, cancelled, item, active, inbox, fence, applied,
                 sent, unknown, failures, duplicates, resent, twice>>

-----------------------------------------------------------------------------
(* Settling. Nothing of a lost lease is stored.                               *)

Holder(d) == ~TokenCheck \/ (IF proc[d].what = "lane" THEN lane[proc[d].subject].token ELSE item.token)
                            = proc[d].token
Dead(s, n) == dead[s][n] \in {"rejected", "exhausted"}
Failed(p) == p.outcome \in {"failed", "unknown"}
Unknown(p) == UnknownRule /\ p.outcome = "unknown"
(* What the rules make of an outcome (decide.settle). *)
Outcome(p) == IF p.outcome = "unknown" /\ ~UnknownSentAgain THEN "delivered" ELSE p.outcome

Record(p) == LET s == p.subject  n == Head(p.entries) IN
  IF p.pc = "answered" /\ Failed(p)
  THEN /\ unknown' = IF Unknown(p) THEN [unknown EXCEPT ![s][n] = @ + 1] ELSE unknown
       /\ failures' = [failures EXCEPT ![s][n] = @ + 1]
  ELSE UNCHANGED <<unknown, failures>>

(* lane_settle, attempt_copy and dead_letter_add. A lane of which nothing was *)
(* sent, or the rest of it, is released: no attempt counts.                   *)
LaneSettle(d) ==
  LET p == proc[d]
      s == p.subject
      delivered == IF Outcome(p) = "delivered" /\ p.entries # <<>> THEN Head(p.entries)
                   ELSE IF p.done > 0 THEN p.done ELSE lane[s].delivered
      steps == (IF p.done > 0 THEN 0 ELSE lane[s].steps) + (IF Failed(p) THEN 1 ELSE 0)
      dies == Outcome(p) = "rejected" \/ (Outcome(p) \in {"failed", "unknown"} /\ steps >= Tries)
      free == [lane[s] EXCEPT !.token = None, !.ended = FALSE, !.delivered = delivered]
  IN
  /\ p.what = "lane" /\ p.pc \in {"claimed", "answered"} /\ ~Locked(s)
  /\ proc' = [proc EXCEPT ![d] = Idle]
  /\ IF Holder(d)
     THEN /\ twice' = (twice \/ lane[s].token # p.token)
          /\ Record(p)
          /\ IF dies
             THEN /\ dead' = [dead EXCEPT ![s][Head(p.entries)] =
                       IF Outcome(p) = "rejected" THEN "rejected" ELSE "exhausted"]
                  /\ lane' = [lane EXCEPT ![s] =
                       IF OrderPolicy = "stop" THEN [free EXCEPT !.due = FALSE, !.steps = steps]
                       ELSE Past([free EXCEPT !.due = Head(p.entries) < lane[s].last, !.steps = 0,
                                              !.delivered = Head(p.entries)], cancelled[s])]
             ELSE /\ lane' = [lane EXCEPT ![s] =
                       Past([free EXCEPT !.due = delivered < lane[s].last, !.steps = steps],
                            cancelled[s])]
                  /\ UNCHANGED dead
     ELSE UNCHANGED <<lane, dead, unknown, failures, twice>>
  /\ UNCHANGED <<written, routed, cancelled, item, active, late, inbox, fence, applied,
                 sent, duplicates, resent, budget>>

(* replay_settle: a failed item is tried again by the schedule, a rejected    *)
(* one is not. A delivered one resolves its dead letter.                      *)
ReplaySettle(d) ==
  LET p == proc[d]
      s == item.subject
      n == item.sequence
      steps == item.steps + (IF Failed(p) THEN 1 ELSE 0)
  IN
  /\ p.what = "item" /\ p.pc \in {"claimed", "answered"}
  /\ proc' = [proc EXCEPT ![d] = Idle]
  /\ IF Holder(d)
     THEN /\ twice' = (twice \/ item.token # p.token)
          /\ Record(p)
          /\ item' = IF p.pc = "answered" /\ (~Failed(p) \/ steps >= Tries) THEN NoItem
                     ELSE [item EXCEPT !.state = "due", !.token = None, !.ended = FALSE,
                                       !.steps = steps]
          /\ dead' = IF p.pc = "answered" /\ Outcome(p) = "delivered" /\ Dead(s, n)
                     THEN [dead EXCEPT ![s][n] = "resolved"] ELSE dead
     ELSE UNCHANGED <<item, dead, unknown, failures, twice>>
  /\ UNCHANGED <<written, routed, lane, cancelled, active, late, inbox, fence, applied,
                 sent, duplicates, resent, budget>>

-----------------------------------------------------------------------------
(* People.                                                                    *)

Pause == /\ active /\ Spend("pauses") /\ active' = FALSE
         /\ UNCHANGED <<written, routed, lane, dead, cancelled, item, proc, late, inbox, fence,
                        applied, sent, unknown, failures, duplicates, resent, twice>>
Resume == /\ ~active /\ active' = TRUE
          /\ UNCHANGED <<written, routed, lane, dead, cancelled, item, proc, late, inbox, fence,
                         applied, sent, unknown, failures, duplicates, resent, twice, budget>>

(* `subject hold` marks the lane under its lock. It answers once no           *)
(* lease is left that began before.                                           *)
InFlight(s) == lane[s].token # None \/ (item.state = "leased" /\ item.subject = s)
Hold(s) ==
  /\ lane[s].held = "no" /\ lane[s].exists /\ ~Locked(s) /\ Spend("holds")
  /\ lane' = [lane EXCEPT ![s].held = IF HoldWaits THEN "asked" ELSE "held"]
  /\ UNCHANGED <<written, routed, dead, cancelled, item, active, proc, late, inbox, fence, applied,
                 sent, unknown, failures, duplicates, resent, twice>>
HoldAnswers(s) ==
  /\ lane[s].held = "asked" /\ ~InFlight(s)
  /\ lane' = [lane EXCEPT ![s].held = "held"]
  /\ UNCHANGED <<written, routed, dead, cancelled, item, active, proc, late, inbox, fence, applied,
                 sent, unknown, failures, duplicates, resent, twice, budget>>
ResumeSubject(s) ==
  /\ lane[s].held = "held"
  /\ lane' = [lane EXCEPT ![s].held = "no"]
  /\ UNCHANGED <<written, routed, dead, cancelled, item, active, proc, late, inbox, fence, applied,
                 sent, unknown, failures, duplicates, resent, twice, budget>>

(* `entry cancel`, of an entry that no claim has, and of which no attempt is  *)
(* recorded. It stays in the sequence; claims end before it.                  *)
Tried(s, n) == unknown[s][n] > 0 \/ failures[s][n] > 0 \/ dead[s][n] # "none"
Cancel(s) == \E n \in written[s] \ cancelled[s] :
  /\ CancelLocksLane => ~Locked(s)
  /\ CancelChecksClaimed => n > lane[s].claimed \/ (lane[s].token = None /\ ~Tried(s, n))
  /\ n > lane[s].delivered /\ Spend("cancels")
  /\ cancelled' = [cancelled EXCEPT ![s] = @ \cup {n}]
  /\ lane' = [lane EXCEPT ![s] =
       Past([@ EXCEPT !.claimed = IF @ < n THEN @ ELSE n - 1], cancelled[s] \cup {n})]
  /\ UNCHANGED <<written, routed, dead, item, active, proc, late, inbox, fence, applied,
                 sent, unknown, failures, duplicates, resent, twice>>

Stopped(s, n) == /\ Dead(s, n) /\ lane[s].token = None /\ ~lane[s].due /\ lane[s].delivered < n

(* A replay of one entry: `release` of a dead letter that stops its lane, or  *)
(* `resend` beside the lane.                                                  *)
Redeliver(s) == \E n \in written[s] :
  /\ CancelledKeyKept => n \notin cancelled[s]
  /\ Spend("replays")
  /\ \/ /\ Stopped(s, n) /\ ~Locked(s)
        /\ lane' = [lane EXCEPT ![s].due = TRUE, ![s].steps = 0]
        /\ dead' = [dead EXCEPT ![s][n] = "resolved"]
        /\ UNCHANGED <<item, resent>>
     \/ /\ n <= lane[s].delivered /\ lane[s].exists /\ item = NoItem
        /\ item' = [NoItem EXCEPT !.state = "due", !.subject = s, !.sequence = n]
        /\ resent' = [resent EXCEPT ![s][n] = @ + 1]
        /\ UNCHANGED <<lane, dead>>
  /\ UNCHANGED <<written, routed, cancelled, active, proc, late, inbox, fence, applied,
                 sent, unknown, failures, duplicates, twice>>

(* dead_letters/dismiss and pass: the lane continues behind it.               *)
Dismiss(s) == \E n \in written[s] :
  /\ Stopped(s, n) /\ ~Locked(s)
  /\ lane' = [lane EXCEPT ![s] =
       Past([@ EXCEPT !.delivered = n, !.due = n < lane[s].last, !.steps = 0], cancelled[s])]
  /\ dead' = [dead EXCEPT ![s][n] = "resolved"]
  /\ UNCHANGED <<written, routed, cancelled, item, active, proc, late, inbox, fence, applied,
                 sent, unknown, failures, duplicates, resent, twice, budget>>

-----------------------------------------------------------------------------
Step ==
  \/ \E s \in Subjects :
       \/ Write(s) \/ Route(s) \/ LaneEmpty(s) \/ LeaseEnds(s) \/ LaneRescue(s) \/ Arrive(s)
       \/ Hold(s) \/ HoldAnswers(s) \/ ResumeSubject(s) \/ Cancel(s) \/ Redeliver(s) \/ Dismiss(s)
       \/ \E d \in Dispatchers : LaneDue(d, s)
  \/ \E d \in Dispatchers :
       \/ LaneClaim(d) \/ ReplayDue(d) \/ ReplayClaim(d) \/ Send(d) \/ Receive(d) \/ Act(d)
       \/ Refuse(d) \/ Answer(d) \/ NoAnswer(d) \/ Stall(d) \/ Crash(d) \/ LaneSettle(d) \/ ReplaySettle(d)
  \/ ItemLeaseEnds \/ ReplayRescue \/ Pause \/ Resume
Spec == Init /\ [][Step]_vars

-----------------------------------------------------------------------------
TypeOK ==
  /\ \A s \in Subjects :
       /\ routed[s] \subseteq written[s] /\ cancelled[s] \subseteq written[s]
       /\ lane[s].delivered \in 0..lane[s].last /\ lane[s].last \in 0..Entries
       /\ lane[s].token \in Tokens \cup {None} /\ lane[s].held \in {"no", "asked", "held"}
  /\ \A d \in Dispatchers : proc[d].pc \in {"idle", "locked", "claimed", "flight", "answered"}

(* 5: when a request of an entry leaves, every earlier one has its end.       *)
Ended(s, n) == inbox[s][n] # "none" \/ dead[s][n] # "none" \/ n \in cancelled[s]
InOrder == \A s \in Subjects : \A n \in sent[s] : \A m \in 1..n - 1 : Ended(s, m)

(* 7: what a lane has passed was received, dead or cancelled. What it has not *)
(* passed is due, leased, or waits for a person.                              *)
NothingDropped == \A s \in Subjects :
  /\ \A n \in written[s] : n <= lane[s].delivered /\ lane[s].exists => Ended(s, n)
  /\ \A n \in routed[s] : n <= lane[s].last
  /\ lane[s].delivered < lane[s].last =>
       lane[s].due \/ lane[s].token # None \/ \E n \in written[s] : Stopped(s, n)

(* 5: an outcome is stored once, by the holder of the lease.                  *)
SettledOnce == ~twice

(* 5: at most one request of a lane is under way, but for processes that      *)
(* stalled.                                                                   *)
OneInFlight == \A d \in Dispatchers :
  proc[d].pc = "flight" /\ ~proc[d].stalled => HasLease(d)

(* 6 *)
DuplicatesBounded == \A s \in Subjects : \A n \in Sequences :
  duplicates[s][n] <= unknown[s][n] + resent[s][n]

(* 9: a dispatcher that crashes or stalls uses up no step of the schedule.    *)
OutageIsFree == \A s \in Subjects : \A n \in Sequences :
  dead[s][n] = "exhausted" => failures[s][n] >= Tries

(* 10: an action happens once, and never without its key or after a newer.    *)
AppliedOnce == \A s \in Subjects : \A i, j \in DOMAIN applied[s] :
  i # j => applied[s][i] # applied[s][j]
DeliveredIsApplied == \A s \in Subjects : \A n \in Sequences :
  \/ n > lane[s].delivered \/ inbox[s][n] # "applied"
  \/ \E i \in DOMAIN applied[s] : applied[s][i] = n
  \/ \E d \in Dispatchers : proc[d].request = "acting"
NotOvertaken == \A s \in Subjects : \A i, j \in DOMAIN applied[s] :
  i < j => applied[s][i] <= applied[s][j]

(* 9: no claim of a paused endpoint begins.                                   *)
PausedClaimsNothing == [][\A d \in Dispatchers :
  proc[d].pc = "idle" /\ proc'[d].pc # "idle" => active]_vars

(* Once `subject hold` has answered, nothing of the subject leaves.           *)
HeldSendsNothing == \A d \in Dispatchers :
  proc[d].pc = "flight" /\ ~proc[d].stalled => lane[proc[d].subject].held # "held"

(* A cancelled entry is never sent.                                           *)
CancelledNeverSent == \A s \in Subjects : sent[s] \cap cancelled[s] = {}
=============================================================================
