-- Whether a lease ran out since a moment, and what time it is now.
-- Uses ix_lane_leased; the moment keeps it from walking over entries of leases that ended long ago.
SELECT now() AS at, EXISTS (
    SELECT FROM holdfast.lane
    WHERE token IS NOT NULL AND lease_until >= %(since)s AND lease_until < now()
) AS expired
