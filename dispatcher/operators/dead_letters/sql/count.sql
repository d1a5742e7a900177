-- The number of dead letters that export.sql returns.
-- Uses uq_dead_letter_open where only open ones are wanted; else reads dead_letter.
SELECT count(*) AS count
FROM holdfast.dead_letter d
WHERE (%(endpoint_id)s::integer IS NULL OR d.endpoint_id = %(endpoint_id)s::integer)
  AND (%(subject_id)s::bigint IS NULL OR d.subject_id = %(subject_id)s::bigint)
  AND (%(reason)s::holdfast.dead_reason IS NULL OR d.reason = %(reason)s::holdfast.dead_reason)
  AND (NOT %(open)s OR d.resolution IS NULL) AND (NOT %(resolved)s OR d.resolution IS NOT NULL)
