----------------------------- MODULE Decisions -----------------------------
(* The decisions of one subject: streams of jobs write them, the sink        *)
(* suppresses what repeats or was overtaken, rows that it refused wait in    *)
(* the quarantine, and people put these back. Receivers act on the last      *)
(* entry, so nobody makes an older decision the last one alone.              *)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
  Streams,             \* of jobs; each keeps the transition state of the subject for itself
  Types, Times,
  Latest,              \* the database's clock plus the tolerance: what is dated later is quarantined
  People,
  MaxMade,             \* decisions of jobs
  MaxQuarantined,
  KeepRepeats,         \* whether people put rows back with --keep-repeats, too
  (* The safeties. *)
  SubjectLock,         \* the subject's row is locked from its read to COMMIT
  KeyCheck,            \* a key that was written before is a duplicate
  SuppressionPerStream,\* a decision is compared with those of its own stream
  OvertakenCheck,      \* a job's decision that occurred before the newest one of its stream is suppressed
  FutureCheck,         \* a decision dated too far ahead is quarantined
  KeepSuppressed,      \* what is suppressed is kept
  OvertakesCheck,      \* a row that would follow a newer decision is proposed
  SecondPerson,        \* another person approves it
  CompareUnderLock,    \* the sink compares the subject again under its lock
  SequenceCheck        \* also by its last sequence, since times may be equal

VARIABLES
  entries,     \* of the subject, by sequence: [stream, type, at, hand, people, seen]
  transition,  \* of each stream: its last type, and the time of its newest decision
  suppressed,  \* with the last type of its own stream at that moment, for invariants
  quarantine,  \* rows, each as the decision that it would be
  proposals,
  task,        \* what each person's command has compared, and each job's without a lock
  made         \* the decisions of jobs, for invariants

vars == <<entries, transition, suppressed, quarantine, proposals, task, made>>

Never == [type |-> "none", at |-> 0]
Idle == [state |-> "idle"]
Ways == IF KeepRepeats THEN {TRUE, FALSE} ELSE {TRUE}  \* TRUE: as a transition
None == [seen |-> -1, at |-> 0]

Init ==
  /\ entries = <<>>
  /\ transition = [s \in Streams |-> Never]
  /\ suppressed = {} /\ quarantine = {} /\ proposals = {}
  /\ task = [p \in People \cup Streams |-> Idle]
  /\ made = {}

Decisions == [stream : Streams, type : Types, at : Times]
Decision(e) == [stream |-> e.stream, type |-> e.type, at |-> e.at]
Known(d) == \E i \in DOMAIN entries : Decision(entries[i]) = d
Later(a, b) == IF a > b THEN a ELSE b
OfSubject ==  \* what all streams shared before each had a state of its own
  IF entries = <<>> THEN Never
  ELSE [type |-> entries[Len(entries)].type,
        at |-> CHOOSE t \in {entries[i].at : i \in DOMAIN entries} : \A i \in DOMAIN entries : t >= entries[i].at]
State(s) == IF SuppressionPerStream THEN transition[s] ELSE OfSubject

(* numbering.number: why a decision is not written, with the state of its stream. *)
Cause(d, state) ==
  IF OvertakenCheck /\ d.at < state.at THEN "overtaken"
  ELSE IF d.type = state.type THEN "repeated"
  ELSE "none"

Written(d, sequence, hand, people, seen) ==
  LET entry == [stream |-> d.stream, type |-> d.type, at |-> d.at, sequence |-> sequence, hand |-> hand,
                people |-> people, seen |-> seen]
  IN /\ entries' = Append(entries, entry)
     /\ transition' = [transition EXCEPT ![d.stream] = [type |-> d.type, at |-> Later(@.at, d.at)]]

Suppressed(d, cause) ==
  [stream |-> d.stream, type |-> d.type, at |-> d.at, cause |-> cause, own |-> transition[d.stream]]

------------------------------------------------------------------------------
(* A job: each decision is a batch of its own.                               *)

New(d) == ~(d \in made) /\ Cardinality(made) < MaxMade /\ made' = made \cup {d}

TooLate(d) == FutureCheck /\ d.at > Latest

