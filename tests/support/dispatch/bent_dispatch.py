"""`holdfast` on a bent host: `python -m tests.support.dispatch.bent_dispatch BEND ... dispatch`.

`--clock-file PATH` shifts the wall clock of this process by the seconds that the file holds, from
the moment at which it appears; clocks that measure durations go on. `--resolve NAME=A,B,...` lets a
name have another address at each lookup, the last one for ever; `-` is a name that does
not exist and `hang` a resolver that does not answer in time. `--name-server HOST:PORT` is asked
for names. `--set MODULE.NAME=NUMBER` replaces a constant. Nothing of the product knows
about this.
"""

import datetime as dt
import importlib
import sys
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any


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
    """Answer lookups of `name`."""
    left = list(answers)
    pycares = _ares()
    real = pycares.Channel.getaddrinfo

    def found(self: Any, host: str, port: int, *, callback: Any, **keywords: Any) -> None:
        if host != name:
            real(self, host, port, callback=callback, **keywords)
            return
        answer = left.pop(0) if len(left) > 1 else left[0]
        if answer == "-":
            callback(None, pycares.errno.ARES_ENOTFOUND)
        elif answer != "hang":
            nodes = [SimpleNamespace(addr=(answer.encode(), port))]
            callback(SimpleNamespace(nodes=nodes), None)

    pycares.Channel.getaddrinfo = found


def bend_name_server(address: str) -> None:
    """Ask the name server at this address."""
    pycares = _ares()
    pycares.Channel = partial(pycares.Channel, servers=[address])


def _ares() -> Any:
    return importlib.import_module("pycares")


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
            case "--name-server":
                bend_name_server(value)
            case "--set":
                module, _, constant = name.rpartition(".")
                target = importlib.import_module(module)
                assert hasattr(target, constant), name
                setattr(target, constant, float(given))
            case _:
                sys.exit(f"unknown bend {option}")
    sys.argv[1:] = rest
    from holdfast.dispatcher.cli.main import main as command

    command()


if __name__ == "__main__":
    main()
