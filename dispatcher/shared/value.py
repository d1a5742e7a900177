"""A dataclass decorator for values that a process makes thousands of a second."""

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(cls: type[T]) -> type[T]:
    """Make `cls` a dataclass that is frozen for the type checker only.

    An instance that is frozen at run time takes three times as long to make.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)
