"""Errors of the exposure step.

    ExposureError
      PolicyError       the policy file is not valid
      RowsError         the rows do not have the columns of schema.ROWS, or hold a null
      ExposureOverflow  the sum of one window does not fit 64 bits
      StateError        stored state cannot be read
        StateTooNew       because a newer version of Holdfast wrote it

Each message is one line: what happened, what was not lost, what to do.
"""


class ExposureError(Exception):
    """Base class of the errors that the exposure step raises."""


class PolicyError(ExposureError, ValueError):
    """The policy file is not valid; the message names the entry and the reason."""


class RowsError(ExposureError, ValueError):
    """The rows given to the step do not have the columns of `schema.ROWS`."""


class ExposureOverflow(ExposureError, ArithmeticError):
    """A window's exposure is beyond +-(2^63 - 1); a wrapped sum would be wrong."""


class StateError(ExposureError, ValueError):
    """The bytes are not the complete state of a key group."""


class StateTooNew(StateError):
    """The bytes were written by a newer version of Holdfast."""
