-- What the sink must know of a server before it trusts its COMMIT; needs no right on the schema.
-- No index.
SELECT
    current_setting('transaction_read_only')::boolean AS read_only,
    current_setting('fsync')::boolean AND current_setting('full_page_writes')::boolean AS durable,
    current_setting('server_encoding') AS encoding,
    EXISTS (
        SELECT FROM pg_catalog.pg_class AS class
        JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
        WHERE namespace.nspname = 'holdfast' AND class.relname = 'alembic_version'
    ) AS installed
