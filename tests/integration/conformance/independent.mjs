// Written from docs/receivers/PROTOCOL.md alone: a receiver for Node 20 without packages.
//
//   RECEIVER_SECRETS="whsec_... whsec_..." PORT=0 node independent.mjs [body deadline in ms]
//
// It prints "listening on PORT" and takes deliveries at every path but that of inquiries. It keeps everything in
// memory, in one process: an answer, and the key window that it declares, last as long as the process, which no
// real service may allow itself. The numbers in the comments are the sections of the document.
import { createHash, createHmac, timingSafeEqual } from 'node:crypto'
import { createServer, STATUS_CODES } from 'node:http'

const INQUIRIES = '/holdfast/keys/' // 8
const MAX_BODY = 262_144 // 1
const BODY_DEADLINE_MS = Number(process.argv[2] ?? 10_000) // 2, check 3
const TOLERANCE_S = 300 // 2, check 10
const MAX_SIGNATURES = 16 // 2, check 11
const MAX_DEPTH = 32 // 2
const KEY_WINDOW_S = 3_888_000 // 7: 45 days

const SIGNED = ['webhook-id', 'webhook-timestamp', 'webhook-signature']
const SINGLE = [...SIGNED, 'idempotency-key', 'content-encoding'] // 2, check 4
const KEY = /^hf_[0-9a-f]{32}$/

// 2: two secrets are accepted at once, the current one first.
const secrets = (process.env.RECEIVER_SECRETS ?? '').split(' ').filter(Boolean).map((text) => {
  const key = Buffer.from(text.replace(/^whsec_/, ''), 'base64')
  // Node's decoder passes over what it cannot read, so the text must be what the bytes encode to.
  if (`whsec_${key.toString('base64')}` !== text || key.length < 24 || key.length > 64) {
    throw new Error('RECEIVER_SECRETS: a secret is whsec_ and padded base64 of 24 to 64 bytes')
  }
  return key
})
if (secrets.length === 0) throw new Error('RECEIVER_SECRETS: at least one secret, two separated by a space')

// What one transaction writes (4, 5).
const keys = new Map() // key -> { digest, outcome, appliedAt }; kept longer than the window, which 7 allows
const fences = new Map() // subject -> the highest sequence dealt with; never forgotten (5)
const holds = new Map() // subject -> the delivery applied last: the business action

class Refusal extends Error {
  constructor(status, reason, detail, headers = {}) {
    super(detail)
    Object.assign(this, { status, reason, headers })
  }
}

const badBody = (detail) => new Refusal(400, 'bad_body', detail)
const refuseIf = (failed, status, reason, detail) => {
  if (failed) throw new Refusal(status, reason, detail)
}

// ---- 2. Verification ------------------------------------------------------------------------------------

function readBody(req) {
  return new Promise((resolve, reject) => {
    const tooLarge = () => reject(new Refusal(413, 'body_too_large', `a body has at most ${MAX_BODY} bytes`))
    if (Number(req.headers['content-length'] ?? 0) > MAX_BODY) return tooLarge()
    const slow = new Refusal(408, 'slow_body', 'the body did not arrive in time', { connection: 'close' })
    const timer = setTimeout(() => reject(slow), BODY_DEADLINE_MS)
    const chunks = []
    let size = 0
    req.on('data', (chunk) => {
      size += chunk.length
      if (size <= MAX_BODY) return chunks.push(chunk)
      // What still comes is read and dropped, so that the sender gets to read the answer.
      chunks.length = 0
      clearTimeout(timer)
      tooLarge()
    })
    req.on('end', () => resolve(Buffer.concat(chunks)))
    req.on('error', reject) // the peer went away: there is nobody to answer
    req.on('close', () => clearTimeout(timer))
  })
}

