"""The database: size, connections, vacuum, missing days."""
