------------------------------- MODULE Exposure -------------------------------
(* The holds of one merchant: events in any order, windows, the watermark,      *)
(* corrections, limits that change, and decisions by hand. A batch is planned   *)
(* (its events, its watermark, the newest decision by hand that it knows), runs *)
(* as often as its process dies, and is written once.                           *)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
  Windows, Times, Rises, Falls, MaxEvents, MaxRepeats, MaxHand, MaxPolicies, MaxDisturbed, MaxTime, Untils, Cutoff,
  Limit, ReleaseLevel, OtherLimit,
  AbsorbIds,         \* an event that a window in state has counted is not counted again
  LateCompare,       \* a row of a window past its cutoff is not applied
  LatestOnly,        \* a window older than the newest emitted one does not decide
  HeldCompare,       \* a block needs a merchant that is not held, a release one that is
  CloseEmpty,        \* the next window of a held merchant closes without any event
  PolicyGuard,       \* a policy changes no limit up to the newest planned watermark
  TickNeedsSilence,  \* the idle clock ticks only if nothing waits to be read
  PlanHasHand,       \* the newest decision by hand that a batch knows is in its plan
  HandFence,         \* the sink suppresses what a batch decides that does not know the newest one
  HandDecides,       \* until its time, a decision by hand stands against every window
  CloseWhileMuted    \* the next window closes without any event after a release by hand, too

VARIABLES
  waiting, events, repeats,  \* rows to read; all rows that ever were; how many came twice
  watermark,                 \* of the next batch
  state,                     \* of the job, after the newest committed batch
  plan,                      \* of the batch that runs, or NoPlan
  hand,                      \* the decisions by hand, in the order of their sequence
  policy,                    \* windows from this number on have the other limit; 0: none
  newest,                    \* the newest decision that the receiver has
  published,                 \* the newest published exposure of each window
  counted,                   \* rows that were applied
  faults                     \* what must never happen
vars == <<waiting, events, repeats, watermark, state, plan, hand, policy, newest, published, counted, faults>>

WINDOW == 2
End(w) == w * WINDOW
WindowOf(t) == t \div WINDOW + 1
NoPlan == [made |-> FALSE]
NoHand == [act |-> "none", at |-> 0, until |-> 0]
Never == 99
None == [there |-> FALSE, sum |-> 0, revision |-> 0]
LimitOf(w, from) == IF from # 0 /\ w >= from THEN OtherLimit ELSE Limit
LevelOf(w, from) == IF from # 0 /\ w >= from THEN OtherLimit ELSE ReleaseLevel

(* How often the plain course of events is disturbed: TLC tries each alone, or few together. *)
Disturbed == repeats + Len(hand) + (IF policy = 0 THEN 0 ELSE 1)

RECURSIVE Sum(_)
Sum(rows) == IF rows = {} THEN 0 ELSE LET r == CHOOSE x \in rows : TRUE IN r.amount + Sum(rows \ {r})
Newest(S) == CHOOSE x \in S : \A y \in S : y <= x

(* The pure step: spark_app/exposure/step.py                                    *)

Known(s, row) == AbsorbIds /\ row.id \in s.ids
Applied(s, rows, w) == {r \in rows : ~Known(s, r) /\ (LateCompare => End(WindowOf(r.at)) + Cutoff > w)}

Absorbed(s, rows) ==  \* step.absorb
  [s EXCEPT !.ids = @ \cup {r.id : r \in rows},
            !.win = [w \in Windows |->
               LET added == {r \in rows : WindowOf(r.at) = w} IN
               IF added = {} THEN s.win[w]
               ELSE [s.win[w] EXCEPT !.there = TRUE, !.sum = @ + Sum(added)]]]

(* Learn the newest decision by hand (designed).                                *)
Learned(s, decision, sequence) ==
  IF sequence <= s.hand THEN s
  ELSE IF decision.act = "block"
  THEN [s EXCEPT !.hand = sequence, !.held = "hand", !.by = decision, !.muted = FALSE]
  ELSE [s EXCEPT !.hand = sequence, !.held = "no", !.by = decision, !.muted = TRUE]