// Checks 4 to 13, over the bytes that arrived. Returns the headers and the secret that signed.
function verify(req, body) {
  // Not req.headers: that joins or drops a repeated header without a word.
  const found = new Map()
  for (let i = 0; i < req.rawHeaders.length; i += 2) {
    const name = req.rawHeaders[i].toLowerCase()
    if (!SINGLE.includes(name)) continue
    refuseIf(found.has(name), 400, 'duplicate_header', `${name} occurs twice`)
    found.set(name, req.rawHeaders[i + 1])
  }
  for (const [name, value] of found) {
    refuseIf(!/^[\x00-\x7f]*$/.test(value), 400, 'bad_header', `${name} has characters beyond ASCII`)
  }
  for (const name of SIGNED) {
    refuseIf(!found.get(name), 400, 'missing_header', `${name} is missing or empty`)
  }
  const encoding = found.get('content-encoding') ?? 'identity'
  refuseIf(encoding.toLowerCase() !== 'identity', 400, 'encoded_body', 'a body is never compressed')

  const [id, timestamp, signature] = SIGNED.map((name) => found.get(name))
  refuseIf(!/^[A-Za-z0-9_-]{1,256}$/.test(id), 400, 'bad_id', 'webhook-id is no id')
  const digits = /^(0|[1-9][0-9]{0,11})$/.test(timestamp)
  refuseIf(!digits, 400, 'bad_timestamp', 'webhook-timestamp is no whole number of seconds')
  const age = Math.floor(Date.now() / 1000) - Number(timestamp)
  refuseIf(age > TOLERANCE_S, 401, 'too_old', `signed more than ${TOLERANCE_S} s ago`)
  refuseIf(age < -TOLERANCE_S, 401, 'too_new', `signed more than ${TOLERANCE_S} s ahead`)

  const entries = signature.split(' ')
  const tooMany = entries.length > MAX_SIGNATURES
  refuseIf(tooMany, 400, 'too_many_signatures', `more than ${MAX_SIGNATURES} signatures`)
  // An entry that cannot be read is passed over: it must not spoil a good one beside it.
  const wellFormed = entries.filter((entry) => /^v1,[A-Za-z0-9+/]{43}=$/.test(entry))
  refuseIf(wellFormed.length === 0, 400, 'bad_signature', 'no well-formed v1 signature')

  const claimed = wellFormed.map((entry) => Buffer.from(entry.slice(3), 'base64'))
  let signer = null
  for (const secret of secrets) {
    const mac = createHmac('sha256', secret).update(`${id}.${timestamp}.`).update(body).digest()
    // Every entry is compared, in constant time; the first secret that matched counts (6).
    const matches = claimed.map((each) => timingSafeEqual(each, mac)).includes(true)
    if (matches) signer ??= secret
  }
  refuseIf(signer === null, 401, 'no_match', 'no accepted secret signed this')
  return { id, idempotencyKey: found.get('idempotency-key'), secret: signer }
}

