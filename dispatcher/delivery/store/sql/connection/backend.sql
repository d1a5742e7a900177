-- The server process of this connection; runs before the search_path is restricted to pg_catalog.
-- Needs no index.
SELECT pg_catalog.pg_backend_pid() AS pid
