-- Drops the stages of a stream's run and of older ones, except those that a late task still writes to.
-- No index: the table has a few rows.
SELECT holdfast.drop_stages(%(stream)s, %(epoch)s) AS dropped