// JSON without what readers disagree about (2). JSON.parse proves the grammar; then the tokens are looked at one
// by one, because a member twice, 1.0 and 2^53 are no longer to be seen in what it returns.
function strictJson(bytes) {
  let text, value
  try {
    text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
    value = JSON.parse(text)
  } catch {
    throw badBody('the body is not JSON in UTF-8')
  }
  const open = [] // the member names seen so far, per open object or array
  let last = ''
  for (const [token] of text.matchAll(/"[^"\\]*(?:\\.[^"\\]*)*"|-?[0-9][0-9.eE+-]*|[{}[\]:]/g)) {
    if (token === '{' || token === '[') {
      if (open.push(new Set()) > MAX_DEPTH) throw badBody(`nested deeper than ${MAX_DEPTH}`)
    } else if (token === '}' || token === ']') {
      open.pop()
    } else if (token === ':') {
      const name = JSON.parse(last) // "a" and "\u0061" are one name
      if (open.at(-1).has(name)) throw badBody('a member occurs twice')
      open.at(-1).add(name)
    } else if (token[0] === '"') {
      const string = JSON.parse(token)
      if (string.includes('\0') || !string.isWellFormed()) throw badBody('a text has NUL or a lone surrogate')
    } else if (/[.eE]/.test(token) || !Number.isSafeInteger(Number(token))) {
      throw badBody('a number is no integer of at most 2^53-1')
    }
    last = token
  }
  return value
}

function isTime(value) {
  if (typeof value !== 'string') return false
  if (!/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z$/.test(value)) return false
  const seconds = value.slice(0, 19)
  const date = new Date(`${seconds}Z`)
  return !Number.isNaN(date.getTime()) && date.toISOString().startsWith(seconds) // no 30th of February
}

// Check 14. Members that are not known are ignored (1), and of `data` only the subject is needed here.
function parseDelivery(bytes) {
  const isObject = (value) => typeof value === 'object' && value !== null && !Array.isArray(value)
  const delivery = strictJson(bytes)
  if (!isObject(delivery)) throw badBody('the body is no object')
  const { type, timestamp, sequence, key, data } = delivery
  const typed = typeof type === 'string' && type.length <= 128 && /^[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*$/.test(type)
  if (!typed) throw badBody('type is missing or malformed')
  if (!isTime(timestamp)) throw badBody('timestamp is missing or no time in UTC')
  if (!Number.isSafeInteger(sequence) || sequence < 1) throw badBody('sequence is no integer from 1')
  if (typeof key !== 'string' || !KEY.test(key)) throw badBody('key is missing or malformed')
  if (!isObject(data)) throw badBody('data is no object')
  const subject = data.merchant_id
  const fits = typeof subject === 'string' && subject && Buffer.byteLength(subject) <= 1024
  refuseIf(!fits, 422, 'bad_data', 'data.merchant_id is no subject')
  return delivery
}

// ---- 4. Once, 5. Order, 6. Receipts ---------------------------------------------------------------------

// No await from the lookup to the last set: in one process that is the transaction, and why two requests never
// meet on a key and nobody is told in_progress.
function deal(delivery, bytes) {
  const { key, sequence, data: { merchant_id: subject } } = delivery
  const digest = createHash('sha256').update(bytes).digest('hex')
  const known = keys.get(key)
  if (known) {
    if (known.digest !== digest) return { status: 422, outcome: 'conflict', appliedAt: null }
    const outcome = known.outcome === 'stale' ? 'stale' : 'duplicate'
    return { status: 200, outcome, appliedAt: known.appliedAt, replayed: true }
  }
  // An equal sequence is stale too: it is how a forgotten key that comes again is not applied twice (7).
  const outcome = sequence > (fences.get(subject) ?? 0) ? 'applied' : 'stale'
  const appliedAt = new Date().toISOString().replace('Z', '000Z') // microseconds, as in section 3
  keys.set(key, { digest, outcome, appliedAt })
  if (outcome === 'applied') {
    fences.set(subject, sequence)
    holds.set(subject, delivery)
  }
  return { status: 200, outcome, appliedAt }
}

function receipt(secret, key, outcome, appliedAt) {
  if (appliedAt === null) return null // 3: null in 409 and 422
  return `v1,${createHmac('sha256', secret).update(`receipt.${key}.${outcome}.${appliedAt}`).digest('base64')}`
}

// ---- 3. Answers, 8. Inquiry -----------------------------------------------------------------------------

function answer(res, status, body, headers = {}) {
  const bytes = Buffer.from(JSON.stringify(body))
  res.writeHead(status, { 'content-type': 'application/json', ...headers, 'content-length': bytes.length })
  res.end(bytes)
}

async function receive(req, res) {
  if (req.method !== 'POST') throw new Refusal(405, 'method_not_allowed', 'a delivery is a POST', { allow: 'POST' })
  const body = await readBody(req)
  const { id, idempotencyKey, secret } = verify(req, body)
  const delivery = parseDelivery(body)
  const { key } = delivery
  refuseIf(id !== key, 400, 'key_mismatch', 'webhook-id is not the key of the body')
  const same = [undefined, key, `"${key}"`].includes(idempotencyKey)
  refuseIf(!same, 400, 'key_mismatch', 'idempotency-key is not the key of the body')

  const { status, outcome, appliedAt, replayed } = deal(delivery, body)
  const headers = { 'holdfast-key-window': String(KEY_WINDOW_S) } // 7: with every outcome
  if (replayed) headers['idempotency-replayed'] = 'true'
  const proof = receipt(secret, key, outcome, appliedAt)
  answer(res, status, { key, outcome, applied_at: appliedAt, receipt: proof }, headers)
}

async function inquire(req, res) {
  if (req.method !== 'GET') throw new Refusal(405, 'method_not_allowed', 'an inquiry is a GET', { allow: 'GET' })
  const body = await readBody(req)
  const { id, secret } = verify(req, Buffer.alloc(0)) // 8: signed over an empty body
  refuseIf(body.length > 0, 400, 'bad_body', 'an inquiry has no body')
  const key = req.url.slice(INQUIRIES.length)
  refuseIf(!KEY.test(key), 400, 'bad_id', 'the path does not end in a key')
  refuseIf(key !== id, 400, 'key_mismatch', 'the path does not end in the webhook-id')
  const known = keys.get(key)
  refuseIf(!known, 404, 'unknown_key', 'this key is not known')
  const { outcome, appliedAt, digest } = known // what the first delivery was answered
  const proof = receipt(secret, key, outcome, appliedAt)
  const found = { key, outcome, applied_at: appliedAt, receipt: proof, body_sha256: digest }
  answer(res, 200, found, { 'holdfast-key-window': String(KEY_WINDOW_S) })
}

async function handle(req, res) {
  try {
    await (req.url.startsWith(INQUIRIES) ? inquire : receive)(req, res)
  } catch (error) {
    if (res.headersSent || res.destroyed) return
    // 3: whoever does not know what became of it says 503, because sending again is harmless.
    const { status, reason, message, headers } =
      error instanceof Refusal ? error : new Refusal(503, 'unavailable', 'try again', { 'retry-after': '1' })
    const problem = { type: 'about:blank', title: STATUS_CODES[status], status, detail: message, reason }
    answer(res, status, problem, { ...headers, 'content-type': 'application/problem+json' })
    req.resume()
  }
}

// Whatever is still coming after an answer is read for this long at most, then the connection ends.
const limits = { requestTimeout: 20_000, headersTimeout: 10_000, connectionsCheckingInterval: 1_000 }
const server = createServer(limits, handle)
server.listen(Number(process.env.PORT ?? 0), '127.0.0.1', () => {
  console.log(`listening on ${server.address().port}`)
})
