<?php
// A whole receiver on PDO: verify, BEGIN, inbox_receive, the action, COMMIT, answer. PHP 8.0 or
// newer. PAYOUTS_SECRETS holds one "whsec_..." secret, or two with a space between during a
// rotation; PGHOST, PGDATABASE and so on name the database.
declare(strict_types=1);

require __DIR__ . '/verify.php';

const RECEIVE = <<<'SQL'
    SELECT outcome, replayed,
           to_char(applied_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS applied_at
      FROM payouts.inbox_receive(?, decode(?, 'hex'), ?, ?)
    SQL;
const HOLD = 'INSERT INTO payouts.hold (merchant_id, action, key) VALUES (?, ?, ?)';

/** @return array{key: string, outcome: string, replayed: bool, applied_at: ?string} */
function receive(): array
{
    refuse_unless($_SERVER['REQUEST_METHOD'] === 'POST', 'method_not_allowed', 405);
    $body = file_get_contents('php://input', length: 262_145); // what is signed is these bytes
    refuse_unless(strlen($body) <= 262_144, 'body_too_large', 413);
    $key = verify_webhook(getallheaders(), $body, explode(' ', getenv('PAYOUTS_SECRETS')));
    [$merchant, $action, $sequence] = parse($body, $key);
    $db = new PDO('pgsql:', options: [PDO::ATTR_EMULATE_PREPARES => false]);
    $db->beginTransaction();
    $call = $db->prepare(RECEIVE);
    $call->execute([$key, hash('sha256', $body), $merchant, $sequence]);
    $receipt = $call->fetch(PDO::FETCH_ASSOC);
    if ($receipt['outcome'] === 'applied') {
        $db->prepare(HOLD)->execute([$merchant, $action, $key]);
    }
    $db->commit(); // key and action; after an exception neither, since the connection is closed
    return ['key' => $key] + $receipt;
}

/** @return array{string, string, int} merchant, action and sequence */
function parse(string $body, string $id): array
{
    $envelope = json_decode($body, depth: 64);
    foreach (['type', 'timestamp', 'key'] as $name) {
        refuse_unless(is_string($envelope->$name ?? null), 'bad_body');
    }
    $sequence = $envelope->sequence ?? null;
    refuse_unless(is_int($sequence) && $sequence >= 1, 'bad_body');
    refuse_unless(is_object($envelope->data ?? null), 'bad_body');
    refuse_unless(preg_match('/\Ahf_[0-9a-f]{32}\z/', $envelope->key) === 1, 'bad_body');
    $named = $_SERVER['HTTP_IDEMPOTENCY_KEY'] ?? $id;
    $named = in_array($named, [$id, "\"$id\""], true);
    refuse_unless($envelope->key === $id && $named, 'key_mismatch');
    $known = preg_match('/\Apayout_hold\.(block|release)\z/', $envelope->type, $action);
    refuse_unless($known === 1, 'unknown_type');
    $merchant = $envelope->data->merchant_id ?? null; // without NUL, which Postgres does not store
    refuse_unless(is_string($merchant) && !str_contains($merchant, "\0"), 'bad_data', 422);
    refuse_unless(strlen($merchant) >= 1 && strlen($merchant) <= 1024, 'bad_data', 422);
    return [$merchant, $action[1], $sequence];
}

function refuse_unless(bool $holds, string $reason, int $status = 400): void
{
    if (!$holds) {
        throw new WebhookRefused($reason, $status);
    }
}

$type = 'problem+json';
try {
    $receipt = receive();
    $status = ['running' => 409, 'conflict' => 422][$receipt['outcome']] ?? 200;
    $outcome = $receipt['outcome'] === 'running' ? 'in_progress' : $receipt['outcome'];
    $content = ['key' => $receipt['key'], 'outcome' => $outcome];
    $content += ['applied_at' => $receipt['applied_at'], 'receipt' => null];
    $type = 'json';
    header('holdfast-key-window: forever'); // until you prune
    if ($receipt['replayed']) {
        header('idempotency-replayed: true');
    }
} catch (WebhookRefused $refused) {
    $status = $refused->status();
    $content = ['status' => $status, 'reason' => $refused->getMessage()];
} catch (Throwable $error) {
    error_log((string) $error); // sent again, it is applied or a duplicate
    $status = 503;
    $content = ['status' => $status, 'reason' => 'unavailable'];
}
http_response_code($status);
header("content-type: application/$type");
if ($status === 405) {
    header('allow: POST');
}
if ($status === 409 || $status === 503) {
    header('retry-after: 1');
}
echo json_encode($content);
