// What the Node peers share: jobs from a file, the signature, undici. See wire.py for the three modes.
import { createHmac } from "node:crypto";
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { Pool } from "undici";

export const DSN = process.env.BENCH_DSN;
export const CONNECTIONS = Number(process.env.BENCH_CONNECTIONS);
export const OPTION = process.env.BENCH_OPTION;
export const SETTINGS = JSON.parse(process.env.BENCH_SETTINGS);
const TRANSACTION = Number(process.env.BENCH_TRANSACTION);
const SECRET = Buffer.from(process.env.BENCH_SECRET.replace(/^whsec_/, ""), "base64");
const URL_ = new URL(process.env.BENCH_URL);

export function jobs() {
  const text = readFileSync(process.env.BENCH_JOBS, "utf8");
  return text.split("\n").filter(Boolean).map((line) => JSON.parse(line));
}

export function* transactions() {
  const all = jobs();
  for (let first = 0; first < all.length; first += TRANSACTION) yield all.slice(first, first + TRANSACTION);
}

export function sender() {
  const pool = new Pool(URL_.origin, { connections: CONNECTIONS, pipelining: 1 });
  return async ({ key, body }) => {
    const moment = String(Math.floor(Date.now() / 1000));
    const signature = createHmac("sha256", SECRET).update(`${key}.${moment}.${body}`).digest("base64");
    const answer = await pool.request({
      method: "POST",
      path: URL_.pathname,
      headers: {
        "content-type": "application/json",
        "webhook-id": key,
        "webhook-timestamp": moment,
        "webhook-signature": `v1,${signature}`,
        "idempotency-key": `"${key}"`,
      },
      body,
    });
    await answer.body.dump();
    if (answer.statusCode < 200 || answer.statusCode > 299) throw new Error(`status ${answer.statusCode}`);
  };
}

export const ready = () => process.stdout.write("ready\n");

export async function trickle(add) {
  const times = {};
  for (const job of jobs()) {
    await sleep(300 + Math.random() * 600);
    await add(job);
    times[job.key] = Number(process.hrtime.bigint()) / 1e9; // CLOCK_MONOTONIC, as the receiver's
  }
  process.stdout.write(`${JSON.stringify(times)}\n`);
}

export const main = (modes) => modes[process.argv[2]]();
