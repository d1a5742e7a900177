-- Has what a new connection prepares wait for no lock: somebody waits for the connection, and what was not prepared is
-- only slower at first. Needs no index.
SELECT set_config('lock_timeout', '100ms', true)
