------------------------------- MODULE Fence -------------------------------
(* Who has a stream: the epoch and the run in its row, which every start of  *)
(* a run changes and every write compares. A driver claims the stream before *)
(* its run exists, to change files of the checkpoint. A COMMIT may get no    *)
(* answer, and a failover forgets the last transactions.                     *)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
  Drivers,
  MaxIds,             \* how many ids of runs and of claims there are
  MaxFailovers, MaxLost, MaxWrites, MaxWork,
  (* The safeties. *)
  EpochCheck,         \* a write compares the epoch with that of the stream's row
  RunCheck,           \* a write compares the run, too
  OwnershipCheck,     \* a driver that has claimed the stream takes it from its own runs only
  ExpectBeforeCommit, \* a driver counts an id as its own before the COMMIT that may get no answer
  TakeFree,           \* a free stream is taken before files are changed
  LockWhileWorking    \* the stream's row is locked while files are changed

VARIABLES
  log,     \* the database after each transaction, the newest last; once no failover is left, only the newest
  driver,  \* what each driver knows; `ids` are all that it ever used, and only invariants read them
  used     \* how often each thing happened that the constants limit

vars == <<log, driver, used>>

Free == 0  \* the run of a stream that no run ever had
Down == [state |-> "down", claimed |-> FALSE, claim |-> Free, own |-> {}, id |-> Free, epoch |-> 0, ids |-> {}, by |-> Free]

Init ==
  /\ log = <<[epoch |-> 0, run |-> Free, ledger |-> {}]>>
  /\ driver = [d \in Drivers |-> Down]
  /\ used = [ids |-> 0, failovers |-> 0, lost |-> 0, writes |-> 0, work |-> 0]

