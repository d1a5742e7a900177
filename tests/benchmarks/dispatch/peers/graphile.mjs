// graphile-worker with its local queue and batched completion; with the option "queue", a queue per subject.
import pg from "pg";
import { Logger, run, runMigrations } from "graphile-worker";
import * as wire from "./wire.mjs";

const quiet = new Logger(() => () => {});
const preset = {
  worker: {
    connectionString: wire.DSN,
    concurrentJobs: wire.CONNECTIONS,
    maxPoolSize: 16,
    pollInterval: 1000,
    localQueue: { size: wire.SETTINGS.size ?? 500, refetchDelay: { durationMs: wire.SETTINGS.refetch_ms ?? 10 } },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
    logger: quiet,
  },
};

const ADD = `SELECT graphile_worker.add_job('webhook', $1::json, queue_name := $2)`;

const add = (client, job) =>
  client.query({
    name: "add",
    text: ADD,
    values: [JSON.stringify({ key: job.key, body: job.body }), wire.OPTION === "queue" ? job.subject : null],
  });

async function load() {
  await runMigrations({ connectionString: wire.DSN, logger: quiet });
  const client = new pg.Client(wire.DSN);
  await client.connect();
  await client.query("SET synchronous_commit = off");
  for (const some of wire.transactions()) {
    await client.query("BEGIN");
    for (const job of some) await add(client, job);
    await client.query("COMMIT");
  }
  await client.query("VACUUM ANALYZE");
  await client.end();
}

async function work() {
  const send = wire.sender();
  wire.ready();
  const runner = await run({ preset, logger: quiet, noHandleSignals: true, taskList: { webhook: (payload) => send(payload) } });
  await runner.promise;
}

async function trickle() {
  const client = new pg.Client(wire.DSN);
  await client.connect();
  await wire.trickle((job) => add(client, job));
  await client.end();
}

wire.main({ load, work, trickle });
