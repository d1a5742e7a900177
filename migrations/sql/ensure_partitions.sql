-- Makes the partitions of the coming days that are missing; a database that stood still gets them
-- with its next upgrade. Index: the catalogue's own.
SELECT holdfast.ensure_partitions()
