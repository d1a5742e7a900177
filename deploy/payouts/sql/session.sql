-- Bounds every statement, lock wait and idle transaction of a connection, so that nothing hangs for ever.
-- No index: settings of the session.
SELECT set_config('statement_timeout', '10s', false),
       set_config('lock_timeout', '2s', false),
       set_config('idle_in_transaction_session_timeout', '15s', false),
       set_config('timezone', 'UTC', false)
