-- Gives the rest of this transaction the login's rights: it may see other sessions, the role may not.
-- Needs no index.
SELECT set_config('role', 'none', true)
