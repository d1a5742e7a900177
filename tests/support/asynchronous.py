"""How a server of the tests ends with nothing left open."""

import asyncio

_TURNS = 5
"""Of the event loop: more than asyncio takes from accept() to the first step of a handler, and
from close() of a transport to the close() of its socket."""


async def refuse(server: asyncio.Server) -> None:
    """Stop listening.

    What was accepted gets its handler before: asyncio forgets to close a connection whose server
    was closed between accept() and its transport.
    """
    for listener in server.sockets:
        asyncio.get_running_loop().remove_reader(listener.fileno())
    await _turns()
    server.close()


async def end_every_task() -> None:
    """Cancel every other task of this loop and wait until their connections are closed, too.

    A task that is cancelled before its first step never closes the connection it was made for,
    so each gets that step first.
    """
    await _turns()
    while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await _turns()


async def _turns() -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)
