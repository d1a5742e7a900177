"""The rule that accepts a session: what the code can work on, and what the database serves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.sink.contract.schema import CODE, Code, misfit

REVISIONS = st.integers(0, 9999).map("{:04}".format)


@st.composite
def codes(draw: st.DrawFn) -> Code:
    works_from, revision = sorted((draw(REVISIONS), draw(REVISIONS)))
    return Code(revision, works_from)


@st.composite
def databases(draw: st.DrawFn) -> tuple[str, str]:
    serves_from, revision = sorted((draw(REVISIONS), draw(REVISIONS)))
    return revision, serves_from


@given(databases(), codes())
def test_overlapping_ranges_accept_a_session(database: tuple[str, str], code: Code) -> None:
    revision, serves_from = database
    accepted = code.revision >= serves_from and revision >= code.works_from
    assert (misfit(revision, serves_from, code) is None) == accepted


@given(databases(), codes())
def test_refusal_names_both_ranges_and_what_to_do(database: tuple[str, str], code: Code) -> None:
    reason = misfit(*database, code)
    if reason is None:
        return
    for each in (*database, code.revision, code.works_from):
        assert each in reason
    newer_code = code.revision >= database[1]
    assert ("holdfast db upgrade" in reason) == newer_code
    assert ("upgrade this process" in reason) != newer_code


@pytest.mark.parametrize(
    ("revision", "serves_from", "accepted"),
    [
        ("0033", "0032", True),  # expanded: the older code goes on
        ("0033", None, False),  # before 0032: only the code that was built for it, or later
        ("0032", None, True),
        ("0031", None, True),  # code first, database later
        ("0030", None, False),
        ("0034", "0033", False),  # contracted
        (None, None, False),
    ],
)
def test_code_built_for_0032_that_works_from_0031_on(
    revision: str | None, serves_from: str | None, accepted: bool
) -> None:
    assert (misfit(revision, serves_from, Code("0032", "0031")) is None) == accepted


def test_this_version_works_on_the_revision_for_which_it_was_built() -> None:
    assert CODE.works_from <= CODE.revision
    assert misfit(CODE.revision, CODE.revision) is None
