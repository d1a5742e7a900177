"""One HTTP call with every limit; no database, no retry.

`httpx_engine` is the engine, `guard` decides at connect time which addresses may be reached.
"""
