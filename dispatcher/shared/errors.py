"""The exceptions of the dispatcher.

    DispatcherError
      StoreUnavailableError   the database did not answer: try again
        StoreRefusedError     it answers, and writes nothing
      DrainFailedError        `--drain` cannot finish

A receiver's fault is not an exception but a value (`dispatcher.shared.outcome.Answer`).
"""


class DispatcherError(Exception):
    """Base of every exception that the dispatcher raises itself."""


class StoreUnavailableError(DispatcherError):
    """The database is unavailable; whether the transaction committed is unknown."""


class StoreRefusedError(StoreUnavailableError):
    """The database answers and refuses to write: read-only, out of disk or transaction IDs."""


class DrainFailedError(DispatcherError):
    """The database was unavailable for too long during a drain."""
