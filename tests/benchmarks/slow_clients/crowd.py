"""A crowd of bad clients, as a process: `python -m tests.benchmarks.slow_clients.crowd URL KIND N`.

Each sends a byte of its body a second, or a wrong token a second, until the process is ended.
"""

import asyncio
import secrets
import sys
from contextlib import suppress
from urllib.parse import urlsplit

from holdfast.dispatcher.operators.tokens.store import TOKEN_PREFIX

JSON = "content-type: application/json"
FORM = "content-type: application/x-www-form-urlencoded"
HEADS = {
    "bodies": ("POST /api/v1/tokens", JSON, "content-length: 100000"),
    "logins": ("POST /login", FORM, "content-length: 8000"),
    "tokens": ("GET /api/v1/status",),
}


async def _client(host: str, port: int, kind: str) -> None:
    first, *lines = HEADS[kind]
    while True:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection(host, port)
            token = f"authorization: Bearer {TOKEN_PREFIX}{secrets.token_hex(16)}"
            more = (token,) if kind == "tokens" else ()
            head = "\r\n".join((f"{first} HTTP/1.1", f"host: {host}", *lines, *more, "", ""))
            writer.write(head.encode())
            while not reader.at_eof() and kind != "tokens":
                await asyncio.sleep(1)
                writer.write(b"x")
                await writer.drain()
                with suppress(TimeoutError):
                    await asyncio.wait_for(reader.read(65536), 0.001)
            writer.close()
        await asyncio.sleep(1)


async def _main(url: str, kind: str, count: int) -> None:
    parts = urlsplit(url)
    async with asyncio.TaskGroup() as clients:
        for _ in range(count):
            clients.create_task(_client(parts.hostname or "", parts.port or 0, kind))


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
