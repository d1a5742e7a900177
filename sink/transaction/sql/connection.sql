-- name: read_only
-- One snapshot for the whole transaction, which writes nothing. First statement of its transaction.
-- No index.
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY


-- name: server
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


-- name: session
-- Sets the sink's role and bounds every wait, for this transaction only: the session may be a
-- pooler's, and the next transaction another client's. search_path is pg_catalog alone, so every name
-- is qualified. Turns synchronous_commit on where it is off by default. The keepalives detect a lost
-- driver host. No index.
SELECT
    pg_catalog.pg_is_in_recovery()
        OR pg_catalog.current_setting('default_transaction_read_only')::boolean AS read_only,
    (pg_catalog.clock_timestamp() AT TIME ZONE 'UTC')::pg_catalog.date AS today,
    pg_catalog.set_config('lock_timeout', %(lock_ms)s, true),
    pg_catalog.set_config('statement_timeout', %(statement_ms)s, true),
    pg_catalog.set_config('idle_in_transaction_session_timeout', %(idle_ms)s, true),
    pg_catalog.set_config('tcp_keepalives_idle', '10', true),
    pg_catalog.set_config('tcp_keepalives_interval', '5', true),
    pg_catalog.set_config('tcp_keepalives_count', '3', true),
    pg_catalog.set_config('timezone', 'UTC', true),
    pg_catalog.set_config('datestyle', 'ISO', true),
    pg_catalog.set_config('client_encoding', 'UTF8', true),
    pg_catalog.set_config(
        'synchronous_commit',
        CASE
            WHEN pg_catalog.current_setting('synchronous_commit') OPERATOR(pg_catalog.=) 'off'
                THEN 'on'
            ELSE pg_catalog.current_setting('synchronous_commit')
        END,
        true
    ),
    pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true),
    pg_catalog.set_config('role', %(role)s, true)


-- name: transaction_fate
-- The outcome of the transaction in which `also` was called: 'open' where it is still the current one. `also` may have set
-- another search_path, so every name is qualified. No index.
SELECT
    CASE
        WHEN pg_catalog.pg_current_xact_id_if_assigned()
            OPERATOR(pg_catalog.=) %(transaction_id)s::pg_catalog.xid8
            THEN 'open'
        ELSE pg_catalog.pg_xact_status(%(transaction_id)s::pg_catalog.xid8)
    END AS fate
