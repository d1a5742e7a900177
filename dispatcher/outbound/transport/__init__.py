"""One HTTP call with every limit; no database, no retry.

Two engines pass the same tests: `asyncio_engine`, the fast one, and `httpx_engine`, which runs
everywhere. `engines` chooses. `guard` decides which addresses may be reached; `dialing` and
`guarded_backend` see to it that no other is connected to.
"""
