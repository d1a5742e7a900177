-- The names of the current user and database, quoted as a statement needs them.
-- Index: none.
SELECT quote_ident(current_user::text), quote_ident(current_database()::text)
