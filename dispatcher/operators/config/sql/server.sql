-- The server, who is connected to it, and its clock, asked for last so that nothing comes between.
-- Needs no index: it reads no table.
SELECT current_setting('server_version') AS version, current_setting('server_version_num')::integer AS number,
       current_user::text AS name, clock_timestamp() AS now
