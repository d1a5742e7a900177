-- The server process behind this connection.
-- Needs no index.
SELECT pg_backend_pid() AS pid
