"""The local runtime: Postgres and Java from wheels, so that a machine needs only Python."""
