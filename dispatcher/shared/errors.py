"""What can go wrong in the dispatcher itself.

    DispatcherError
      StoreUnavailableError   the database did not answer: try again, nothing was decided
      DrainFailedError        `--drain` cannot come to its end

What a receiver does wrong is no error here: it is a value (`dispatcher.shared.outcome.Answer`).
"""


class DispatcherError(Exception):
    """Base of every error that the dispatcher raises on purpose."""


class StoreUnavailableError(DispatcherError):
    """The database is away or gave up a statement; whether the transaction stands is not known."""


class DrainFailedError(DispatcherError):
    """The database stayed away for too long while a drain waited for it."""
