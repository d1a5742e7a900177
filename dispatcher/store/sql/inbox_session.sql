-- Bounds what a comparison may cost a receiver's database, of this transaction only: it may be a pooler's session.
-- No table. The one scan of the inbox may take minutes; nobody but a person waits for it.
SELECT set_config('statement_timeout', '300s', true), set_config('lock_timeout', '5s', true),
       set_config('datestyle', 'ISO', true), set_config('jit', 'off', true)
