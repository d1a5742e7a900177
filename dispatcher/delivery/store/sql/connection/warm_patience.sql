-- Lets the warm-up of a new connection wait for no lock: a caller waits for the connection, and a statement that is not
-- prepared yet is only slower at first. Needs no index.
SELECT set_config('lock_timeout', '100ms', true)
