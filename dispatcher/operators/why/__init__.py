"""Why an entry or a subject waits, and the command that resolves it."""
