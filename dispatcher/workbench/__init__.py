"""Tools for people who write a receiver: `listen`, `trigger`, `sign`, `verify`, `conform`."""
