--------------------------- MODULE CheckpointFiles ---------------------------
(* Two drivers of one stream, the files of its checkpoint, and the ledger.     *)
(*                                                                             *)
(* Spark's file source logs the files of the next batch (sources/0/K), Spark   *)
(* plans the batch (offsets/N has the newest K), the sink writes it to the     *)
(* ledger, and Spark records it as done (commits/N). A start takes the next    *)
(* epoch, deletes log entries that no plan has, and lets Spark read the rest.  *)
(* A savepoint is read from the files while drivers run, and a new checkpoint  *)
(* begins with it. Between the moment a write is sent and the moment it lands, *)
(* everything else may happen.                                                 *)
EXTENDS Integers, FiniteSets, TLC

CONSTANTS
  Drivers, Files,
  MaxBatch, MaxEntry, MaxEpoch,  \* bounds: batches, log entries, and starts
  Create,           \* "atomic": a taken name is refused when the write lands; "rename": the name
                    \* is looked at, then replaced; "copy": so, and also after its writer has died
  OwnWrite,         \* how a refused write that was sent again knows its own: "id", "content", "never"
  LostAnswers,      \* whether an answer of the store can be lost
  EpochBeforePlan,  \* a start takes the epoch before it reads the plans for a decision
  FenceDeletion,    \* an entry is deleted only by the run that owns the stream, under its lock
  HeldThroughout,   \* the lock is held until the deletion has reached the disk
  FenceWrites,      \* a batch is written only under the newest epoch
  StaleIsFault,     \* whether a batch of an older run is a fault by itself, whatever it holds
  DigestCheck,      \* a batch that the ledger has must come with the same content
  DropOrphans,      \* a plan whose entry is gone is dropped, if the ledger does not have the batch
  ChainCheck,       \* before each batch, the log is compared with memory, and what is done with the ledger
  Savepoints,       \* whether savepoints are made and begun with
  SavepointProof,   \* a savepoint is made of a batch that is done and in the ledger
  RepeatAsPlanned   \* a new checkpoint repeats the ledger's later batches as they were planned

VARIABLES
  arrived,            \* the event files in the directory
  log, plan, commits, \* the checkpoint: [by |-> epoch of its writer, v |-> content]
  folder,             \* the number of the stream's checkpoint folder
  ledger,             \* batch -> the files whose events it has
  epoch, holder,      \* the stream's row: its epoch, and the driver that has locked it
  pc, mine, home, batch, pos, last, seen, want, input, past, cut,  \* of each driver
  out,                \* of each driver: the write that was sent and has not landed
  savepoint, saving,
  stale, twin, alarm  \* whether what must never happen has happened

disk == <<log, plan, commits, folder>>
row == <<ledger, epoch, holder>>
memory == <<home, batch, pos, last, seen, want, input, past, cut>>
saves == <<savepoint, saving>>
marks == <<stale, twin, alarm>>
vars == <<arrived, disk, row, pc, mine, memory, out, saves, marks>>

Batches == 0..MaxBatch
Entries == 0..MaxEntry
NoFile == [by |-> 0, v |-> -1]
NoEntry == [by |-> 0, v |-> {}]
Absent == {"absent"}
NoWrite == [kind |-> "none"]
NoSave == [batch |-> -1]
Newest(S) == IF S = {} THEN -1 ELSE CHOOSE x \in S : \A y \in S : y <= x

Planned == {n \in Batches : plan[n] # NoFile}
Done == {n \in Batches : commits[n] # NoFile}
Logged == {k \in Entries : log[k] # NoEntry}
Position(n) == IF n \in Planned THEN plan[n].v ELSE -1
FilesOf(S) == UNION {log[k].v : k \in S \cap Entries}
Written == UNION {ledger[n] : n \in {m \in Batches : ledger[m] # Absent}}

Init ==
  /\ arrived = {} /\ folder = 0
  /\ log = [k \in Entries |-> NoEntry]
  /\ plan = [n \in Batches |-> NoFile] /\ commits = [n \in Batches |-> NoFile]
  /\ ledger = [n \in Batches |-> Absent] /\ epoch = 0 /\ holder = "nobody"
  /\ pc = [d \in Drivers |-> "down"] /\ mine = [d \in Drivers |-> 0]
  /\ home = [d \in Drivers |-> 0] /\ batch = [d \in Drivers |-> 0]
  /\ pos = [d \in Drivers |-> -1] /\ last = [d \in Drivers |-> -1] /\ seen = [d \in Drivers |-> {}]
  /\ want = [d \in Drivers |-> -1] /\ input = [d \in Drivers |-> {}] /\ past = [d \in Drivers |-> {}] /\ cut = [d \in Drivers |-> {}]
  /\ out = [d \in Drivers |-> NoWrite]
  /\ savepoint = NoSave /\ saving = NoSave
  /\ stale = FALSE /\ twin = FALSE /\ alarm = FALSE

Arrive(f) ==
  /\ f \notin arrived /\ arrived' = arrived \cup {f}
  /\ UNCHANGED <<disk, row, pc, mine, memory, out, saves, marks>>

Go(d, at) == pc' = [pc EXCEPT ![d] = at]
At(d, at) == pc[d] = at /\ home[d] = folder

(* A driver that ends keeps nothing in memory but what it has sent.            *)
Forgotten(d) ==
  /\ home' = [home EXCEPT ![d] = 0] /\ batch' = [batch EXCEPT ![d] = 0]
  /\ pos' = [pos EXCEPT ![d] = -1] /\ last' = [last EXCEPT ![d] = -1] /\ seen' = [seen EXCEPT ![d] = {}]
  /\ want' = [want EXCEPT ![d] = -1] /\ input' = [input EXCEPT ![d] = {}] /\ past' = [past EXCEPT ![d] = {}] /\ cut' = [cut EXCEPT ![d] = {}]
  /\ mine' = [mine EXCEPT ![d] = 0]

End(d, why) == Go(d, why) /\ Forgotten(d)
Ended == {"down", "refused", "diverged", "missing"}

(* A start, before Spark's.                                                    *)

CanStart(d) == pc[d] \in Ended /\ out[d] = NoWrite /\ epoch < MaxEpoch

Claim(d) ==  \* journal.take, OutboxSink.claim
  /\ IF EpochBeforePlan THEN CanStart(d) ELSE pc[d] = "claim" /\ epoch < MaxEpoch
  /\ holder = "nobody"
  /\ epoch' = epoch + 1
  /\ mine' = [mine EXCEPT ![d] = epoch + 1] /\ home' = [home EXCEPT ![d] = folder]
  /\ Go(d, IF EpochBeforePlan THEN "decide" ELSE "cut")
  /\ UNCHANGED <<arrived, disk, ledger, holder, batch, pos, last, seen, want, input, past, cut, out, saves, marks>>

Decide(d) ==  \* journal.forget_unplanned reads the newest plan and the names of the log
  /\ IF EpochBeforePlan THEN At(d, "decide") ELSE CanStart(d)
  /\ cut' = [cut EXCEPT ![d] = {k \in Logged : k > Position(Newest(Planned))}]
  /\ Go(d, IF EpochBeforePlan THEN "cut" ELSE "claim")
  /\ UNCHANGED <<arrived, disk, row, mine, home, batch, pos, last, seen, want, input, past, out, saves, marks>>

Owns(d) == epoch = mine[d] /\ home[d] = folder

BeginDelete(d) ==  \* OutboxSink.owned locks the stream's row
  /\ pc[d] = "cut" /\ cut[d] # {}
  /\ IF ~FenceDeletion
     THEN Go(d, "delete") /\ UNCHANGED <<holder, mine, memory>>
     ELSE /\ holder = "nobody"
          /\ IF Owns(d)
             THEN Go(d, "delete") /\ holder' = d /\ UNCHANGED <<mine, memory>>
             ELSE End(d, "refused") /\ UNCHANGED holder
  /\ UNCHANGED <<arrived, disk, ledger, epoch, out, saves, marks>>

Delete(d) ==  \* CheckpointFiles.remove
  /\ At(d, "delete")
  /\ LET k == Newest(cut[d]) IN
       /\ log' = [log EXCEPT ![k] = NoEntry]
       /\ cut' = [cut EXCEPT ![d] = @ \ {k}]
  /\ holder' = IF holder = d THEN "nobody" ELSE holder
  /\ Go(d, "cut")
  /\ UNCHANGED <<arrived, plan, commits, folder, ledger, epoch, mine, home, batch, pos, last, seen, want, input, past, out,
                 saves, marks>>

LoseLock(d) ==  \* the server ends the transaction of a driver that stalls in a deletion
  /\ ~HeldThroughout /\ holder = d /\ holder' = "nobody"
  /\ UNCHANGED <<arrived, disk, ledger, epoch, pc, mine, memory, out, saves, marks>>

(* A plan that was still on its way when its entry was deleted: Spark would     *)
(* fail at each start, for want of the entry.                                  *)
IsOrphan == LET n == Newest(Planned) IN
  n \notin Done /\ n # -1 /\ ~(Position(n - 1) + 1..Position(n) \subseteq Logged)

DropOrphan(d) ==  \* journal.drop_orphan: the plan goes, unless the ledger has the batch
  /\ At(d, "cut") /\ cut[d] = {} /\ IsOrphan /\ holder = "nobody"
  /\ LET n == Newest(Planned) IN
       IF ~Owns(d) THEN End(d, "refused") /\ UNCHANGED plan
       ELSE IF DropOrphans /\ ledger[n] = Absent
       THEN plan' = [plan EXCEPT ![n] = NoFile] /\ Go(d, "decide") /\ UNCHANGED <<mine, memory>>
       ELSE End(d, "missing") /\ UNCHANGED plan
  /\ UNCHANGED <<arrived, log, commits, folder, row, out, saves, marks>>

(* Repeats.put_back: what the ledger has after the newest done batch, if the   *)
(* checkpoint does not plan it.                                                *)
ToRepeat == LET n == Newest(Done) + 1 IN
  IF RepeatAsPlanned /\ n \in Batches /\ n \notin Planned /\ ledger[n] # Absent THEN n ELSE -1

PutBack(d) ==
  /\ At(d, "cut") /\ cut[d] = {} /\ ~IsOrphan /\ ToRepeat # -1 /\ holder = "nobody"
  /\ LET n == ToRepeat
         k == Position(Newest(Done)) + 1
         isLogged == ledger[n] = {} \/ log[k].v = ledger[n] IN
       IF ~Owns(d) THEN End(d, "refused") /\ UNCHANGED <<log, plan>>
       ELSE IF ~isLogged
       THEN log' = [log EXCEPT ![k] = [by |-> mine[d], v |-> ledger[n]]] /\ UNCHANGED <<plan, pc, mine, memory>>
       ELSE /\ plan' = [plan EXCEPT ![n] = [by |-> mine[d], v |-> IF ledger[n] = {} THEN k - 1 ELSE k]]
            /\ UNCHANGED <<log, pc, mine, memory>>
  /\ UNCHANGED <<arrived, commits, folder, row, out, saves, marks>>

(* Spark's start.                                                              *)

OpenSource(d) ==  \* FileStreamSource reads its log
  /\ At(d, "cut") /\ cut[d] = {} /\ ~IsOrphan /\ ToRepeat = -1
  /\ last' = [last EXCEPT ![d] = Newest(Logged)] /\ seen' = [seen EXCEPT ![d] = FilesOf(Entries)]
  /\ Go(d, "populate")
  /\ UNCHANGED <<arrived, disk, row, mine, home, batch, pos, want, input, past, cut, out, saves, marks>>

Populate(d) ==  \* populateStartOffsets: the newest plan is repeated, unless it is done
  /\ At(d, "populate")
  /\ LET n == Newest(Planned) IN
       IF n \in Done \/ n = -1
       THEN /\ batch' = [batch EXCEPT ![d] = n + 1] /\ pos' = [pos EXCEPT ![d] = Position(n)]
            /\ Go(d, "idle") /\ UNCHANGED want
       ELSE /\ batch' = [batch EXCEPT ![d] = n] /\ pos' = [pos EXCEPT ![d] = Position(n - 1)]
            /\ want' = [want EXCEPT ![d] = Position(n)] /\ Go(d, "read")
  /\ past' = [past EXCEPT ![d] = FilesOf(0..pos'[d])]
  /\ UNCHANGED <<arrived, disk, row, mine, home, last, seen, input, cut, out, saves, marks>>

(* A batch. A write is sent if its name is free, and lands later.              *)

Send(d, kind, number, content, isTaken, at) ==
  IF isTaken THEN End(d, "refused") /\ UNCHANGED out
  ELSE /\ out' = [out EXCEPT ![d] =
            [kind |-> kind, n |-> number, v |-> content, by |-> mine[d], again |-> FALSE]]
       /\ Go(d, at) /\ UNCHANGED <<mine, memory>>

AddEntry(d) ==  \* FileStreamSource.latestOffset: some of the files that it has not seen
  /\ At(d, "idle") /\ batch[d] \in Batches /\ last[d] + 1 \in Entries
  /\ \E files \in SUBSET (arrived \ seen[d]) : files # {} /\
       Send(d, "log", last[d] + 1, files, log[last[d] + 1] # NoEntry, "logging")
  /\ UNCHANGED <<arrived, disk, row, saves, marks>>

NoRows(d) ==  \* the watermark has moved: a batch without rows
  /\ At(d, "idle") /\ batch[d] \in Batches
  /\ want' = [want EXCEPT ![d] = pos[d]] /\ Go(d, "plan")
  /\ UNCHANGED <<arrived, disk, row, mine, home, batch, pos, last, seen, input, past, cut, out, saves, marks>>

Plan(d) ==  \* markMicroBatchStart: offsetLog.add
  /\ At(d, "plan")
  /\ Send(d, "plan", batch[d], want[d], batch[d] \in Planned, "planning")
  /\ UNCHANGED <<arrived, disk, row, saves, marks>>

(* Designed: the log is as the driver knows it, and each batch that is done has *)
(* the files that the ledger has for it; so has this one if the ledger has it.  *)
IsChained(d) == seen[d] = FilesOf(0..last[d]) /\ \A n \in (Done \cap Planned) \cup {batch[d]} :
  ledger[n] # Absent => FilesOf(Position(n - 1) + 1..Position(n)) = ledger[n]

GetBatch(d) ==  \* FileStreamSource.getBatch reads the entries of the plan from the log
  /\ At(d, "read")
  /\ LET range == pos[d] + 1..want[d] IN
       IF range \subseteq Logged /\ (ChainCheck => IsChained(d))
       THEN /\ input' = [input EXCEPT ![d] = FilesOf(range)] /\ Go(d, "write")
            /\ UNCHANGED <<mine, home, batch, pos, last, seen, want, past, cut>>
       ELSE End(d, "refused")
  /\ UNCHANGED <<arrived, disk, row, out, saves, marks>>

WriteBatch(d) ==  \* the sink's transaction: lock, fence, ledger, write
  /\ pc[d] = "write" /\ holder = "nobody"
  /\ LET n == batch[d] IN
       IF FenceWrites /\ epoch # mine[d] THEN End(d, "refused") /\ UNCHANGED <<ledger, stale>>
       ELSE IF ledger[n] = Absent
       THEN /\ ledger' = [ledger EXCEPT ![n] = input[d]] /\ stale' = (stale \/ (StaleIsFault /\ epoch # mine[d]))
            /\ Go(d, "commit") /\ UNCHANGED <<mine, memory>>
       ELSE IF DigestCheck /\ ledger[n] # input[d] THEN End(d, "diverged") /\ UNCHANGED <<ledger, stale>>
       ELSE Go(d, "commit") /\ UNCHANGED <<ledger, stale, mine, memory>>  \* Replayed
  /\ UNCHANGED <<arrived, disk, epoch, holder, out, saves, twin, alarm>>

Commit(d) ==  \* markMicroBatchEnd: commitLog.add
  /\ At(d, "commit")
  /\ Send(d, "commit", batch[d], 0, batch[d] \in Done, "committing")
  /\ UNCHANGED <<arrived, disk, row, saves, marks>>

(* A write lands.                                                              *)

Target(w) == CASE w.kind = "log" -> log[w.n] [] w.kind = "plan" -> plan[w.n] [] w.kind = "commit" -> commits[w.n]
IsTaken(w) == Target(w).by # 0

Put(w) ==
  LET file == [by |-> w.by, v |-> w.v] IN
  /\ log' = IF w.kind = "log" THEN [log EXCEPT ![w.n] = file] ELSE log
  /\ plan' = IF w.kind = "plan" THEN [plan EXCEPT ![w.n] = file] ELSE plan
  /\ commits' = IF w.kind = "commit" THEN [commits EXCEPT ![w.n] = file] ELSE commits
  /\ UNCHANGED folder

IsAlive(d) == pc[d] \in {"logging", "planning", "committing"}

Succeed(d, w) ==
  CASE w.kind = "log" ->
         /\ last' = [last EXCEPT ![d] = w.n] /\ seen' = [seen EXCEPT ![d] = @ \cup w.v]
         /\ want' = [want EXCEPT ![d] = w.n] /\ Go(d, "plan")
         /\ UNCHANGED <<mine, home, batch, pos, input, past, cut>>
    [] w.kind = "plan" -> Go(d, "read") /\ UNCHANGED <<mine, memory>>
    [] w.kind = "commit" ->
         /\ batch' = [batch EXCEPT ![d] = w.n + 1] /\ pos' = [pos EXCEPT ![d] = want[d]] /\ Go(d, "idle")
         /\ input' = [input EXCEPT ![d] = {}] /\ past' = [past EXCEPT ![d] = @ \cup input[d]]
         /\ UNCHANGED <<mine, home, last, seen, want, cut>>

Answered(d, w, isWritten) ==
  /\ out' = [out EXCEPT ![d] = NoWrite]
  /\ IF ~IsAlive(d) THEN UNCHANGED <<pc, mine, memory>>
     ELSE IF isWritten THEN Succeed(d, w) ELSE End(d, "refused")

Land(d) ==
  /\ out[d] # NoWrite
  /\ LET w == out[d]
         isOwn == w.again /\ CASE OwnWrite = "id" -> Target(w).by = w.by
                               [] OwnWrite = "content" -> Target(w).v = w.v
                               [] OwnWrite = "never" -> FALSE IN
       IF Create = "atomic" /\ IsTaken(w)
       THEN /\ Answered(d, w, isOwn)
            /\ twin' = (twin \/ (isOwn /\ Target(w).by # w.by))
            /\ alarm' = (alarm \/ (~isOwn /\ Target(w).by = w.by))
            /\ UNCHANGED <<disk, stale>>
       ELSE Put(w) /\ Answered(d, w, TRUE) /\ UNCHANGED marks
  /\ UNCHANGED <<arrived, row, saves>>

LoseAnswer(d) ==  \* it landed, or met another's file, and the client sends it again
  /\ LostAnswers /\ out[d] # NoWrite /\ IsAlive(d) /\ ~out[d].again
  /\ out' = [out EXCEPT ![d].again = TRUE]
  /\ IF Create = "atomic" /\ IsTaken(out[d]) THEN UNCHANGED disk ELSE Put(out[d])
  /\ UNCHANGED <<arrived, row, pc, mine, memory, saves, marks>>

(* The end of a process.                                                       *)

Crash(d) ==
  /\ pc[d] \notin Ended
  /\ End(d, "down")
  /\ holder' = IF holder = d THEN "nobody" ELSE holder
  /\ out' = IF Create = "rename" THEN [out EXCEPT ![d] = NoWrite] ELSE out
  /\ UNCHANGED <<arrived, disk, ledger, epoch, saves, marks>>

Vanish(d) ==  \* what a dead driver has sent never lands
  /\ out[d] # NoWrite /\ ~IsAlive(d) /\ out' = [out EXCEPT ![d] = NoWrite]
  /\ UNCHANGED <<arrived, disk, row, pc, mine, memory, saves, marks>>

(* Savepoints.                                                                 *)

Save ==  \* savepoint.write: Plan.read and the proof, then the log
  /\ Savepoints /\ saving = NoSave /\ savepoint = NoSave
  /\ \E n \in Planned :
       /\ SavepointProof => n \in Done /\ ledger[n] # Absent
       /\ saving' = [batch |-> n, pos |-> Position(n)]
  /\ UNCHANGED <<arrived, disk, row, pc, mine, memory, out, savepoint, marks>>

Publish ==
  /\ saving # NoSave /\ saving' = NoSave
  /\ savepoint' = [batch |-> saving.batch, files |-> FilesOf(0..saving.pos)]
  /\ UNCHANGED <<arrived, disk, row, pc, mine, memory, out, marks>>

Begin(d) ==  \* savepoint.begin: a new folder, which the stream adopts; batches keep their numbers here
  /\ CanStart(d) /\ savepoint # NoSave /\ folder = 0 /\ holder = "nobody"
  /\ folder' = 1 /\ epoch' = epoch + 1
  /\ log' = [k \in Entries |-> IF k = 0 THEN [by |-> epoch', v |-> savepoint.files] ELSE NoEntry]
  /\ plan' = [n \in Batches |-> IF n = savepoint.batch THEN
                [by |-> epoch', v |-> IF savepoint.files = {} THEN -1 ELSE 0] ELSE NoFile]
  /\ commits' = [n \in Batches |-> IF n = savepoint.batch THEN [by |-> epoch', v |-> 0] ELSE NoFile]
  /\ mine' = [mine EXCEPT ![d] = epoch'] /\ home' = [home EXCEPT ![d] = 1]
  /\ Go(d, "decide")
  /\ out' = [e \in Drivers |-> NoWrite]  \* they go to the old folder
  /\ saving' = NoSave
  /\ UNCHANGED <<arrived, ledger, holder, batch, pos, last, seen, want, input, past, cut, savepoint, marks>>

Moved(d) ==  \* a driver of the old folder: what it reads and writes there is no longer the stream's
  /\ home[d] # folder /\ pc[d] \notin Ended \cup {"write"}
  /\ End(d, "refused") /\ holder' = IF holder = d THEN "nobody" ELSE holder
  /\ UNCHANGED <<arrived, disk, ledger, epoch, out, saves, marks>>

Next ==
  \/ \E f \in Files : Arrive(f)
  \/ Save \/ Publish
  \/ \E d \in Drivers :
       \/ Claim(d) \/ Decide(d) \/ BeginDelete(d) \/ Delete(d) \/ LoseLock(d) \/ PutBack(d) \/ DropOrphan(d)
       \/ OpenSource(d) \/ Populate(d) \/ AddEntry(d) \/ NoRows(d) \/ Plan(d) \/ GetBatch(d)
       \/ WriteBatch(d) \/ Commit(d) \/ Land(d) \/ LoseAnswer(d) \/ Crash(d) \/ Vanish(d) \/ Begin(d) \/ Moved(d)

Spec == Init /\ [][Next]_vars
Symmetry == Permutations(Drivers) \cup Permutations(Files)

TypeOK ==
  /\ arrived \subseteq Files /\ folder \in 0..1 /\ epoch \in 0..MaxEpoch /\ holder \in Drivers \cup {"nobody"}
  /\ \A k \in Entries : log[k].v \subseteq Files /\ log[k].by \in 0..MaxEpoch
  /\ \A n \in Batches : plan[n].v \in -1..MaxEntry /\ ledger[n] \in SUBSET Files \cup {Absent}

(* What a run counts as read is in the ledger when it writes a batch. Where     *)
(* creation is atomic, no checkpoint ever says otherwise (guarantees 3 and 8).  *)
NothingLost ==
  /\ \A d \in Drivers : pc[d] = "commit" => past[d] \subseteq Written
  /\ Create = "atomic" => \A n \in Done \cap Planned : FilesOf(0..Position(n)) \subseteq Written

(* No file's events are in two batches (1 and 4).                              *)
NothingTwice == \A n, m \in Batches :
  n # m /\ Absent \notin {ledger[n], ledger[m]} => ledger[n] \cap ledger[m] = {}

(* Only the newest run writes a batch (4).                                     *)
NewestWrites == ~stale

(* The newest run can go on: it is never refused its own batch as a diverged   *)
(* one, and never finds a plan without its entry (3 and 8).                    *)
NewestContinues == \A d \in Drivers : pc[d] \notin {"diverged", "missing"}

(* A savepoint has read what the ledger has up to its batch (3).               *)
SavepointHolds == savepoint # NoSave =>
  savepoint.files = UNION {ledger[n] : n \in {m \in 0..savepoint.batch : ledger[m] # Absent}}

(* One driver creates a file, and knows that it did (8).                       *)
OneWinner == ~twin
OwnWriteKnown == ~alarm
=============================================================================
