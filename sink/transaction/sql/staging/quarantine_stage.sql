-- Quarantines the refused rows of the winning attempts: the rows of the stage with a reason.
-- No index: it reads all of the stage.
INSERT INTO holdfast.quarantine (batch_no, reason, detail, row, quarantined_at)
SELECT %(batch_no)s, reason, detail, row, %(at)s::timestamptz
FROM {stage}
WHERE attempt = ANY(%(attempts)s::bigint[]) AND reason IS NOT NULL
ORDER BY attempt, ctid
