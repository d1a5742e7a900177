-- name: list
-- Events that the exposure job did not apply, the newest first, before an id if given.
-- Uses ix_late_event_merchant of one merchant, else pk_late_event backwards.
SELECT id, stream, reason::text AS reason, event_id, merchant_id, type, amount_minor, currency, occurred_at, watermark,
       written_at
FROM holdfast.late_event
WHERE (%(merchant)s::text IS NULL OR merchant_id = %(merchant)s::text)
  AND (%(stream)s::text IS NULL OR stream = %(stream)s::text)
  AND (%(reason)s::holdfast.late_reason IS NULL OR reason = %(reason)s::holdfast.late_reason)
  AND (%(since)s::timestamptz IS NULL OR written_at >= %(since)s::timestamptz)
  AND (%(before)s::bigint IS NULL OR id < %(before)s::bigint)
ORDER BY id DESC
LIMIT %(limit)s