(* One emission is judged; c is the state with the decisions so far.            *)
Judged(c, w, sum, from) ==
  LET isOver == sum > LimitOf(w, from)
      isUnder == sum <= LevelOf(w, from)
      isBlocked == HandDecides /\ c.held = "hand" /\ End(w) < c.by.until
      isMuted == HandDecides /\ c.muted /\ End(w) < c.by.until
      mutes == c.muted /\ ~(End(w) >= c.by.until \/ (End(w) > c.by.at /\ ~isOver))
      held == IF HeldCompare THEN c.held # "no" ELSE isUnder
      act == IF isBlocked \/ (isMuted /\ isOver) THEN "none"
             ELSE IF ~held /\ isOver THEN "block"
             ELSE IF held /\ isUnder THEN "release" ELSE "none" IN
  [c EXCEPT !.latest = IF w > @ THEN w ELSE @,
            !.muted = mutes,
            !.held = CASE act = "block" -> "window" [] act = "release" -> "no"
                       [] OTHER -> IF isBlocked \/ c.held = "no" THEN c.held ELSE "window",
            !.did = IF act = "none" THEN @ ELSE Append(@, [act |-> act, w |-> w])]

Emitted(c, w, from) ==
  LET sum == c.win[w].sum
      e == [c EXCEPT !.win[w].revision = @ + 1, !.shown = @ \cup {w}] IN
  IF LatestOnly /\ w < c.latest THEN e ELSE Judged(e, w, sum, from)

(* Whether a window closes although nothing happened in it.                     *)
ClosesEmpty(c, w, mark) ==
  /\ ~c.win[w].there /\ End(w) <= mark /\ w > c.latest
  /\ \/ CloseEmpty /\ c.held = "window" /\ w = c.latest + 1
     \/ CloseEmpty /\ c.held = "hand" /\ End(w) >= c.by.until
     \/ CloseWhileMuted /\ c.muted /\ End(w) > c.by.at

RECURSIVE Through(_, _, _, _, _)
Through(c, w, mark, changed, from) ==  \* judge.emit: the windows in ascending order
  IF w \notin Windows THEN c
  ELSE LET isDue == c.win[w].there /\
             IF c.win[w].revision = 0 THEN End(w) <= mark ELSE w \in changed
           next == IF isDue THEN Emitted(c, w, from)
                   ELSE IF ClosesEmpty(c, w, mark)
                   THEN Emitted([c EXCEPT !.win[w].there = TRUE], w, from) ELSE c IN
       Through(next, w + 1, mark, changed, from)

Forgotten(s, mark, all) ==  \* judge.forget; a merchant without a hold and without windows is forgotten, too
  LET stays == {w \in Windows : s.win[w].there /\ End(w) + Cutoff > mark} IN
  [s EXCEPT !.win = [w \in Windows |-> IF w \in stays THEN @[w] ELSE None],
            !.ids = {i \in @ : \E r \in all : r.id = i /\ WindowOf(r.at) \in stays},
            !.latest = IF stays = {} /\ s.held = "no" /\ ~s.muted THEN 0 ELSE @]

