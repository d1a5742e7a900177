-- Bounds the statements of a comparison, of this session only, and keeps pages to index walks: a plan that sorts a
-- whole day for each page would take hours where this one takes seconds. Needs no index.
SELECT set_config('enable_seqscan', 'off', false), set_config('enable_hashjoin', 'off', false),
       set_config('enable_mergejoin', 'off', false), set_config('jit', 'off', false),
       set_config('default_transaction_read_only', 'on', false)
