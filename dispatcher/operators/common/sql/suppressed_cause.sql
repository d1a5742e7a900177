-- Why a batch suppressed the decision of a key; no row if it was written, or its partition was dropped.
-- Uses pk_suppressed of the one partition that holds the batch's moment.
SELECT cause::text AS cause
FROM holdfast.suppressed
WHERE batch_no = %(batch_no)s AND key = %(key)s AND suppressed_at = %(written_at)s
