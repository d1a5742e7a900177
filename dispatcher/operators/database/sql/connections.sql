-- The sessions of this database by application and state.
-- Needs no index: a row per connection.
SELECT application_name AS application, coalesce(state, 'hidden') AS state, count(*) AS sessions
FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend'
GROUP BY 1, 2
ORDER BY 3 DESC, 1, 2
LIMIT %(limit)s
