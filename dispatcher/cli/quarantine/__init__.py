"""`holdfast quarantine`: the group, and the files that it reads and writes."""
