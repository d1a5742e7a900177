-- Drops the stages of a stream's run and of older ones, but for those a late task still writes to.
-- No index: there are a few rows at most.
SELECT holdfast.drop_stages(%(stream)s, %(epoch)s) AS dropped
