-------------------------------- MODULE Sink --------------------------------
(* A stream, its ledger in Postgres, the checkpoints of its queries, and two *)
(* drivers. Spark plans a batch in the checkpoint (offsets/N), the sink      *)
(* writes it in one transaction, Spark commits it (commits/N). People adopt  *)
(* a new checkpoint, and put back the database or a checkpoint to an earlier *)
(* moment. A failover that lost transactions is a database put back while    *)
(* the drivers run on.                                                       *)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
  Drivers,
  Checkpoints,            \* each has its own query id, and each reads the source from its first event
  Events,                 \* how many the source has: 1, 2, ...
  Deciding,               \* those that make a decision, whose key is the event's; the others only move the state
  Codes,                  \* versions of the job: decisions of another version differ in their content
  MaxRuns, MaxCrashes, MaxRestores, MaxCopies, MaxAdopted,
  (* The safeties. *)
  EpochCheck, RunCheck,   \* a write compares the epoch, and the run, with those of the stream's row
  StreamRowLock,          \* from its first compare to its COMMIT, a transaction holds the stream's row
  QueryIdCheck,           \* a query id that the stream has not adopted is refused
  DigestCheck,            \* a batch that the ledger has is compared by its digest
  KeyCheck,               \* a key that was written before is a duplicate
  FirstBatchCheck,        \* a query of which the ledger has no batch begins with batch 0
  NewestBatchCheck,       \* the ledger still has the batch that this run wrote before
  BatchBeforeCheck,       \* the first batch of a run follows the newest of its query in the ledger
  OlderCheckpointCheck,   \* a run starts only where the ledger has no batch that the checkpoint has not planned
  OlderDatabaseCheck,     \* a run starts only where the ledger has the newest batch that the checkpoint committed
  AskLedgerAfterCommit    \* a COMMIT without an answer: the next attempt reads the ledger

VARIABLES
  log,     \* the database after each transaction, the newest last; once no restore is left, only the newest
  folder,  \* of each checkpoint: the plans of its batches (the last event of each), and the newest committed batch
  driver,  \* what each driver knows
  used     \* how often each thing happened that the constants limit

vars == <<log, folder, driver, used>>

None == -1
Nothing == [planned |-> None, committed |-> None]
Down == [state |-> "down", checkpoint |-> None, run |-> 0, epoch |-> 0, code |-> 0, seen |-> Nothing,
         batch |-> None, newest |-> None]
Init ==
  /\ log = <<[epoch |-> 0, run |-> 0, query |-> None, ledger |-> {}]>>
  /\ folder = [c \in Checkpoints |-> [plans |-> <<>>, committed |-> None]]
  /\ driver = [d \in Drivers |-> Down]
  /\ used = [runs |-> 0, crashes |-> 0, restores |-> 0, copies |-> 0, adopted |-> 0]

Max(a, b) == IF a > b THEN a ELSE b

