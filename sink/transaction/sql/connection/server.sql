-- The properties of a server that the sink checks before it relies on its COMMIT. Needs no privilege on
-- the schema; every name is qualified, because the session may have any search_path. No index.
SELECT
    pg_catalog.pg_is_in_recovery()
        OR pg_catalog.current_setting('default_transaction_read_only')::boolean AS read_only,
    pg_catalog.current_setting('fsync')::boolean
        AND pg_catalog.current_setting('full_page_writes')::boolean AS durable,
    pg_catalog.current_setting('server_encoding') AS encoding,
    EXISTS (
        SELECT FROM pg_catalog.pg_class AS class
        JOIN pg_catalog.pg_namespace AS namespace
            ON namespace.oid OPERATOR(pg_catalog.=) class.relnamespace
        WHERE namespace.nspname OPERATOR(pg_catalog.=) 'holdfast'
            AND class.relname OPERATOR(pg_catalog.=) 'alembic_version'
    ) AS installed,
    -- The role that writes the stream: its own, where there is one. As text: type name truncates.
    coalesce(
        (
            SELECT pg_catalog.max(roles.rolname::pg_catalog.text) FROM pg_catalog.pg_roles AS roles
            WHERE roles.rolname::pg_catalog.text OPERATOR(pg_catalog.=)
                ('holdfast_sink_' OPERATOR(pg_catalog.||) %(stream)s::pg_catalog.text)
        ),
        'holdfast_sink'
    ) AS writer
