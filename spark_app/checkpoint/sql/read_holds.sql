-- The merchants that the stream holds, each with its newest published window. A block commits with its window.
-- Index: pk_exposure_window, pk_subject; scans all of transition.
SELECT subject.name, (extract(epoch FROM newest.window_end) * 1000000)::bigint
FROM holdfast.transition
JOIN holdfast.subject ON subject.id = transition.subject_id
CROSS JOIN LATERAL (
    SELECT window_end
    FROM holdfast.exposure_window
    WHERE stream = %(stream)s AND merchant_id = subject.name
    ORDER BY window_end DESC
    LIMIT 1
) AS newest
WHERE transition.stream = %(stream)s AND transition.last_type = %(block)s