(* The database. A row of the ledger: what it read (its first and last       *)
(* event), its digest, the keys that it wrote. `owner` and `adopted` are     *)
(* what the stream's row had at its COMMIT; only invariants read them.       *)
Db == log[Len(log)]
Transaction(db) == log' = IF used.restores = MaxRestores THEN <<db>> ELSE Append(log, db)
Row(query, n) == CHOOSE row \in Db.ledger : row.query = query /\ row.batch = n
Has(query, n) == \E row \in Db.ledger : row.query = query /\ row.batch = n
Batches(query) == {row.batch : row \in {each \in Db.ledger : each.query = query}}
Newest(query) == IF Batches(query) = {} THEN None ELSE CHOOSE n \in Batches(query) : \A m \in Batches(query) : n >= m
Keys == UNION {row.keys : row \in Db.ledger}

(* A checkpoint. *)
Planned(c) == Len(folder[c].plans) - 1
First(c, n) == IF n = 0 THEN 1 ELSE folder[c].plans[n] + 1
Last(c, n) == folder[c].plans[n + 1]
Seen(c) == [planned |-> Planned(c), committed |-> folder[c].committed]
NextBatch(seen) == IF seen.committed # None THEN seen.committed + 1 ELSE Max(seen.planned, 0)

Is(d, state) == driver[d].state = state
Use(what) == used' = [used EXCEPT ![what] = @ + 1]
Set(d, me) == driver' = [driver EXCEPT ![d] = me]
Stop(d) == Set(d, Down)

------------------------------------------------------------------------------
(* A run starts. *)

ReadCheckpoint(d, c, code) ==  \* lineage.read_checkpoint, outside the transaction; Spark has made a run id
  /\ Is(d, "down") /\ used.runs < MaxRuns
  /\ Use("runs")
  /\ Set(d, [Down EXCEPT !.state = "starting", !.checkpoint = c, !.run = used.runs + 1, !.code = code, !.seen = Seen(c)])
  /\ UNCHANGED <<log, folder>>

StartRefused(c, seen) ==  \* write_batch.require_adopted, lineage.require_beginning, lineage.compare
  LET recorded == Newest(c)
      again == IF recorded > seen.planned THEN Seen(c) ELSE seen  \* Writer._compare reads it again under the lock
  IN \/ QueryIdCheck /\ Db.query \notin {None, c}
     \/ FirstBatchCheck /\ recorded = None /\ NextBatch(seen) > 0
     \/ OlderCheckpointCheck /\ recorded > again.planned
     \/ OlderDatabaseCheck /\ recorded # None /\ recorded < again.committed

BeginRun(d) ==  \* Writer.begin_run: one transaction
  LET me == driver[d] IN
  /\ Is(d, "starting")
  /\ IF StartRefused(me.checkpoint, me.seen)
     THEN Stop(d) /\ UNCHANGED log
     ELSE /\ Transaction([Db EXCEPT !.epoch = @ + 1, !.run = me.run, !.query = me.checkpoint])
          /\ Set(d, [me EXCEPT !.state = "running", !.epoch = Db.epoch + 1])
  /\ UNCHANGED <<folder, used>>

------------------------------------------------------------------------------
(* A batch. *)

PlanBatch(d) ==  \* Spark: offsets/N, created only where there is none; the first one of a run may be there
  LET me == driver[d]
      c == me.checkpoint
      n == IF me.batch = None THEN folder[c].committed + 1 ELSE me.batch + 1
  IN /\ Is(d, "running")
     /\ IF n <= Planned(c)
        THEN /\ IF me.batch = None THEN Set(d, [me EXCEPT !.state = "planned", !.batch = n]) ELSE Stop(d)
             /\ UNCHANGED folder
        ELSE \E last \in First(c, n)..Events :
             /\ folder' = [folder EXCEPT ![c].plans = Append(@, last)]
             /\ Set(d, [me EXCEPT !.state = "planned", !.batch = n])
     /\ UNCHANGED <<log, used>>

Decisions(c, n) == (First(c, n)..Last(c, n)) \cap Deciding
Digest(me) ==
  LET decisions == Decisions(me.checkpoint, me.batch)
  IN IF decisions = {} THEN <<>> ELSE <<me.code, decisions>>

Fenced(me) == (EpochCheck /\ Db.epoch # me.epoch) \/ (RunCheck /\ Db.run # me.run)

WriteRefused(me) ==  \* write_batch.lock, then Writer._recorded and ledger.accept
  LET c == me.checkpoint
      n == me.batch
  IN \/ Fenced(me)
     \/ QueryIdCheck /\ Db.query # c
     \/ DigestCheck /\ Has(c, n) /\ Row(c, n).digest # Digest(me)
     \/ FirstBatchCheck /\ ~Has(c, n) /\ me.newest = None /\ Newest(c) = None /\ n > 0
     \/ BatchBeforeCheck /\ ~Has(c, n) /\ me.newest = None /\ Newest(c) # None /\ Newest(c) < n - 1
     \/ NewestBatchCheck /\ ~Has(c, n) /\ me.newest \notin {None, n} /\ ~Has(c, me.newest)

Written(me) ==  \* the ledger with the batch
  LET c == me.checkpoint
      n == me.batch
      decisions == Decisions(c, n)
  IN Db.ledger \cup {[query |-> c, batch |-> n, first |-> First(c, n), last |-> Last(c, n), digest |-> Digest(me),
                      keys |-> IF KeyCheck THEN decisions \ Keys ELSE decisions,
                      run |-> me.run, owner |-> Db.run, adopted |-> Db.query]}

Finished(me) == [me EXCEPT !.state = "written", !.newest = me.batch]

WriteBatch(d, answer) ==  \* Writer.write: one transaction, or its repetition after a COMMIT without an answer
  LET me == driver[d] IN
  /\ StreamRowLock
  /\ Is(d, "planned") \/ (Is(d, "unknown") /\ AskLedgerAfterCommit)
  /\ IF WriteRefused(me)
     THEN answer = "committed" /\ Stop(d) /\ UNCHANGED log
     ELSE IF Has(me.checkpoint, me.batch)
     THEN answer = "committed" /\ Set(d, Finished(me)) /\ UNCHANGED log  \* Replayed
     ELSE /\ IF answer = "lost, aborted" THEN UNCHANGED log ELSE Transaction([Db EXCEPT !.ledger = Written(me)])
          /\ Set(d, IF answer = "committed" THEN Finished(me) ELSE [me EXCEPT !.state = "unknown"])
  /\ UNCHANGED <<folder, used>>

ReadLedger(d) ==  \* without the lock: what was compared may have changed at COMMIT
  LET me == driver[d] IN
  /\ ~StreamRowLock
  /\ Is(d, "planned") \/ Is(d, "unknown")
  /\ IF WriteRefused(me) THEN Stop(d)
     ELSE Set(d, IF Has(me.checkpoint, me.batch) THEN Finished(me) ELSE [me EXCEPT !.state = "compared"])
  /\ UNCHANGED <<log, folder, used>>

CommitUnlocked(d) ==  \* pk_batch and pk_entry_key hold without the lock, too
  LET me == driver[d] IN
  /\ Is(d, "compared")
  /\ IF Has(me.checkpoint, me.batch)
     THEN Set(d, [me EXCEPT !.state = "planned"]) /\ UNCHANGED log
     ELSE Transaction([Db EXCEPT !.ledger = Written(me)]) /\ Set(d, Finished(me))
  /\ UNCHANGED <<folder, used>>

AssumeWritten(d) ==  \* without the ledger, a driver can only guess
  /\ ~AskLedgerAfterCommit /\ Is(d, "unknown")
  /\ Set(d, Finished(driver[d])) /\ UNCHANGED <<log, folder, used>>

CommitBatch(d) ==  \* Spark: commits/N
  LET me == driver[d] IN
  /\ Is(d, "written")
  /\ folder' = [folder EXCEPT ![me.checkpoint].committed = Max(@, me.batch)]
  /\ Set(d, [me EXCEPT !.state = "running"])
  /\ UNCHANGED <<log, used>>

------------------------------------------------------------------------------
(* What befalls them, and what people do. *)

Crash(d) ==
  /\ ~Is(d, "down") /\ used.crashes < MaxCrashes
  /\ Use("crashes") /\ Stop(d) /\ UNCHANGED <<log, folder>>

PutBackDatabase == \E n \in 1..Len(log) - 1 :  \* by people, or by a failover to a standby that was behind
  /\ used.restores < MaxRestores
  /\ Use("restores")
  /\ log' = IF used.restores + 1 = MaxRestores THEN <<log[n]>> ELSE SubSeq(log, 1, n)
  /\ driver' = [d \in Drivers |-> IF Is(d, "compared") THEN [driver[d] EXCEPT !.state = "planned"] ELSE driver[d]]
  /\ UNCHANGED folder

PutBackCheckpoint(c, planned, committed) ==  \* an older copy; no driver of it runs
  /\ used.copies < MaxCopies
  /\ \A d \in Drivers : driver[d].checkpoint # c
  /\ planned - committed \in {0, 1}
  /\ planned < Planned(c) \/ (planned = Planned(c) /\ committed < folder[c].committed)
  /\ Use("copies")
  /\ folder' = [folder EXCEPT ![c] = [plans |-> SubSeq(@.plans, 1, planned + 1), committed |-> committed]]
  /\ UNCHANGED <<log, driver>>

Adopt(c) ==  \* holdfast stream adopt
  /\ Db.query \notin {None, c} /\ used.adopted < MaxAdopted
  /\ Use("adopted")
  /\ Transaction([Db EXCEPT !.query = c])
  /\ UNCHANGED <<folder, driver>>

Next ==
  \/ \E d \in Drivers :
       \/ \E c \in Checkpoints, code \in Codes : ReadCheckpoint(d, c, code)
       \/ BeginRun(d)
       \/ PlanBatch(d)
       \/ \E answer \in {"committed", "lost, committed", "lost, aborted"} : WriteBatch(d, answer)
       \/ ReadLedger(d) \/ CommitUnlocked(d) \/ AssumeWritten(d)
       \/ CommitBatch(d)
       \/ Crash(d)
  \/ PutBackDatabase
  \/ \E c \in Checkpoints, planned, committed \in None..Events : PutBackCheckpoint(c, planned, committed)
  \/ \E c \in Checkpoints : Adopt(c)

Spec == Init /\ [][Next]_vars

------------------------------------------------------------------------------
(* Invariants, with the number of the guarantee.                             *)

TypeOK ==
  /\ \A d \in Drivers : driver[d].state \in {"down", "starting", "running", "planned", "unknown", "compared", "written"}
  /\ \A c \in Checkpoints : folder[c].committed <= Planned(c) /\ Planned(c) < Events

(* 1: no key is written twice, and no batch. *)
WrittenOnce ==
  \A a, b \in Db.ledger : a # b => a.keys \cap b.keys = {} /\ <<a.query, a.batch>> # <<b.query, b.batch>>

(* 2: what the owner of the stream took for written is what the ledger has. *)
AcceptedAsWritten ==
  \A d \in Drivers : LET me == driver[d] IN
    Is(d, "written") /\ Db.run = me.run /\ Has(me.checkpoint, me.batch)
      => Row(me.checkpoint, me.batch).digest = Digest(me)

(* 3: only the adopted query writes. *)
AdoptedWrites == \A row \in Db.ledger : row.adopted = row.query

(* 3: no batch is written after one that the ledger does not have, or has with other events. *)
NoGap ==
  \A row \in Db.ledger :
    IF row.batch = 0 THEN row.first = 1
    ELSE Has(row.query, row.batch - 1) /\ Row(row.query, row.batch - 1).last + 1 = row.first

(* 3: what a checkpoint counts as done is in the ledger; after a restore, or no run starts from it. *)
NothingLost ==
  \A c \in Checkpoints : \A n \in 0..folder[c].committed :
    ~Has(c, n) => used.restores > 0 /\ StartRefused(c, Seen(c))

(* 3: what a checkpoint counts as read was read by the batch in the ledger. *)
ReadAsWritten ==
  \A c \in Checkpoints : \A n \in 0..folder[c].committed :
    Has(c, n) => Row(c, n).first = First(c, n) /\ Row(c, n).last = Last(c, n)

(* 4: whoever writes has the stream. *)
OneWriter == \A row \in Db.ledger : row.owner = row.run
=============================================================================
