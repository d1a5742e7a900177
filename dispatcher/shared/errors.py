"""The exceptions of the dispatcher.

    DispatcherError
      StoreUnavailableError   the database did not answer: try again
        StoreRefusedError     it answers, and writes nothing
      DrainFailedError        `--drain` cannot finish
      UnservedError           the database does not serve this version

`UnservedCommandError` ends a process for that: starting the same version again does not help.

`ParameterError` is raised by rules; each surface turns it into an error in its own words.

A receiver's fault is not an exception but a value (`holdfast.dispatcher.shared.outcome.Answer`).
"""

import re
from collections.abc import Callable, Mapping

from holdfast.sink.contract.exits import CommandError


class DispatcherError(Exception):
    """Base of every exception that the dispatcher raises itself."""


class StoreUnavailableError(DispatcherError):
    """The database is unavailable; whether the transaction committed is unknown."""


class StoreRefusedError(StoreUnavailableError):
    """The database answers and refuses to write: read-only, out of disk or transaction IDs."""


class DrainFailedError(DispatcherError):
    """A drain cannot finish: the database was away for too long, or this host's clock is wrong."""


class UnservedError(DispatcherError):
    """The database does not serve this version, as `holdfast.sink.contract.schema.misfit` says."""


class UnservedCommandError(CommandError):
    """The end of a process that the database does not serve."""

    def __init__(self, misfit: str, before: str = "", after: str = "Nothing was changed.") -> None:
        """`misfit` is what `holdfast.sink.contract.schema.misfit` says."""
        super().__init__(f"{before}{misfit}. {after}", code="schema_mismatch")
        self.misfit = misfit


class ParameterError(ValueError):
    """Why values of parameters are refused. Never quotes a value that may be a secret.

    `{name}` in the message stands for a parameter, which each surface spells in its own way; `str`
    leaves its name.

    >>> error = ParameterError("{ca_ref} must be below {folder}", {"folder": "/run"})
    >>> str(error), error.spelled(lambda name: f"--{name.removesuffix('_ref')}")
    ('ca_ref must be below /run', '--ca must be below /run')
    """

    def __init__(self, message: str, texts: Mapping[str, str] | None = None) -> None:
        """`texts` are what else the message contains: they may hold any character."""
        super().__init__(message)
        self._texts = texts or {}

    def __str__(self) -> str:
        """Return the message with the names of the parameters."""
        return self.spelled(str)

    def spelled(self, spell: Callable[[str], str]) -> str:
        """Return the message with each parameter as `spell` writes its name."""
        return _NAME.sub(lambda name: self._texts.get(name[1]) or spell(name[1]), self.args[0])


_NAME = re.compile(r"\{([a-z_]+)\}")
