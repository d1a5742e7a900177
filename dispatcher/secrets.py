"""An endpoint's signing secrets, read where the dispatcher runs.

The database holds references (`env:VAR`, `file:PATH`) and never a secret. They are read again at
each load of the endpoints, so that a rotated secret takes effect without a restart.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from dispatcher.receiver.errors import SecretError
from dispatcher.receiver.secret import Secret


@dataclass(frozen=True, slots=True)
class Secrets:
    """The active secrets of one endpoint, the first named first; or what is wrong with them."""

    values: tuple[Secret, ...]
    fault: str | None = None


def read_secrets(references: Sequence[str]) -> Secrets:
    """Read every reference. One that cannot be used is a fault of all of them.

    During a rotation the receiver may know only one of two secrets, and nobody can tell here which.
    Blocks on files.
    """
    values = []
    for reference in references:
        try:
            values.append(Secret.load(reference))
        except SecretError as error:
            return Secrets((), str(error))
    return Secrets(tuple(values))
