-- The server's clock and version, the size of this database, the server's connection limit, the revision of the schema.
-- Needs no index.
SELECT clock_timestamp() AS at, current_database() AS name, current_setting('server_version') AS server_version,
       pg_database_size(current_database()) AS bytes, current_setting('max_connections')::integer AS connections_max,
       (SELECT version_num FROM holdfast.alembic_version) AS revision
