"""Each safety in `tests/mutations` can be removed, and has tests; `make mutations` removes them."""

import pytest

from tests.support import mutations
from tests.support.mutations import Edit


def test_every_mutation_applies_and_its_tests_exist() -> None:
    assert [fault for each in mutations.load().values() for fault in each.faults()] == []


def test_edit_that_fits_no_single_place_is_refused() -> None:
    for text in ("", "safe safe"):
        with pytest.raises(ValueError, match=f"a.py has {text.count('safe')} times"):
            Edit("a.py", "safe", "").applied(text)
