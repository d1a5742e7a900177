"""The exceptions of the dispatcher.

    DispatcherError
      StoreUnavailableError   the database did not answer: try again
        StoreRefusedError     it answers, and writes nothing
      DrainFailedError        `--drain` cannot finish
      UnservedError           the database does not serve this version

`UnservedCommandError` ends a process for that: starting the same version again does not help.

A receiver's fault is not an exception but a value (`holdfast.dispatcher.shared.outcome.Answer`).
"""

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
