<?php
// Is this request a genuine delivery? PHP 8.0 or newer, 64 bit, no packages.
declare(strict_types=1);

final class WebhookRefused extends RuntimeException
{
    public function status(): int
    {
        $unauthenticated = in_array($this->getMessage(), ['too_old', 'too_new', 'no_match'], true);
        return $this->getCode() ?: ($unauthenticated ? 401 : 400);
    }
}

/**
 * Returns webhook-id; compare it with the `key` of the parsed body.
 *
 * @param array<string, string> $headers getallheaders(), names in any case
 * @param string $body file_get_contents('php://input'): the raw bytes
 * @param list<string> $secrets 'whsec_...' texts: two during a rotation
 * @throws WebhookRefused with the reason as its message
 */
function verify_webhook(array $headers, string $body, array $secrets, ?int $now = null): string
{
    $check = static function (bool $holds, string $reason): void {
        if (!$holds) {
            throw new WebhookRefused($reason);
        }
    };
    $fields = array_change_key_case($headers, CASE_LOWER);
    $three = [];
    foreach (['webhook-id', 'webhook-timestamp', 'webhook-signature'] as $name) {
        $three[] = $value = $fields[$name] ?? '';
        // A server joins repeated headers with a comma; signatures are checked below.
        $once = $name === 'webhook-signature' || !str_contains($value, ',');
        $check($once, 'duplicate_header');
    }
    $check(!str_contains($fields['content-encoding'] ?? '', ','), 'duplicate_header');
    [$id, $timestamp, $signatures] = $three;
    $read = implode($three) . ($fields['content-encoding'] ?? '');
    $check(preg_match('/[^\x00-\x7f]/', $read) === 0, 'bad_header');
    $check($id !== '' && $timestamp !== '' && $signatures !== '', 'missing_header');
    $check(strtolower($fields['content-encoding'] ?? 'identity') === 'identity', 'encoded_body');
    $check(preg_match('/\A[A-Za-z0-9_-]{1,256}\z/', $id) === 1, 'bad_id');
    $check(preg_match('/\A(0|[1-9][0-9]{0,11})\z/', $timestamp) === 1, 'bad_timestamp');
    $age = ($now ?? time()) - (int) $timestamp;
    $check($age <= 300, 'too_old');
    $check($age >= -300, 'too_new');
    $entries = explode(' ', $signatures);
    $check(count($entries) <= 16, 'too_many_signatures');
    $form = '#\Av1,([A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=)\z#';
    $given = preg_grep($form, $entries);
    $check($given !== [], 'bad_signature');
    // A signature next to a comma: signatures in one header are separated by spaces.
    $some = 'v[0-9]+[a-z]*,[A-Za-z0-9+/]{16,}';
    $check(preg_match("#$some={0,2},|,$some#", $signatures) === 0, 'duplicate_header');
    $genuine = false;
    foreach ($secrets as $secret) {
        $key = base64_decode(preg_replace('/\Awhsec_/', '', $secret), true);
        if ($key === false || $key === '') {
            throw new InvalidArgumentException('a secret is not whsec_ and base64');
        }
        $mac = hash_hmac('sha256', "$id.$timestamp.$body", $key, true);
        foreach ($given as $entry) {
            $candidate = base64_decode(substr($entry, 3), true);
            $genuine = hash_equals($mac, $candidate) || $genuine; // constant time
        }
    }
    $check($genuine, 'no_match');
    return $id;
}
