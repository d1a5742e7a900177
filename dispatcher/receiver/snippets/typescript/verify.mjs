// Is this request a genuine delivery? Node 18 or newer, no packages.
import { createHmac, timingSafeEqual } from "node:crypto";

const NAMES = ["webhook-id", "webhook-timestamp", "webhook-signature"];
const ONCE = [...NAMES, "content-encoding"];
const SIGNATURE = /^v1,([A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=)$/;

export class Refused extends Error {
  constructor(reason, status = ["too_old", "too_new", "no_match"].includes(reason) ? 401 : 400) {
    super(reason);
    this.status = status;
  }
}

// Returns webhook-id or throws Refused; compare it with the `key` of the parsed body.
// `rawHeaders` keeps repeated headers, which `headers` hides; `body` a Buffer with
// the raw bytes; `secrets` are "whsec_..." texts, two during a rotation; `now` is in
// Unix seconds.
export function verify(rawHeaders, body, secrets, now = Math.floor(Date.now() / 1000)) {
  if (typeof body === "string") throw new TypeError("give the raw bytes, not a text");
  const fields = new Map();
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const name = rawHeaders[i].toLowerCase();
    if (!ONCE.includes(name)) continue;
    if (fields.has(name)) throw new Refused("duplicate_header");
    fields.set(name, rawHeaders[i + 1]);
  }
  for (const value of fields.values()) {
    if (/[^\x00-\x7f]/.test(value)) throw new Refused("bad_header");
  }
  const [id, timestamp, signatures] = NAMES.map((name) => fields.get(name));
  if (!id || !timestamp || !signatures) throw new Refused("missing_header");
  if ((fields.get("content-encoding") ?? "identity").toLowerCase() !== "identity") {
    throw new Refused("encoded_body");
  }
  if (!/^[A-Za-z0-9_-]{1,256}$/.test(id)) throw new Refused("bad_id");
  if (!/^(0|[1-9][0-9]{0,11})$/.test(timestamp)) throw new Refused("bad_timestamp");
  if (now - Number(timestamp) > 300) throw new Refused("too_old");
  if (now - Number(timestamp) < -300) throw new Refused("too_new");
  const entries = signatures.split(" ");
  if (entries.length > 16) throw new Refused("too_many_signatures");
  const given = entries.map((entry) => SIGNATURE.exec(entry)).filter(Boolean);
  if (given.length === 0) throw new Refused("bad_signature");
  let genuine = false;
  for (const secret of secrets) {
    const key = Buffer.from(secret.replace(/^whsec_/, ""), "base64");
    if (key.length < 16) throw new TypeError("a secret is not whsec_ and base64");
    const mac = createHmac("sha256", key).update(`${id}.${timestamp}.`).update(body).digest();
    for (const [, text] of given) {
      genuine = timingSafeEqual(mac, Buffer.from(text, "base64")) || genuine; // constant time
    }
  }
  if (!genuine) throw new Refused("no_match");
  return id;
}
