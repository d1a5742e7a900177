-- Bounds the statements of a comparison, for this session only, and restricts pages to index scans: a plan that sorts a
-- partition for each page would take hours instead of seconds. With little memory such a sort looks as expensive as it is: it
-- is planned for all rows, of which a page needs a few. Needs no index.
SELECT set_config('enable_seqscan', 'off', false), set_config('enable_hashjoin', 'off', false),
       set_config('enable_mergejoin', 'off', false), set_config('jit', 'off', false),
       set_config('work_mem', '64kB', false),
       set_config('default_transaction_read_only', 'on', false)
