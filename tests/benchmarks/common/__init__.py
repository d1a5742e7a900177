"""Shared parts of the benchmarks: machine, processes, databases, tables and bar charts."""
