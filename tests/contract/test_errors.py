"""Every error of the product: its code, its exit code and its text, as they were reviewed."""

from collections import defaultdict

from tests.support.documents.error_index import PAGE, page, undescribed
from tests.support.documents.errors import CAUSE, SNAPSHOT, Error, errors, lines

ALL = errors()


def test_every_error_has_a_literal_code_in_snake_case() -> None:
    assert [fault for error in ALL if (fault := error.fault()) is not None] == []


def test_a_code_has_one_exit_code() -> None:
    by_code = defaultdict[str | None, set[str]](set)
    for error in ALL:
        by_code[error.code].add(error.exit_code)
    several = {code: found for code, found in by_code.items() if len(found) > 1 and code != CAUSE}
    assert several == {}


def test_codes_and_texts_are_the_reviewed_ones() -> None:
    """After a change that is meant: `make errors`."""
    assert lines(ALL) == SNAPSHOT.read_text().splitlines()


def test_every_exception_reason_and_outcome_is_explained() -> None:
    assert undescribed() == []


def test_page_of_errors_is_made_from_the_code() -> None:
    """After a change that is meant: `make errors`."""
    assert PAGE.read_text() == page(ALL)


def test_fault_of_a_code_is_found() -> None:
    assert Error("unknown_key", "3", "text", "a.py:1").fault() is None
    assert Error("Unknown key", "3", "text", "a.py:1").fault() == (
        "a.py:1: Unknown key is not in snake_case"
    )
    assert Error(None, "1", "text", "a.py:1").fault() == "a.py:1 has no literal code"
