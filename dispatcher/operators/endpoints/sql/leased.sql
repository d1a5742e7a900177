-- The number of leased lanes of an endpoint.
-- Uses ix_lane_leased.
SELECT count(*) AS lanes FROM holdfast.lane WHERE endpoint_id = %(endpoint_id)s AND token IS NOT NULL
