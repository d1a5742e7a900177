-- The merchants that the stream holds, each with the newest window it has published of them. A block commits with
-- its window, so a subject without one is another stream's. Index: pk_exposure_window; subject is read as a whole.
SELECT subject.name, (extract(epoch FROM newest.window_end) * 1000000)::bigint
FROM holdfast.subject
CROSS JOIN LATERAL (
    SELECT window_end
    FROM holdfast.exposure_window
    WHERE stream = %(stream)s AND merchant_id = subject.name
    ORDER BY window_end DESC
    LIMIT 1
) AS newest
WHERE subject.last_type = %(block)s
