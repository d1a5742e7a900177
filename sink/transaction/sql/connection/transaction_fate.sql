-- The outcome of the transaction in which `also` was called: 'open' where it is still the current one. `also` may have set
-- another search_path, so every name is qualified. No index.
SELECT
    CASE
        WHEN pg_catalog.pg_current_xact_id_if_assigned()
            OPERATOR(pg_catalog.=) %(transaction_id)s::pg_catalog.xid8
            THEN 'open'
        ELSE pg_catalog.pg_xact_status(%(transaction_id)s::pg_catalog.xid8)
    END AS fate
