------------------------------- MODULE Replays -------------------------------
(* What people do with entries that were sent before: replays under the same  *)
(* key, reissues under a new one, and the second person. One subject and one  *)
(* endpoint; delivery itself is three steps here, and a model of its own.     *)
(* replays.md explains it.                                                    *)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
  Replays,      \* plans of replays, each of one entry
  People,       \* any of them plans, approves and applies
  Originals,    \* decisions of the sink
  MaxDeaths,    \* requests that the receiver rejects
  MaxCrashes,   \* of the process that writes a reissue
  (* Safeties, each TRUE unless a switch removes it: *)
  JudgedAgain, OneAtATime, StateAtTake,
  WrittenCounts, SettledFirst, ResentFirst, UndeliveredSince, ReplayLock,
  OtherPerson, JudgedAtWrite, SinkCompares

VARIABLES
  entries,   \* the sequence of the subject: event time, and the entry that it reissues or 0
  lane,      \* the lane: position and state
  dead,      \* open dead letters
  delivered, \* sequences with a delivered attempt
  fence,     \* the receiver's highest sequence
  applied,   \* sequences on which the receiver acted
  replay,    \* per plan: the row of `replay` and its item
  reissue,   \* the row of the reissue and its item
  writer,    \* what the process that writes the reissue has in memory
  crashes

vars == <<entries, lane, dead, delivered, fence, applied, replay, reissue, writer, crashes>>

None == "none"
Last == Len(entries)
Time(n) == entries[n].time
Newest == IF Last = 0 THEN 0
          ELSE CHOOSE t \in {Time(n) : n \in 1..Last} : \A n \in 1..Last : Time(n) <= t
Written(n) == \E m \in 1..Last : entries[m].of = n

Init ==
  /\ entries = <<>> /\ lane = [delivered |-> 0, state |-> "idle"]
  /\ dead = {} /\ delivered = {} /\ fence = 0 /\ applied = {}
  /\ replay = [r \in Replays |-> [state |-> None, sequence |-> 0, kind |-> None, item |-> None]]
  /\ reissue = [state |-> None, sequence |-> 0, person |-> None, approved |-> None, overtakes |-> 0,
                known |-> FALSE, settled |-> FALSE]
  /\ writer = [pc |-> "idle", seen |-> 0] /\ crashes = MaxCrashes

-----------------------------------------------------------------------------
(* The sink, the lane and the receiver.                                       *)

Write ==
  LET originals == Cardinality({n \in 1..Last : entries[n].of = 0}) IN
  /\ originals < Originals
  /\ entries' = Append(entries, [time |-> originals + 1, of |-> 0])
  /\ lane' = [lane EXCEPT !.state = IF @ = "idle" THEN "due" ELSE @]
  /\ UNCHANGED <<dead, delivered, fence, applied, replay, reissue, writer, crashes>>

Onward(n) == [delivered |-> n, state |-> IF n < Last THEN "due" ELSE "idle"]
Arrives(n) == /\ applied' = IF n > fence THEN applied \cup {n} ELSE applied
              /\ fence' = IF n > fence THEN n ELSE fence

Send ==
  /\ lane.state = "due" /\ lane' = [lane EXCEPT !.state = "sending"]
  /\ UNCHANGED <<entries, dead, delivered, fence, applied, replay, reissue, writer, crashes>>
Deliver == LET n == lane.delivered + 1 IN
  /\ lane.state = "sending" /\ Arrives(n)
  /\ delivered' = delivered \cup {n} /\ lane' = Onward(n)
  /\ UNCHANGED <<entries, dead, replay, reissue, writer, crashes>>
Reject == LET n == lane.delivered + 1 IN
  /\ lane.state = "sending" /\ n <= MaxDeaths
  /\ dead' = dead \cup {n} /\ lane' = [lane EXCEPT !.state = "stopped"]
  /\ UNCHANGED <<entries, delivered, fence, applied, replay, reissue, writer, crashes>>

(* dead_letters/dismiss and pass *)
Dismiss == LET n == lane.delivered + 1 IN
  /\ lane.state = "stopped" /\ dead' = dead \ {n} /\ lane' = Onward(n)
  /\ UNCHANGED <<entries, delivered, fence, applied, replay, reissue, writer, crashes>>

-----------------------------------------------------------------------------
(* Replays. A plan and its application hold `replay_lock`; so does a process  *)
(* that writes a reissue, from its checks to its record.                      *)

LockIsFree == ReplayLock => writer.pc = "idle"

(* order_items *)
Kind(n) == IF n \in delivered \/ n <= lane.delivered THEN "resend"
           ELSE IF n \in dead THEN "release" ELSE None
IsReissued(n) == /\ reissue.sequence = n /\ n \notin delivered
                 /\ reissue.settled \/ (WrittenCounts /\ Written(n))
Taken(n, r) == \E o \in Replays \ {r} :
  replay[o].state = "applying" /\ replay[o].sequence = n /\ replay[o].item # "settled"
