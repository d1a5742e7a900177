// pg-boss; with the option "fifo", a key_strict_fifo queue whose key is the subject.
import pg from "pg";
import { PgBoss } from "pg-boss";
import * as wire from "./wire.mjs";

const QUEUE = "webhooks";
const FIFO = wire.OPTION === "fifo";
const BATCH = wire.SETTINGS.batch ?? 500;
const WORKERS = wire.SETTINGS.workers ?? 2;

async function started(options) {
  const boss = new PgBoss({ connectionString: wire.DSN, max: 8, ...options });
  boss.on("error", (error) => console.error(error));
  await boss.start();
  return boss;
}

const row = (job) => ({ data: { key: job.key, body: job.body }, ...(FIFO ? { singletonKey: job.subject } : {}) });

async function load() {
  const boss = await started({ supervise: false, schedule: false });
  const policy = FIFO ? "key_strict_fifo" : "standard";
  await boss.createQueue(QUEUE, { policy, notify: true, retryLimit: 10 });
  const client = new pg.Client(wire.DSN);
  await client.connect();
  await client.query("SET synchronous_commit = off");
  const db = { executeSql: (text, values) => client.query(text, values) };
  for (const some of wire.transactions()) {
    if (some.length === 1) await boss.send(QUEUE, row(some[0]).data, { singletonKey: row(some[0]).singletonKey, db });
    else await boss.insert(QUEUE, some.map(row), { db });
  }
  await client.query("VACUUM ANALYZE");
  await client.end();
  await boss.stop({ graceful: false });
  process.exit(0);
}

async function work() {
  const send = wire.sender();
  // How soon it notices that much is waiting depends on these; a fetch that is not full ends a burst.
  const boss = await started({
    useListenNotify: true,
    monitorIntervalSeconds: 1,
    superviseIntervalSeconds: 1,
    queueCacheIntervalSeconds: 1,
  });
  wire.ready();
  await boss.work(
    QUEUE,
    {
      batchSize: BATCH,
      localConcurrency: WORKERS,
      pollingIntervalSeconds: 0.5,
      notifyPollingIntervalSeconds: 0.5,
      burstWhenBatchFull: true,
      burstWhenReadyExceeds: 1,
    },
    (some) => Promise.all(some.map((job) => send(job.data))),
  );
}

async function trickle() {
  const boss = await started({ supervise: false, schedule: false });
  await wire.trickle((job) => boss.send(QUEUE, row(job).data, { singletonKey: row(job).singletonKey }));
  await boss.stop({ graceful: false });
  process.exit(0);
}

wire.main({ load, work, trickle });
