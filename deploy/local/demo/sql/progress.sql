-- Returns the progress of sink and dispatcher, for the live view only; the audit does not use it.
-- No index: small tables, read once a second.
SELECT (SELECT count(*) FROM holdfast.batch) AS batches,
       (SELECT count(*) FROM holdfast.quarantine) AS quarantined,
       (SELECT count(*) FROM holdfast.entry) AS entries,
       (SELECT count(*) FROM holdfast.attempt) AS attempts,
       (SELECT count(*) FROM holdfast.attempt WHERE outcome = 'delivered') AS delivered,
       (SELECT count(*) FROM holdfast.attempt WHERE outcome = 'unknown') AS unknown_outcomes