WriteDecision(d) ==  \* write_batch.write: the subject's row is locked
  /\ SubjectLock /\ ~TooLate(d)
  /\ New(d) \/ (d \in made /\ ~KeyCheck /\ UNCHANGED made)
  /\ LET cause == Cause(d, State(d.stream)) IN
     IF KeyCheck /\ Known(d) THEN UNCHANGED <<entries, transition, suppressed>>  \* a duplicate
     ELSE IF cause # "none"
     THEN /\ suppressed' = IF KeepSuppressed THEN suppressed \cup {Suppressed(d, cause)} ELSE suppressed
          /\ UNCHANGED <<entries, transition>>
     ELSE Written(d, Len(entries) + 1, FALSE, {}, Len(entries)) /\ UNCHANGED suppressed
  /\ UNCHANGED <<quarantine, proposals, task>>

ReadSubject(d) ==  \* without the lock
  /\ ~SubjectLock /\ task[d.stream] = Idle /\ New(d)
  /\ task' = [task EXCEPT ![d.stream] = [state |-> "read", decision |-> d, sequence |-> Len(entries) + 1]]
  /\ UNCHANGED <<entries, transition, suppressed, quarantine, proposals>>

CommitUnlocked(s) ==
  /\ task[s].state = "read"
  /\ task' = [task EXCEPT ![s] = Idle]
  /\ Written(task[s].decision, task[s].sequence, FALSE, {}, Len(entries))
  /\ UNCHANGED <<suppressed, quarantine, proposals, made>>

Refuse(d) ==  \* a row that the sink cannot take for an entry, or that is dated too far ahead
  /\ Cardinality(quarantine) < MaxQuarantined /\ New(d)
  /\ quarantine' = quarantine \cup {[decision |-> d, open |-> TRUE]}
  /\ UNCHANGED <<entries, transition, suppressed, proposals, task>>

------------------------------------------------------------------------------
(* A person puts a row back.                                                 *)

(* The newest decision, and whether a row would overtake it: two types of    *)
(* one time are revisions of a window, and the later one is not known.       *)
Newest == CHOOSE i \in DOMAIN entries :
  \A j \in DOMAIN entries : entries[j].at < entries[i].at \/ (entries[j].at = entries[i].at /\ j <= i)
Overtakes(d) ==
  IF entries = <<>> THEN None
  ELSE LET newest == entries[Newest] IN
       IF newest.at > d.at \/ (newest.at = d.at /\ newest.type # d.type)
       THEN [seen |-> Len(entries), at |-> newest.at] ELSE None

Command(p, row, way, over, people) ==
  task' = [task EXCEPT ![p] = [state |-> "compared", row |-> row, way |-> way, over |-> over, people |-> people,
                               sequence |-> Len(entries)]]

Requeue(p, row, way) ==  \* quarantine requeue: Quarantine.overtakes, without a lock
  /\ task[p] = Idle /\ row.open
  /\ IF OvertakesCheck /\ Overtakes(row.decision) # None
     THEN /\ proposals' = proposals \cup {[row |-> row, way |-> way, over |-> Overtakes(row.decision), by |-> p,
                                           approved |-> {}]}
          /\ UNCHANGED task
     ELSE Command(p, row, way, None, {p}) /\ UNCHANGED proposals
  /\ UNCHANGED <<entries, transition, suppressed, quarantine, made>>

