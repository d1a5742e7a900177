"""An error that a test expects, by its code."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from holdfast.sink.contract.exits import CommandError


@contextmanager
def raises_code(code: str) -> Iterator[pytest.ExceptionInfo[CommandError]]:
    """Expect a `CommandError` with this code in the block."""
    with pytest.raises(CommandError) as raised:
        yield raised
    assert raised.value.code == code, raised.value