Found(n, r) == Kind(n) # None /\ ~IsReissued(n) /\ ~Taken(n, r)

PlanReplay(r) == \E n \in 1..Last :
  /\ replay[r].state = None /\ LockIsFree /\ Found(n, r)
  /\ replay' = [replay EXCEPT ![r] =
       [state |-> "planned", sequence |-> n, kind |-> Kind(n), item |-> None]]
  /\ UNCHANGED <<entries, lane, dead, delivered, fence, applied, reissue, writer, crashes>>

(* Replays.apply evaluates the filter again.                                  *)
ApplyReplay(r) == LET n == replay[r].sequence IN
  /\ replay[r].state = "planned" /\ LockIsFree
  /\ JudgedAgain => Found(n, r) /\ Kind(n) = replay[r].kind
  /\ replay' = [replay EXCEPT ![r].state = "applying", ![r].item = "due"]
  /\ UNCHANGED <<entries, lane, dead, delivered, fence, applied, reissue, writer, crashes>>

CancelReplay(r) ==
  /\ replay[r].state \in {"planned", "applying"}
  /\ replay' = [replay EXCEPT ![r].state = "cancelled"]
  /\ UNCHANGED <<entries, lane, dead, delivered, fence, applied, reissue, writer, crashes>>

(* replay_release: only where the dead letter still stops the lane.           *)
Release(r) == LET n == replay[r].sequence IN
  /\ replay[r].item = "due" /\ replay[r].kind = "release"
  /\ StateAtTake => replay[r].state = "applying"
  /\ replay' = [replay EXCEPT ![r].state = "applied", ![r].item = "settled"]
  /\ IF lane.state = "stopped" /\ n = lane.delivered + 1 /\ n \in dead
     THEN lane' = [lane EXCEPT !.state = "due"] /\ dead' = dead \ {n}
     ELSE UNCHANGED <<lane, dead>>
  /\ UNCHANGED <<entries, delivered, fence, applied, reissue, writer, crashes>>

(* replay_claim: a request of another replay for this entry ends first.       *)
Resend(r) == LET n == replay[r].sequence IN
  /\ replay[r].item = "due" /\ replay[r].kind = "resend"
  /\ StateAtTake => replay[r].state = "applying"
  /\ OneAtATime => \A o \in Replays : ~(replay[o].sequence = n /\ replay[o].item = "sending")
  /\ replay' = [replay EXCEPT ![r].item = "sending"]
  /\ UNCHANGED <<entries, lane, dead, delivered, fence, applied, reissue, writer, crashes>>

(* replay_settle *)
Resent(r) == LET n == replay[r].sequence IN
  /\ replay[r].item = "sending" /\ Arrives(n)
  /\ delivered' = delivered \cup {n} /\ dead' = dead \ {n}
  /\ replay' = [replay EXCEPT ![r].item = "settled",
                              ![r].state = IF @ = "applying" THEN "applied" ELSE @]
  /\ UNCHANGED <<entries, lane, reissue, writer, crashes>>