Step(s, rows, mark, decision, sequence, from, all) ==
  LET known == Learned(s, decision, sequence)
      applied == Applied(known, rows, mark)
      changed == {w \in Windows : Sum({r \in applied : WindowOf(r.at) = w}) # 0}
      start == [did |-> <<>>, shown |-> {}] @@ Absorbed(known, applied)
      done == Through(start, 1, mark, changed, from) IN
  [state |-> Forgotten([hand |-> done.hand, held |-> done.held, by |-> done.by, muted |-> done.muted,
                        latest |-> done.latest, win |-> done.win, ids |-> done.ids], mark, all),
   did |-> done.did, applied |-> applied,
   shown |-> [w \in Windows |-> IF w \in done.shown THEN done.win[w].sum ELSE Never]]

Init ==
  /\ waiting = {} /\ events = {} /\ repeats = 0 /\ watermark = 0
  /\ state = [hand |-> 0, held |-> "no", by |-> NoHand, muted |-> FALSE, latest |-> 0,
              win |-> [w \in Windows |-> None], ids |-> {}, mark |-> 0]
  /\ plan = NoPlan /\ hand = <<>> /\ policy = 0
  /\ newest = [act |-> "release", end |-> 0]
  /\ published = [w \in Windows |-> Never] /\ counted = {} /\ faults = {}

Arrive ==
  /\ Cardinality(events) < MaxEvents
  /\ \E t \in Times, a \in Rises \cup {-f : f \in Falls} :
       LET row == [id |-> Cardinality(events) + 1, at |-> t, amount |-> a] IN
       waiting' = waiting \cup {row} /\ events' = events \cup {row}
  /\ UNCHANGED <<repeats, watermark, state, plan, hand, policy, newest, published, counted, faults>>

Repeat ==  \* the producer sends a row again
  /\ repeats < MaxRepeats /\ Disturbed < MaxDisturbed /\ repeats' = repeats + 1
  /\ \E row \in events \ waiting : waiting' = waiting \cup {row}
  /\ UNCHANGED <<events, watermark, state, plan, hand, policy, newest, published, counted, faults>>

Tick ==  \* IdleClock.observe: nothing came for a while, so the watermark follows the clock
  /\ plan = NoPlan /\ (TickNeedsSilence => waiting = {})
  /\ \E m \in watermark + 1..MaxTime :
       /\ watermark' = m
       /\ faults' = faults \cup
            IF \E r \in waiting : LET cutoff == End(WindowOf(r.at)) + Cutoff IN watermark < cutoff /\ cutoff <= m
            THEN {"late by a tick"} ELSE {}
  /\ UNCHANGED <<waiting, events, repeats, state, plan, hand, policy, newest, published, counted>>

Decide ==  \* a person blocks or releases (designed)
  /\ Len(hand) < MaxHand /\ Disturbed < MaxDisturbed
  /\ \E act \in {"block", "release"}, at \in {watermark}, until \in Untils \cup {Never} :
       /\ until > at
       /\ hand' = Append(hand, [act |-> act, at |-> at, until |-> until])
       /\ newest' = [act |-> act, end |-> at]
  /\ UNCHANGED <<waiting, events, repeats, watermark, state, plan, policy, published, counted, faults>>

ChangePolicy ==  \* policy.require_unchanged, at a start
  /\ policy = 0 /\ MaxPolicies > 0 /\ Disturbed < MaxDisturbed
  /\ \E from \in Windows :
       /\ PolicyGuard => End(from) > IF plan.made THEN plan.mark ELSE state.mark
       /\ policy' = from
  /\ UNCHANGED <<waiting, events, repeats, watermark, state, plan, hand, newest, published, counted, faults>>

PlanBatch ==  \* Spark: offsets/N
  /\ plan = NoPlan /\ (waiting # {} \/ watermark > state.mark)
  /\ plan' = [made |-> TRUE, ran |-> FALSE, rows |-> waiting, mark |-> watermark, hand |-> Len(hand)]
  /\ waiting' = {}
  /\ watermark' = Newest({watermark} \cup {r.at : r \in waiting})
  /\ UNCHANGED <<events, repeats, state, hand, policy, newest, published, counted, faults>>

Result ==
  LET sequence == IF PlanHasHand THEN plan.hand ELSE Len(hand)
      decision == IF sequence = 0 THEN NoHand ELSE hand[sequence] IN
  Step(state, plan.rows, plan.mark, decision, sequence, policy, events)

(* A decision of a window reaches the receiver; r is [newest, faults].          *)
Delivered(r, d) ==
  LET h == IF hand = <<>> THEN NoHand ELSE hand[Len(hand)]
      end == End(d.w)
      isAgainstHand == \/ h.act = "block" /\ end < h.until
                       \/ h.act = "release" /\ d.act = "block" /\ end <= h.at IN
  [newest |-> [act |-> d.act, end |-> end],
   faults |-> r.faults
     \cup (IF d.act = r.newest.act THEN {"repeated"} ELSE {})
     \cup (IF d.act = "release" /\ end < r.newest.end THEN {"older"} ELSE {})
     \cup (IF isAgainstHand THEN {"against a hand"} ELSE {})]

RECURSIVE Deliver(_, _)
Deliver(r, did) == IF did = <<>> THEN r ELSE Deliver(Delivered(r, Head(did)), Tail(did))

RunBatch ==  \* the step, and the sink's transaction
  /\ plan.made /\ ~plan.ran
  /\ LET result == Result
         isSuppressed == HandFence /\ Len(hand) > plan.hand
         r == Deliver([newest |-> newest, faults |-> faults], IF isSuppressed THEN <<>> ELSE result.did) IN
       /\ plan' = [made |-> TRUE, ran |-> TRUE, rows |-> plan.rows, mark |-> plan.mark, hand |-> plan.hand,
                   did |-> result.did, state |-> result.state]
       /\ newest' = r.newest /\ faults' = r.faults
       /\ published' = [w \in Windows |-> IF result.shown[w] = Never THEN published[w] ELSE result.shown[w]]
       /\ counted' = counted \cup result.applied
  /\ UNCHANGED <<waiting, events, repeats, watermark, state, hand, policy>>

RunAgain ==  \* the driver died before it recorded the batch: the same plan, and the ledger compares
  /\ plan.made /\ plan.ran
  /\ LET result == Result IN
       /\ plan' = [plan EXCEPT !.state = result.state]
       /\ faults' = faults \cup IF result.did # plan.did THEN {"diverged"} ELSE {}
  /\ UNCHANGED <<waiting, events, repeats, watermark, state, hand, policy, newest, published, counted>>

CommitBatch ==  \* Spark: commits/N, with the state
  /\ plan.made /\ plan.ran
  /\ state' = [mark |-> plan.mark] @@ plan.state
  /\ plan' = NoPlan
  /\ UNCHANGED <<waiting, events, repeats, watermark, hand, policy, newest, published, counted, faults>>

Next == Arrive \/ Repeat \/ Tick \/ Decide \/ ChangePolicy \/ PlanBatch \/ RunBatch \/ RunAgain \/ CommitBatch
Spec == Init /\ [][Next]_vars

TypeOK ==
  /\ waiting \subseteq events /\ watermark \in 0..MaxTime /\ state.held \in {"no", "window", "hand"}
  /\ newest.act \in {"block", "release"}

Reached == {w \in Windows : End(w) <= state.mark}

(* After the last window that decides, a merchant under its limit is held by    *)
(* nobody but a person, and by that person not beyond `until`.                  *)
HoldHasReason == plan = NoPlan =>
  /\ state.held = "window" =>
       /\ published[state.latest] > LevelOf(state.latest, policy)
       /\ state.latest + 1 \notin Reached
  /\ state.held = "hand" => \A w \in Reached : End(w) < state.by.until

(* A release by hand keeps windows from blocking only while they are all over.  *)
MuteHasReason == plan = NoPlan /\ state.muted =>
  \A w \in Reached : End(w) > state.by.at => published[w] # Never /\ published[w] > LimitOf(w, policy)

(* The receiver has the hold that the job has, once it knows what people said.  *)
ReceiverAgrees == plan = NoPlan /\ state.hand = Len(hand) => (state.held # "no") = (newest.act = "block")

Alternates == "repeated" \notin faults      \* no decision of a window changes nothing
ReleaseNotOlder == "older" \notin faults    \* a release is never older than the block that it lifts
HandStands == "against a hand" \notin faults
ReplaysTheSame == "diverged" \notin faults  \* guarantee 2
InTime == "late by a tick" \notin faults    \* guarantee 7

(* A published window has each of its events once, and all that came in time.   *)
CountsOnce == plan = NoPlan => \A w \in Windows :
  published[w] # Never => published[w] = Sum({r \in counted : WindowOf(r.at) = w})
===============================================================================
