-- Whether a lease ended since a given time, and the current time.
-- Uses ix_lane_leased; the lower bound skips index entries of leases that ended long ago.
SELECT now() AS at, EXISTS (
    SELECT FROM holdfast.lane
    WHERE token IS NOT NULL AND lease_until >= %(since)s AND lease_until < now()
) AS expired
