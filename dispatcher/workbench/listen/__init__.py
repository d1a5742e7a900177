"""The code behind `listen`, `trigger`, `verify` and `endpoint test`."""
