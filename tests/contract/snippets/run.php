<?php
// Judges requests with verify.php: a line of base64 fields each, as tests/contract/test_snippets.py
// says. A header that comes twice is joined with a comma, as servers hand it to PHP.
declare(strict_types=1);

require $argv[1];

while (($line = fgets(STDIN)) !== false) {
    [$now, $secrets, $pairs, $body] = array_map('base64_decode', explode("\t", rtrim($line, "\n")));
    $headers = [];
    foreach (explode("\n", $pairs) as $pair) {
        [$name, $value] = explode(': ', $pair, 2);
        $headers[$name] = isset($headers[$name]) ? $headers[$name] . ', ' . $value : $value;
    }
    try {
        // One text: `echo` of a list would print the word before the call.
        echo 'genuine ' . verify_webhook($headers, $body, explode("\n", $secrets), (int) $now) . "\n";
    } catch (WebhookRefused $refused) {
        echo $refused->getMessage(), "\n";
    }
}
