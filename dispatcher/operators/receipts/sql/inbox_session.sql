-- Bounds what a comparison may cost a receiver's database, for this transaction only: it may be a pooler's session.
-- Reads no table. The one scan of the inbox may take minutes; only a person waits for it. Names resolve in pg_catalog alone.
SELECT pg_catalog.set_config('statement_timeout', '300s', true), pg_catalog.set_config('lock_timeout', '5s', true),
       pg_catalog.set_config('datestyle', 'ISO', true), pg_catalog.set_config('jit', 'off', true),
       pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true)
