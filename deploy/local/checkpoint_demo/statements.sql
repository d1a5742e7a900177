-- name: outbox_actions
-- Returns every decision in the outbox, in the order of each merchant.
-- No index: the demo's outbox is small, and read whole.
SELECT replace(entry.key::text, '-', '') AS key,
       subject.name AS merchant_id,
       split_part(entry.type, '.', 2) AS action,
       convert_from(entry.body, 'UTF8')::jsonb -> 'data' ->> 'window_end' AS window_end,
       (convert_from(entry.body, 'UTF8')::jsonb -> 'data' ->> 'exposure_minor')::bigint AS exposure_minor
  FROM holdfast.entry JOIN holdfast.subject ON subject.id = entry.subject_id
 ORDER BY subject.name, entry.sequence


-- name: outbox_windows
-- Returns the newest revision of every emitted window.
-- No index: the demo's table is small, and read whole.
SELECT merchant_id, extract(epoch FROM window_end)::bigint * 1000000 AS window_end, revision, exposure_minor
  FROM holdfast.exposure_window
 ORDER BY merchant_id, window_end
