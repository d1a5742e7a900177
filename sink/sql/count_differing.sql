-- How many staged entries repeat a recorded key with other content.
-- Index: pk_entry_key.
SELECT count(*) AS count
FROM pg_temp.holdfast_staged AS staged
JOIN holdfast.entry_key AS known USING (key)
WHERE known.batch_no <> %(batch_no)s AND known.content <> staged.content
