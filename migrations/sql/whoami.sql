-- Returns the names of the current user and database, quoted as SQL identifiers.
-- Index: none.
SELECT quote_ident(current_user::text), quote_ident(current_database()::text)
