"""What can go wrong in the exposure step, named for what the caller does next.

    ExposureError
      PolicyError       the policy file says something that cannot be meant, or nothing at all
      RowsError         the rows do not have the columns of schema.ROWS, or hold a null
      ExposureOverflow  the sum of one window does not fit 64 bits
      StateError        stored state cannot be read
        StateTooNew       ... because a newer version of Holdfast wrote it

Each message is one line: what happened, what was not lost, what to do.
"""


class ExposureError(Exception):
    """Base of every error that the exposure step raises on purpose."""


class PolicyError(ExposureError, ValueError):
    """The policy file is wrong; the message names the entry and the reason in words."""


class RowsError(ExposureError, ValueError):
    """The rows given to the step are not of the shape it was written for."""


class ExposureOverflow(ExposureError, ArithmeticError):
    """A window's exposure is beyond +-(2^63 - 1); it is refused because a wrapped sum lies."""


class StateError(ExposureError, ValueError):
    """The bytes are not the state of a key group, or not all of it."""


class StateTooNew(StateError):
    """The bytes were written by a version of Holdfast that this one does not know."""