Db == log[Len(log)]
Transaction(db) == log' = IF used.failovers = MaxFailovers THEN <<db>> ELSE Append(log, db)
Is(d, state) == driver[d].state = state
Set(d, me) == driver' = [driver EXCEPT ![d] = me]
Use(what) == used' = [used EXCEPT ![what] = @ + 1]
Locked ==  \* a stream that no run ever had may have no row to lock
  LockWhileWorking /\ (TakeFree \/ Db.run # Free) /\ \E d \in Drivers : Is(d, "working")

(* The answer to a COMMIT: it came, or it did not, and the COMMIT happened or not. *)
Answers == {"committed", "lost, committed", "lost, aborted"}
Answer(answer) ==
  IF answer = "committed" THEN UNCHANGED used ELSE used.lost < MaxLost /\ Use("lost")

(* Ownership.require: the stream is as the claim of this driver left it, or one of its own runs has it. *)
Owns(me) == me.claimed => Db.run \in me.own
Allowed(me) == OwnershipCheck => Owns(me)

(* Ownership.expect and its result. *)
Counted(me, id, answer) ==
  IF ExpectBeforeCommit \/ answer = "committed" THEN [me EXCEPT !.own = @ \cup {id}] ELSE me

Refuse(d) == Set(d, [driver[d] EXCEPT !.state = "fenced", !.by = Db.run])

------------------------------------------------------------------------------

Begin(d, state) ==  \* a new id: of a claim, or Spark's of a run
  LET me == driver[d] IN
  /\ used.ids < MaxIds
  /\ Use("ids")
  /\ Set(d, [me EXCEPT !.state = state, !.id = used.ids + 1, !.ids = @ \cup {used.ids + 1}])
  /\ UNCHANGED log

BeginClaim(d) == Is(d, "down") /\ Begin(d, "claiming")

Claim(d, answer) ==  \* Writer.claim: one transaction, or its repetition
  LET me == Counted(driver[d], driver[d].id, answer) IN
  /\ Is(d, "claiming") /\ ~Locked
  /\ IF ~Allowed(driver[d]) THEN answer = "committed" /\ Refuse(d) /\ UNCHANGED log
     ELSE IF Db.run = Free
     THEN /\ answer = "committed"
          /\ Set(d, [me EXCEPT !.state = "claimed", !.claimed = TRUE, !.own = @ \cup {Free}])
          /\ UNCHANGED log
     ELSE /\ IF answer = "lost, aborted" THEN UNCHANGED log
             ELSE Transaction([Db EXCEPT !.epoch = @ + 1, !.run = me.id])
          /\ Set(d, IF answer = "committed"
                    THEN [me EXCEPT !.state = "claimed", !.claimed = TRUE, !.claim = me.id] ELSE me)
  /\ Answer(answer)

BeginWork(d) ==  \* Writer.owned, which locks the row; a free one is taken first
  LET me == driver[d] IN
  /\ Is(d, "claimed") /\ used.work < MaxWork /\ ~Locked
  /\ Use("work")
  /\ IF Allowed(me) THEN Set(d, [me EXCEPT !.state = "working"]) ELSE Refuse(d)
  /\ UNCHANGED log

EndWork(d) ==  \* COMMIT, by which a free stream is this driver's
  LET me == driver[d] IN
  /\ Is(d, "working")
  /\ IF TakeFree /\ Db.run = Free
     THEN /\ used.ids < MaxIds
          /\ Use("ids")
          /\ Transaction([Db EXCEPT !.epoch = @ + 1, !.run = used.ids + 1])
          /\ Set(d, [me EXCEPT !.state = "claimed", !.own = @ \cup {used.ids + 1}, !.ids = @ \cup {used.ids + 1}])
     ELSE Set(d, [me EXCEPT !.state = "claimed"]) /\ UNCHANGED <<log, used>>

BeginRun(d) ==  \* Spark starts the query: without a claim, after one, or again in the same process
  /\ driver[d].state \in {"down", "claimed", "running"}
  /\ Begin(d, "starting")

StartRun(d, answer) ==  \* Writer.begin_run: one transaction, or its repetition
  LET me == Counted(driver[d], driver[d].id, answer)
      epoch == IF me.claim # Free /\ Db.run = me.claim THEN Db.epoch ELSE Db.epoch + 1
  IN
  /\ Is(d, "starting") /\ ~Locked
  /\ IF ~Allowed(driver[d]) THEN answer = "committed" /\ Refuse(d) /\ UNCHANGED log
     ELSE /\ IF answer = "lost, aborted" THEN UNCHANGED log
             ELSE Transaction([Db EXCEPT !.epoch = epoch, !.run = me.id])
          /\ Set(d, IF answer = "committed" THEN [me EXCEPT !.state = "running", !.epoch = epoch] ELSE me)
  /\ Answer(answer)

MayWrite(me) ==  \* write_batch.lock
  /\ EpochCheck => Db.epoch = me.epoch
  /\ RunCheck => Db.run = me.id

Write(d) ==  \* Writer.write
  LET me == driver[d] IN
  /\ Is(d, "running") /\ used.writes < MaxWrites /\ ~Locked
  /\ Use("writes")
  /\ IF MayWrite(me)
     THEN /\ Transaction([Db EXCEPT !.ledger = @ \cup {[epoch |-> me.epoch, run |-> me.id]}])
          /\ UNCHANGED driver
     ELSE Refuse(d) /\ UNCHANGED log

Crash(d) == ~Is(d, "down") /\ Set(d, Down) /\ UNCHANGED <<log, used>>

Failover ==  \* to a standby that was behind; work that was under way ends
  \E n \in 1..Len(log) - 1 :
    /\ used.failovers < MaxFailovers
    /\ Use("failovers")
    /\ log' = IF used.failovers + 1 = MaxFailovers THEN <<log[n]>> ELSE SubSeq(log, 1, n)
    /\ \A d \in Drivers : ~Is(d, "working")
    /\ UNCHANGED driver

Next ==
  \/ \E d \in Drivers :
       \/ BeginClaim(d) \/ BeginWork(d) \/ EndWork(d) \/ BeginRun(d) \/ Write(d) \/ Crash(d)
       \/ \E answer \in Answers : Claim(d, answer) \/ StartRun(d, answer)
  \/ Failover

Spec == Init /\ [][Next]_vars

------------------------------------------------------------------------------
(* Invariants, with the number of the guarantee.                             *)

TypeOK ==
  /\ \A d \in Drivers : driver[d].state \in {"down", "claiming", "claimed", "working", "starting", "running", "fenced"}
  /\ Db.run \in 0..MaxIds

(* 4: of all runs, one may write. *)
OneWriter ==
  \A c, d \in Drivers : Is(c, "running") /\ Is(d, "running") /\ MayWrite(driver[c]) /\ MayWrite(driver[d]) => c = d

(* 4: an epoch of the ledger names one run. *)
EpochNamesOneRun == \A a, b \in Db.ledger : a.epoch = b.epoch => a.run = b.run

(* 4: while a driver changes files of the checkpoint, the stream is its own, or free. *)
WorksAsOwner == \A d \in Drivers : Is(d, "working") => Db.run \in driver[d].own

(* 4: a driver that has claimed the stream never takes it back from a run of another one. *)
NotTakenBack ==
  [][\A d \in Drivers : LET me == driver[d] IN
       me.claimed /\ Db.run \notin me.own /\ used.failovers' = used.failovers
         => (Db.run)' = Db.run \/ (Db.run)' \notin driver'[d].ids]_vars

(* A driver is not refused because of its own run. *)
NotFencedByItself ==
  used.failovers = 0 => \A d \in Drivers : Is(d, "fenced") => driver[d].by \notin driver[d].ids
=============================================================================
