------------------------------- MODULE Stages -------------------------------
(* A batch that tasks stage: each copies its rows into the batch's table, in *)
(* several transactions; the driver's transaction takes over the rows of the *)
(* attempts whose summaries reached it. A table is unlogged, so it is empty  *)
(* after a crash of the server. Tasks outlive their driver.                  *)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
  Drivers,
  MaxRuns, MaxBatches,
  MaxAttempts,       \* of the one task that a batch has
  MaxFailovers, MaxServerCrashes,
  (* The safeties. *)
  FenceCheck,        \* the driver's transaction compares epoch and run
  CountCheck,        \* the driver compares the count of rows with what the tasks promised
  WinningAttempts,   \* rows of other attempts are left
  StageOfRun,        \* a row names the run of its task, since a failover gives a table's number out again
  DropOnlyOlder,     \* a run drops stages of its epoch and of older ones only
  DropAsOwner        \* of its own epoch only while it has the stream

VARIABLES
  log,     \* the database after each transaction; once no failover is left, only the newest
  rows,    \* in the stages: unlogged, so in no standby and lost in a crash
  tasks,   \* attempts that copy, also those that nobody waits for
  driver,
  used     \* how often each thing happened that the constants limit

vars == <<log, rows, tasks, driver, used>>

Chunks == 2
Down == [state |-> "down", run |-> 0, epoch |-> 0, stage |-> 0, attempt |-> 0, robbed |-> FALSE]

Init ==
  /\ log = <<[epoch |-> 0, run |-> 0, next |-> 1, stages |-> {}, ledger |-> <<>>]>>
  /\ rows = {} /\ tasks = {}
  /\ driver = [d \in Drivers |-> Down]
  /\ used = [runs |-> 0, failovers |-> 0, crashes |-> 0]

Db == log[Len(log)]
Transaction(db) == log' = IF used.failovers = MaxFailovers THEN <<db>> ELSE Append(log, db)
Is(d, state) == driver[d].state = state
Use(what) == used' = [used EXCEPT ![what] = @ + 1]
Owns(me, db) == db.run = me.run /\ db.epoch = me.epoch

(* staging.drop_stages_until, and holdfast.drop_stages: what is left.        *)
MayDrop(me, db) == db.epoch > me.epoch \/ (db.epoch = me.epoch /\ (DropAsOwner => db.run = me.run))
Left(me, db) == IF MayDrop(me, db) THEN {s \in db.stages : DropOnlyOlder /\ s.epoch > me.epoch} ELSE db.stages
Ids(stages) == {s.id : s \in stages}
Keep(stages) == {row \in rows : row.stage \in Ids(stages)}
Robbed(d, me, left) ==  \* the drivers, of which those that have the stream may have lost their stage
  [e \in Drivers |->
    IF e = d THEN me
    ELSE [driver[e] EXCEPT !.robbed = @ \/ (Owns(driver[e], Db) /\ [id |-> driver[e].stage, epoch |-> driver[e].epoch] \in Db.stages \ left)]]

------------------------------------------------------------------------------

Start(d) ==  \* Writer.begin_run
  LET me == [Down EXCEPT !.state = "running", !.run = used.runs + 1, !.epoch = Db.epoch + 1]
      db == [Db EXCEPT !.epoch = @ + 1, !.run = used.runs + 1]
  IN /\ Is(d, "down") /\ used.runs < MaxRuns
     /\ Use("runs")
     /\ Transaction([db EXCEPT !.stages = Left(me, db)])
     /\ rows' = Keep(Left(me, db))
     /\ driver' = [driver EXCEPT ![d] = me]
     /\ UNCHANGED tasks

OpenStage(d) ==  \* staging.open_stage: drops older ones, and gives the table a number
  LET me == driver[d]
      left == Left(me, Db)
  IN /\ Is(d, "running") /\ Len(Db.ledger) < MaxBatches
     /\ Transaction([Db EXCEPT !.stages = left \cup {[id |-> Db.next, epoch |-> me.epoch]}, !.next = @ + 1])
     /\ rows' = Keep(left)
     /\ driver' = Robbed(d, [me EXCEPT !.state = "staging", !.stage = Db.next], left)
     /\ UNCHANGED <<tasks, used>>

StartTask(d) ==  \* Spark runs the task, or runs it again; both begin to count attempts at 1
  LET me == driver[d] IN
  /\ Is(d, "staging") /\ me.attempt < MaxAttempts
  /\ tasks' = tasks \cup {[stage |-> me.stage, run |-> me.run, attempt |-> me.attempt + 1, copied |-> 0]}
  /\ driver' = [driver EXCEPT ![d].attempt = @ + 1]
  /\ UNCHANGED <<log, rows, used>>

Copy(task) ==  \* staging.stage_rows: a chunk, in a transaction of its own
  /\ task.copied < Chunks
  /\ IF task.stage \in Ids(Db.stages)
     THEN /\ rows' = rows \cup {[stage |-> task.stage, run |-> task.run, attempt |-> task.attempt, chunk |-> task.copied + 1]}
          /\ tasks' = (tasks \ {task}) \cup {[task EXCEPT !.copied = @ + 1]}
     ELSE tasks' = tasks \ {task} /\ UNCHANGED rows  \* StageLost
  /\ UNCHANGED <<log, driver, used>>

Summary(d) ==  \* of the newest attempt, which has copied all
  LET me == driver[d] IN
  /\ Is(d, "staging")
  /\ [stage |-> me.stage, run |-> me.run, attempt |-> me.attempt, copied |-> Chunks] \in tasks
  /\ driver' = [driver EXCEPT ![d].state = "staged"]
  /\ UNCHANGED <<log, rows, tasks, used>>

InStage(me) == {row \in rows : row.stage = me.stage /\ (StageOfRun => row.run = me.run)}
OfAttempt(me) == {row \in InStage(me) : row.attempt = me.attempt}

TakeOver(d) ==  \* staging.take_over and write_batch.write
  LET me == driver[d] IN
  /\ Is(d, "staged")
  /\ IF \/ FenceCheck /\ ~Owns(me, Db)
        \/ me.stage \notin Ids(Db.stages)
        \/ CountCheck /\ Cardinality(OfAttempt(me)) # Chunks
     THEN driver' = [driver EXCEPT ![d].state = "failed"] /\ UNCHANGED log
     ELSE /\ Transaction([Db EXCEPT !.ledger = Append(@, [run |-> me.run, attempt |-> me.attempt, owner |-> Db.run,
                                                         rows |-> IF WinningAttempts THEN OfAttempt(me) ELSE InStage(me)])])
          /\ driver' = [driver EXCEPT ![d].state = "written"]
  /\ UNCHANGED <<rows, tasks, used>>

DropStages(d) ==  \* staging.drop_stages, also after a failure
  LET me == driver[d]
      left == Left(me, Db)
  IN /\ me.state \in {"written", "failed"}
     /\ Transaction([Db EXCEPT !.stages = left])
     /\ rows' = Keep(left)
     /\ driver' = Robbed(d, IF Is(d, "failed") THEN Down ELSE [me EXCEPT !.state = "running"], left)
     /\ UNCHANGED <<tasks, used>>

Crash(d) ==  \* its tasks go on
  ~Is(d, "down") /\ driver' = [driver EXCEPT ![d] = Down] /\ UNCHANGED <<log, rows, tasks, used>>

Connected == {task \in tasks : task.copied \notin 1..Chunks - 1}  \* an attempt that loses its connection ends

ServerCrash ==
  /\ used.crashes < MaxServerCrashes
  /\ Use("crashes") /\ rows' = {} /\ tasks' = Connected /\ UNCHANGED <<log, driver>>

Failover ==
  \E n \in 1..Len(log) - 1 :
    /\ used.failovers < MaxFailovers
    /\ Use("failovers")
    /\ log' = IF used.failovers + 1 = MaxFailovers THEN <<log[n]>> ELSE SubSeq(log, 1, n)
    /\ rows' = {} /\ tasks' = Connected /\ UNCHANGED driver

Next ==
  \/ \E d \in Drivers :
       Start(d) \/ OpenStage(d) \/ StartTask(d) \/ Summary(d) \/ TakeOver(d) \/ DropStages(d) \/ Crash(d)
  \/ \E task \in tasks : Copy(task)
  \/ ServerCrash
  \/ Failover

Spec == Init /\ [][Next]_vars

------------------------------------------------------------------------------
(* Invariants, with the number of the guarantee.                             *)

TypeOK ==
  /\ \A d \in Drivers : driver[d].state \in {"down", "running", "staging", "staged", "written", "failed"}
  /\ \A row \in rows : row.chunk \in 1..Chunks

(* 1: a batch is all rows of one attempt of each task, of its own run. *)
TakenWhole ==
  \A n \in DOMAIN Db.ledger : LET batch == Db.ledger[n] IN
    /\ Cardinality(batch.rows) = Chunks
    /\ \A row \in batch.rows : row.run = batch.run /\ row.attempt = batch.attempt

(* 4: whoever writes has the stream. *)
OneWriter == \A n \in DOMAIN Db.ledger : Db.ledger[n].owner = Db.ledger[n].run

(* The run that has the stream keeps its stage. *)
OwnerKeepsItsStage == \A d \in Drivers : ~driver[d].robbed
=============================================================================
