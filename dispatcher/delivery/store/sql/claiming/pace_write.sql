-- Stores an endpoint's pace, in the transaction that holds its lock.
-- Uses pk_endpoint_pace; no index covers the changed columns, so the update is HOT.
UPDATE holdfast.endpoint_pace
SET breaker = %(breaker)s::holdfast.breaker_state,
    breaker_since = %(breaker_since)s,
    breaker_until = %(breaker_until)s,
    breaker_reason = %(breaker_reason)s,
    failures = %(failures)s,
    openings = %(openings)s,
    probe = %(probe)s,
    paid_until = %(paid_until)s,
    held_until = %(held_until)s,
    held_by = %(held_by)s,
    stalled_us = %(stalled_us)s,
    stalled_since = %(stalled_since)s,
    stalled_until = %(stalled_until)s
WHERE endpoint_id = %(endpoint_id)s
