"""One HTTP call with every limit; no database, no retry.

`asyncio_engine` delivers by default; `httpx_engine` delivers where httptools cannot be installed,
and passes the same tests. `engines` chooses. `getting` makes inquiries, on httpx. `guard` decides
which addresses may be reached; `dialing` and `httpx_channel` connect to no other.
"""
