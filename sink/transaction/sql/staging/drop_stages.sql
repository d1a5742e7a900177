-- Drops the stages of a run and of older ones, except those that a late task still writes to. A failover may give an epoch out
-- twice, so a run of the owner's epoch or a higher one drops them only if it is the owner, under the stream's lock; no row
-- otherwise. Index: pk_stream.
SELECT holdfast.drop_stages(owned.name, %(epoch)s) AS dropped
FROM (
    SELECT name
    FROM holdfast.stream
    WHERE name = %(stream)s
        AND (epoch > %(epoch)s OR (epoch = %(epoch)s AND run_id = %(run_id)s))
    FOR UPDATE
) AS owned
