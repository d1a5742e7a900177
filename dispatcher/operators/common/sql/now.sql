-- The time of this database, by which `2h` and `yesterday` are meant. It reads no table.
-- Uses no index.
SELECT now() AS now
