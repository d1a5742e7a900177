-- Notifies listening dispatchers that a batch is committed. After COMMIT and never inside: commits that notify wait for each
-- other. No index.
NOTIFY holdfast_doorbell
