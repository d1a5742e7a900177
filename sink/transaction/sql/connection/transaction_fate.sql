-- What became of the transaction in which `also` was called: 'open' where this still is that one. `also` may have set another
-- search_path, so each name is written out. No index.
SELECT
    CASE
        WHEN pg_catalog.pg_current_xact_id_if_assigned()
            OPERATOR(pg_catalog.=) %(transaction_id)s::pg_catalog.xid8
            THEN 'open'
        ELSE pg_catalog.pg_xact_status(%(transaction_id)s::pg_catalog.xid8)
    END AS fate
