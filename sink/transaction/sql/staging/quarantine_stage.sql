-- Writes the refused rows of the winning attempts; a row of the stage with a reason is one.
-- No index: it reads all of the stage.
INSERT INTO holdfast.quarantine (batch_no, reason, detail, row, quarantined_at)
SELECT %(batch_no)s, reason, detail, row, %(at)s::timestamptz
FROM {stage}
WHERE attempt = ANY(%(attempts)s::bigint[]) AND reason IS NOT NULL
ORDER BY attempt, ctid
