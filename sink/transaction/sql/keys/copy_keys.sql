-- Streams new keys in their order, so that two streams wait for each other in one direction only;
-- fails where one is known. Index: pk_entry_key.
COPY holdfast.entry_key (key, content, batch_no) FROM STDIN (FORMAT binary)