-----------------------------------------------------------------------------
(* A reissue: previewed and planned, approved, written by the sink's          *)
(* transaction, recorded by another.                                          *)

(* Delivered, dead or passed (Reissues._require_settled).                     *)
IsSettled(n) == (SettledFirst => n \in delivered \/ n <= lane.delivered \/ n \in dead)
  /\ (ResentFirst => \A r \in Replays : replay[r].sequence = n =>
        replay[r].state # "applying" /\ replay[r].item # "sending")
Overtaken(n) == IF Newest > Time(n) THEN Newest ELSE 0

PlanReissue(person) == \E n \in 1..Last :
  /\ reissue.state = None /\ entries[n].of = 0 /\ LockIsFree /\ IsSettled(n)
  /\ reissue' = [reissue EXCEPT !.state = "planned", !.sequence = n, !.person = person,
                                !.overtakes = Overtaken(n), !.known = n \in delivered]
  /\ UNCHANGED <<entries, lane, dead, delivered, fence, applied, replay, writer, crashes>>

Approve(person) ==
  /\ reissue.state = "planned" /\ reissue.approved = None /\ LockIsFree
  /\ OtherPerson => person # reissue.person
  /\ reissue' = [reissue EXCEPT !.approved = person]
  /\ UNCHANGED <<entries, lane, dead, delivered, fence, applied, replay, writer, crashes>>

(* Reissues.lock_item *)
LockItem == LET n == reissue.sequence IN
  /\ reissue.state = "planned" /\ ~reissue.settled /\ writer.pc = "idle"
  /\ reissue.overtakes > 0 => reissue.approved # None
  /\ IsSettled(n) /\ (UndeliveredSince /\ n \in delivered => reissue.known)
  /\ writer' = [writer EXCEPT !.pc = "locked"]
  /\ UNCHANGED <<entries, lane, dead, delivered, fence, applied, replay, reissue, crashes>>

(* Reissues.overtakes: what it would follow now, and whether that was         *)
(* approved.                                                                  *)
Judge == LET n == reissue.sequence IN
  /\ writer.pc = "locked"
  /\ writer' =
       IF JudgedAtWrite /\ ~Written(n) /\ Overtaken(n) > 0
          /\ ~(reissue.approved # None /\ Overtaken(n) <= reissue.overtakes)
       THEN [writer EXCEPT !.pc = "idle"] ELSE [pc |-> "judged", seen |-> Overtaken(n)]
  /\ UNCHANGED <<entries, lane, dead, delivered, fence, applied, replay, reissue, crashes>>

(* The sink's transaction, under the lock of the subject. A known key writes  *)
(* nothing.                                                                   *)
WriteReissue == LET n == reissue.sequence IN
  /\ writer.pc = "judged"
  /\ IF ~Written(n) /\ SinkCompares /\ Overtaken(n) > writer.seen
     THEN writer' = [pc |-> "idle", seen |-> 0] /\ UNCHANGED <<entries, lane>>
     ELSE /\ writer' = [pc |-> "written", seen |-> 0]
          /\ IF Written(n) THEN UNCHANGED <<entries, lane>>
             ELSE /\ entries' = Append(entries, [time |-> Time(n), of |-> n])
                  /\ lane' = [lane EXCEPT !.state = IF @ = "idle" THEN "due" ELSE @]
  /\ UNCHANGED <<dead, delivered, fence, applied, replay, reissue, crashes>>

(* reissue/settle, bury and dead_letters/pass *)
Recorded == LET n == reissue.sequence IN
  /\ reissue' = [reissue EXCEPT !.state = "applied", !.settled = TRUE]
  /\ dead' = dead \ {n}
  /\ lane' = IF n \in dead /\ lane.state = "stopped" /\ n = lane.delivered + 1
             THEN Onward(n) ELSE lane
SettleReissue ==
  /\ writer.pc = "written" /\ Recorded /\ writer' = [writer EXCEPT !.pc = "idle"]
  /\ UNCHANGED <<entries, delivered, fence, applied, replay, crashes>>

CrashWriter ==
  /\ writer.pc # "idle" /\ crashes > 0 /\ crashes' = crashes - 1
  /\ writer' = [pc |-> "idle", seen |-> 0]
  /\ UNCHANGED <<entries, lane, dead, delivered, fence, applied, replay, reissue>>

(* Replays.cancel waits for the row that the writer has locked, and records   *)
(* what is written.                                                           *)
CancelReissue ==
  /\ reissue.state = "planned" /\ writer.pc = "idle"
  /\ IF Written(reissue.sequence) THEN Recorded
     ELSE reissue' = [reissue EXCEPT !.state = "cancelled"] /\ UNCHANGED <<dead, lane>>
  /\ UNCHANGED <<entries, delivered, fence, applied, replay, writer, crashes>>

-----------------------------------------------------------------------------
Step ==
  \/ Write \/ Send \/ Deliver \/ Reject \/ Dismiss
  \/ \E r \in Replays : \/ PlanReplay(r) \/ ApplyReplay(r) \/ CancelReplay(r)
                        \/ Release(r) \/ Resend(r) \/ Resent(r)
  \/ \E person \in People : PlanReissue(person) \/ Approve(person)
  \/ LockItem \/ Judge \/ WriteReissue \/ SettleReissue \/ CrashWriter \/ CancelReissue
Spec == Init /\ [][Step]_vars

-----------------------------------------------------------------------------
TypeOK ==
  /\ lane.delivered \in 0..Last /\ lane.state \in {"idle", "due", "sending", "stopped"}
  /\ lane.state = "idle" => lane.delivered = Last
  /\ lane.state = "stopped" => lane.delivered + 1 \in dead
  /\ dead \subseteq 1..Last /\ delivered \subseteq 1..Last /\ applied \subseteq 1..Last

(* 10: one decision is acted on under two keys only if its first delivery was *)
(* known when the reissue was planned.                                        *)
OneKeyActs == \A n \in applied : (\E m \in applied : entries[m].of = n) => reissue.known

(* 11: the last decision is the newest, or a second person approved what it   *)
(* overtook.                                                                  *)
OlderNeedsSecond == Last = 0 \/ Time(Last) = Newest
  \/ /\ reissue.approved \notin {None, reissue.person}
     /\ Newest <= reissue.overtakes

(* 5: an entry has one request at a time.                                     *)
OneRequest == \A n \in 1..Last :
  Cardinality({r \in Replays : replay[r].sequence = n /\ replay[r].item = "sending"})
    + (IF lane.state = "sending" /\ n = lane.delivered + 1 THEN 1 ELSE 0) <= 1

(* A cancelled replay begins nothing more.                                    *)
CancelledBeginsNothing == [][\A r \in Replays :
  replay[r].state = "cancelled" /\ replay[r].item = "due" => replay'[r].item = "due"]_vars
=============================================================================
