-- The server process behind this connection; asked before the session keeps to pg_catalog.
-- Needs no index.
SELECT pg_catalog.pg_backend_pid() AS pid
