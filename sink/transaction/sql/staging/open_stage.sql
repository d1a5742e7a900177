-- Creates the table into which the tasks of one batch copy their rows; runs as the schema's owner.
-- No index.
SELECT holdfast.open_stage(%(stream)s, %(epoch)s, %(batch_id)s) AS number
