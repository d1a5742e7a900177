-- Deletes logins that ended more than a day ago; runs as the schema's owner.
-- Reads the whole table, which is small.
SELECT holdfast.forget_logins() AS forgotten
