"""`holdfast` on a bent host: `python -m tests.support.dispatch.bent_dispatch BEND ... dispatch`.

`--clock-file PATH` shifts the wall clock of this process by the seconds that the file holds, from
the moment at which it appears; clocks that measure durations go on. `--resolve NAME=A,B,...` lets a
name have another address at each lookup, the last one for ever; `-` is a name that does
not exist and `hang` a resolver that does not answer in time. `--set MODULE.NAME=NUMBER` replaces a
constant. Nothing of the product knows about this.
"""

import asyncio
import datetime as dt
import importlib
import socket
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

_HANG_SECONDS = 3
"""Longer than any timeout of the tests; threads that hang hold up the end of their process."""


def bend_clock(file: Path) -> None:
    """Shift `time.time` and `datetime.now` by what `file` says."""
    real_time, real = time.time, dt.datetime

    def offset() -> float:
        return float(file.read_text()) if file.exists() else 0.0

    class Shifted(real):  # type: ignore[misc, valid-type]  # a class that is chosen at run time
        __slots__ = ()

        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> dt.datetime:  # type: ignore[override]
            return real.now(tz) + dt.timedelta(seconds=offset())

    time.time = lambda: real_time() + offset()
    dt.datetime = Shifted  # type: ignore[misc]


def bend_resolver(name: str, answers: list[str]) -> None:
    """Answer lookups of `name`, whichever way the event loop makes them."""
    left = list(answers)
    real = socket.getaddrinfo

    def found(host: Any, port: Any, *arguments: Any, **keywords: Any) -> Any:
        if host not in (name, name.encode()):
            return real(host, port, *arguments, **keywords)
        answer = left.pop(0) if len(left) > 1 else left[0]
        if answer == "-":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        if answer == "hang":
            time.sleep(_HANG_SECONDS)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (answer, port))]

    async def ask(self: asyncio.AbstractEventLoop, host: Any, port: Any, **keywords: Any) -> Any:
        return await self.run_in_executor(None, partial(found, host, port, **keywords))

    socket.getaddrinfo = found
    with suppress(ModuleNotFoundError):
        # Its loop does not ask `socket`.
        importlib.import_module("uvloop").Loop.getaddrinfo = ask


def main() -> None:
    """Bend what the options say, then run the command with the rest of them."""
    rest = sys.argv[1:]
    while rest[0].startswith("--"):
        option, value, rest = rest[0], rest[1], rest[2:]
        name, _, given = value.partition("=")
        match option:
            case "--clock-file":
                bend_clock(Path(value))
            case "--resolve":
                bend_resolver(name, given.split(","))
            case "--set":
                module, _, constant = name.rpartition(".")
                target = importlib.import_module(module)
                assert hasattr(target, constant), name
                setattr(target, constant, float(given))
            case _:
                sys.exit(f"unknown bend {option}")
    sys.argv[1:] = rest
    from dispatcher.cli.main import main as command

    command()


if __name__ == "__main__":
    main()
