-- Streams refused rows of one task attempt into the batch's stage.
-- No index.
COPY {stage} (attempt, row_hash, reason, detail, row) FROM STDIN (FORMAT csv)
