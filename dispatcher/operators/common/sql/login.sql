-- Lets the rest of this transaction see what the login sees of other sessions: they belong to it, not to the role.
-- Needs no index.
SELECT set_config('role', 'none', true)
