-- Of some keys in wire form, those that no entry ever had; texts that are not keys are among them.
-- Uses pk_entry_key.
SELECT k.key
FROM unnest(%(keys)s::text[]) AS k (key)
WHERE NOT EXISTS (
    SELECT FROM holdfast.entry_key e
    WHERE e.key = CASE WHEN k.key ~ '^hf_[0-9a-f]{32}$' THEN substr(k.key, 4)::uuid END)