Approve(p, proposal) ==  \* proposal approve
  /\ proposal.approved = {} /\ (SecondPerson => p # proposal.by)
  /\ proposals' = (proposals \ {proposal}) \cup {[proposal EXCEPT !.approved = {p}]}
  /\ UNCHANGED <<entries, transition, suppressed, quarantine, task, made>>

Apply(p, proposal) ==  \* quarantine requeue --proposal: actions.allowed, without a lock
  /\ task[p] = Idle /\ proposal.approved # {} /\ proposal.row \in quarantine /\ proposal.row.open
  /\ Overtakes(proposal.row.decision) = proposal.over
  /\ Command(p, proposal.row, proposal.way, proposal.over, {proposal.by} \cup proposal.approved)
  /\ UNCHANGED <<entries, transition, suppressed, quarantine, proposals, made>>

MayFollow(me) ==  \* requeue._require_newest
  IF me.over # None THEN Len(entries) = me.over.seen
  ELSE /\ entries = <<>> \/ entries[Newest].at <= me.row.decision.at
       /\ SequenceCheck => Len(entries) = me.sequence

Foresee(p) ==  \* requeue._foresee: what would not be written begins no run; no lock
  /\ task[p].state = "compared"
  /\ IF MayFollow(task[p])
     THEN task' = [task EXCEPT ![p] = [@ EXCEPT !.state = "foreseen"]]
     ELSE task' = [task EXCEPT ![p] = Idle]
  /\ UNCHANGED <<entries, transition, suppressed, quarantine, proposals, made>>

WriteByHand(p) ==  \* requeue._write and _insist, under the subject's lock
  LET me == task[p]
      d == me.row.decision
  IN
  /\ me.state = "foreseen"
  /\ task' = [task EXCEPT ![p] = Idle]
  /\ IF \/ me.row \notin quarantine                                   \* resolved meanwhile
        \/ KeyCheck /\ Known(d)
        \/ TooLate(d)
        \/ me.way /\ Cause(d, State(d.stream)) # "none"
        \/ CompareUnderLock /\ ~MayFollow(me)
     THEN UNCHANGED <<entries, transition, quarantine>>
     ELSE /\ Written(d, Len(entries) + 1, TRUE, me.people, me.over.seen)
          /\ quarantine' = (quarantine \ {me.row}) \cup {[me.row EXCEPT !.open = FALSE]}
  /\ UNCHANGED <<suppressed, proposals, made>>

Next ==
  \/ \E d \in Decisions : WriteDecision(d) \/ ReadSubject(d) \/ Refuse(d)
  \/ \E s \in Streams : CommitUnlocked(s)
  \/ \E p \in People :
       \/ \E row \in quarantine, way \in Ways : Requeue(p, row, way)
       \/ \E proposal \in proposals : Approve(p, proposal) \/ Apply(p, proposal)
       \/ Foresee(p) \/ WriteByHand(p)

Spec == Init /\ [][Next]_vars

------------------------------------------------------------------------------
(* Invariants, with the number of the guarantee.                             *)

TypeOK == \A i \in DOMAIN entries : Decision(entries[i]) \in Decisions

(* 1, 5: sequences have no gap, and are those of the order of COMMIT. *)
NoGap == \A i \in DOMAIN entries : entries[i].sequence = i

(* 1, 3: no decision is written twice. *)
WrittenOnce == \A i, j \in DOMAIN entries : Decision(entries[i]) = Decision(entries[j]) => i = j

(* 7: every decision of a job is an entry, or is kept where people find it. *)
NothingDropped == \A d \in made :
  \/ Known(d)
  \/ \E x \in suppressed : Decision(x) = d
  \/ \E row \in quarantine : row.decision = d
  \/ task[d.stream].state = "read"

(* 3: what is suppressed changes nothing in its own stream. *)
SuppressionHidesNoChange ==
  \A x \in suppressed : IF x.cause = "repeated" THEN x.own.type = x.type ELSE x.at < x.own.at

(* 8: no decision is suppressed because of one that is dated too far ahead. *)
NoDateSilences == \A x \in suppressed : x.cause = "overtaken" => x.own.at <= Latest

(* 11: a job's decision is not followed by an older one of the same stream that no person wrote. *)
JobsWriteInOrder ==
  \A i, j \in DOMAIN entries :
    i < j /\ entries[i].stream = entries[j].stream /\ ~entries[j].hand => entries[i].at <= entries[j].at

(* 11: an entry by hand that follows a newer decision was approved by a      *)
(* second person, and what they saw was all that it follows.                 *)
OlderNeedsTwo ==
  \A j \in DOMAIN entries :
    entries[j].hand /\ (\E i \in 1..j - 1 : entries[i].at > entries[j].at
                                            \/ (entries[i].at = entries[j].at /\ entries[i].type # entries[j].type))
      => Cardinality(entries[j].people) = 2 /\ entries[j].seen = j - 1
=============================================================================
