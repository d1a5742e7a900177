// A whole receiver on Node 20 and `pg`: verify, BEGIN, inbox_receive, the action, COMMIT, answer.
// PAYOUTS_SECRETS holds one "whsec_..." secret, or two with a space between during a rotation;
// PGHOST, PGDATABASE and so on name the database.
import { createHash } from "node:crypto";
import { createServer, type IncomingMessage } from "node:http";
import pg from "pg";
import { Refused, verify } from "./verify.mjs";

const secrets = (process.env.PAYOUTS_SECRETS ?? "").split(" ");
const pool = new pg.Pool({ max: 10 });
pool.on("error", console.error); // an idle connection was lost: the pool opens another

const RECEIVE = `
  SELECT outcome, replayed,
         to_char(applied_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS applied_at
    FROM payouts.inbox_receive($1, $2, $3, $4)`;
const HOLD = "INSERT INTO payouts.hold (merchant_id, action, key) VALUES ($1, $2, $3)";

async function receive(request: IncomingMessage) {
  if (request.method !== "POST") throw new Refused("method_not_allowed", 405);
  const body = await read(request); // what is signed is these bytes
  const key = verify(request.rawHeaders, body, secrets);
  const { merchant, action, sequence } = parse(body, key, request.headers["idempotency-key"]);
  const digest = createHash("sha256").update(body).digest();
  const client = await pool.connect();
  try {
    await client.query("BEGIN");
    const receipt = (await client.query(RECEIVE, [key, digest, merchant, sequence])).rows[0];
    if (receipt.outcome === "applied") await client.query(HOLD, [merchant, action, key]);
    await client.query("COMMIT"); // key and action
    client.release();
    return { key, ...receipt };
  } catch (error) {
    client.release(true); // neither: a connection that is closed rolls back
    throw error;
  }
}

function parse(body: Buffer, id: string, idempotencyKey: unknown = id) {
  let value: any;
  try {
    value = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(body));
  } catch {
    throw new Refused("bad_body");
  }
  const { type, timestamp, sequence, key, data } = value ?? {};
  const texts = [type, timestamp, key].every((each) => typeof each === "string");
  const object = typeof data === "object" && data !== null && !Array.isArray(data);
  if (!texts || !object || !/^hf_[0-9a-f]{32}$/.test(key)) throw new Refused("bad_body");
  if (!Number.isSafeInteger(sequence) || sequence < 1) throw new Refused("bad_body");
  if (key !== id || ![id, `"${id}"`].includes(idempotencyKey as string)) {
    throw new Refused("key_mismatch");
  }
  const action = /^payout_hold\.(block|release)$/.exec(type)?.[1];
  if (!action) throw new Refused("unknown_type");
  const merchant = data.merchant_id; // without NUL, which Postgres does not store
  const fits = typeof merchant === "string" && /^[^\0]+$/.test(merchant);
  if (!fits || Buffer.byteLength(merchant) > 1024) throw new Refused("bad_data", 422);
  return { merchant, action, sequence };
}

async function read(request: IncomingMessage) {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request.iterator({ destroyOnReturn: false })) {
    size += chunk.length;
    if (size > 262_144) throw new Refused("body_too_large", 413);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

const limits = { requestTimeout: 10_000, connectionsCheckingInterval: 1_000 };
const server = createServer(limits, async (request, response) => {
  let [status, type, content]: [number, string, object] = [200, "json", {}];
  try {
    const { replayed, ...receipt } = await receive(request);
    if (receipt.outcome === "running") [status, receipt.outcome] = [409, "in_progress"];
    if (receipt.outcome === "conflict") status = 422;
    if (replayed) response.setHeader("idempotency-replayed", "true");
    response.setHeader("holdfast-key-window", "forever"); // until you prune
    content = { ...receipt, receipt: null };
  } catch (error) {
    const known = error instanceof Refused;
    if (!known) console.error(error); // sent again, it is applied or a duplicate
    const refused = known ? error : new Refused("unavailable", 503);
    [status, type] = [refused.status, "problem+json"];
    content = { status, reason: refused.message };
  }
  if (status === 405) response.setHeader("allow", "POST");
  if (status === 409 || status === 503) response.setHeader("retry-after", "1");
  if (status === 413) response.setHeader("connection", "close");
  response.setHeader("content-type", `application/${type}`);
  response.writeHead(status).end(JSON.stringify(content));
});
server.listen(Number(process.env.PORT ?? 8080), "127.0.0.1");
