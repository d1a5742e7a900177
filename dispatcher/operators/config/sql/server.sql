-- The server's version, the connected user, and the clock, read last for an exact difference.
-- Needs no index: it reads no table.
SELECT current_setting('server_version') AS version, current_setting('server_version_num')::integer AS number,
       current_user::text AS name, clock_timestamp() AS now
