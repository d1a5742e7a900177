-- Streams new keys in sorted order, so that two streams wait for each other in one direction only;
-- fails where a key is known. Index: pk_entry_key.
COPY holdfast.entry_key (key, content, batch_no) FROM STDIN (FORMAT binary)
