"""Another policy for a stream that has decided: what it may change, and the words where not."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.spark_app.exposure.errors import PolicyError
from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.exposure.policy_change import require_unchanged, same
from holdfast.spark_app.exposure.policy_file import Limits
from tests.support.job.exposure import at

DECIDED = at("12:19:30")


def _entry(limit: int, since: str = "", merchant: str = "") -> str:
    head = f'[[merchant]]\nid = "{merchant}"' if merchant else "[[default]]"
    effective = f"effective_from = 2026-11-02T{since}:00Z" if since else ""
    return f"{head}\nlimit_minor = {limit}\nrelease_level_minor = {limit}\n{effective}\n"


def _policy(*entries: str, version: str = "v2", top: str = "") -> Policy:
    return Policy.parse(f'version = "{version}"\n{top}\n{"".join(entries)}')


BEFORE = _policy(_entry(100), _entry(300, "12:00", "m_1"), version="v1")


def _change(*entries: str, decided: int | None = DECIDED, top: str = "") -> None:
    require_unchanged(BEFORE.file, _policy(*entries, top=top).file, decided)


def _is_taken(*entries: str, decided: int | None = DECIDED) -> bool:
    try:
        _change(*entries, decided=decided)
    except PolicyError:
        return False
    return True


def test_a_change_after_what_was_decided_is_taken() -> None:
    assert _is_taken(_entry(100), _entry(300, "12:00", "m_1"), _entry(200, "12:20"))
    assert _is_taken(_entry(100), _entry(300, "12:00", "m_1"), _entry(50, "12:30", "m_1"))
    assert _is_taken(_entry(100), _entry(300, "12:00", "m_1"), _entry(50, "12:30", "m_new"))


def test_an_entry_that_changes_nothing_is_taken() -> None:
    assert _is_taken(_entry(300, "12:00", "m_1"), _entry(100, merchant="m_new"), _entry(100))
    assert _is_taken(_entry(100), _entry(300, "12:00", "m_1"), _entry(300, "12:15", "m_1"))


def test_nothing_is_decided_before_the_first_watermark() -> None:
    assert not _is_taken(_entry(777))
    assert _is_taken(_entry(777), decided=None)


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        (
            [_entry(101), _entry(300, "12:00", "m_1")],
            (
                "Policy v2 gives the default limit 101 and release level 101 from the beginning,"
                " but the windows that end up to 2026-11-02T12:19:30Z are decided already, by"
                " policy v1 with limit 100 and release level 100. Keep the entries that were, and"
                " add one with an effective_from after 2026-11-02T12:19:30Z."
            ),
        ),
        (
            [_entry(100), _entry(300, "12:00", "m_1"), _entry(200, "12:15")],
            "gives the default limit 200 and release level 200 from 2026-11-02T12:15:00Z on",
        ),
        (
            [_entry(100), _entry(301, "12:00", "m_1")],
            'gives merchant "m_1" limit 301 and release level 301 from 2026-11-02T12:00:00Z on',
        ),
        (
            [_entry(100), _entry(300, "12:15", "m_1")],
            'gives merchant "m_1" limit 100 and release level 100 from 2026-11-02T12:00:00Z on',
        ),
        ([_entry(100)], 'gives merchant "m_1" limit 100 and release level 100 from 2026-11-02'),
        (
            [_entry(100), _entry(300, "12:00", "m_1"), _entry(9, merchant="m_2")],
            'gives merchant "m_2" limit 9 and release level 9 from the beginning',
        ),
    ],
)
def test_a_change_of_what_was_decided_is_refused_with_who_and_when(
    entries: list[str], said: str
) -> None:
    with pytest.raises(PolicyError, match=re.escape(said)):
        _change(*entries)


@pytest.mark.parametrize("decided", [None, DECIDED])
def test_no_currency_may_change(decided: int | None) -> None:
    with pytest.raises(PolicyError, match=r"lets the default settle in EUR.*in USD .policy v1"):
        _change(_entry(100), _entry(300, "12:00", "m_1"), decided=decided, top='currency = "EUR"')
    merchant = _entry(100, merchant="m_2") + 'currency = "CHF"\n'
    with pytest.raises(PolicyError, match=r'lets merchant "m_2" settle in CHF.*Restore USD'):
        _change(_entry(100), _entry(300, "12:00", "m_1"), merchant, decided=decided)


@pytest.mark.parametrize("decided", [None, DECIDED])
def test_the_first_moment_with_limits_may_not_move(decided: int | None) -> None:
    """Events are taken or set aside by it when they arrive, long before their window ends."""
    before = _policy(_entry(100, "15:00"), version="v1")
    earlier = _policy(_entry(100, "15:00"), _entry(100, "14:00"))
    with pytest.raises(PolicyError, match="from 2026-11-02T14:00:00Z on, but policy v1 had them f"):
        require_unchanged(before.file, earlier.file, decided)
    own = _policy(_entry(100, "15:00"), _entry(100, merchant="m_9"))
    with pytest.raises(PolicyError, match='for merchant "m_9" from the beginning, but policy v1'):
        require_unchanged(before.file, own.file, decided)


def test_layout_and_order_are_no_change() -> None:
    one = _policy(_entry(100), _entry(300, "12:00", "m_1"))
    other = _policy("# a comment\n", _entry(300, "12:00", "m_1"), _entry(100))
    assert same(one.file, other.file)
    assert not same(one.file, _policy(_entry(100), _entry(301, "12:00", "m_1")).file)
    assert not same(one.file, BEFORE.file)


ENTRIES = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", None]),
        st.one_of(st.none(), st.integers(0, 9)),
        st.integers(0, 2),
    ),
    max_size=5,
    unique_by=lambda entry: entry[:2],
)


@given(ENTRIES, ENTRIES, st.integers(-1, 10))
def test_it_is_refused_exactly_where_some_decided_moment_has_other_limits(
    before: list[tuple[str | None, int | None, int]],
    after: list[tuple[str | None, int | None, int]],
    decided: int,
) -> None:
    one, other = _random(before), _random(after)

    def limits(policy: Policy) -> list[Limits]:
        moments = range(-1, decided + 1)
        return [policy.in_force(merchant, m) for merchant in ("a", "b", "c") for m in moments]

    try:
        require_unchanged(one.file, other.file, decided)
    except PolicyError:
        assert limits(one) != limits(other)
    else:
        assert limits(one) == limits(other)


def _random(entries: list[tuple[str | None, int | None, int]]) -> Policy:
    if not any(entry[:2] == (None, None) for entry in entries):
        entries = [*entries, (None, None, 1)]
    text = "".join(
        (f'[[merchant]]\nid = "{merchant}"\n' if merchant else "[[default]]\n")
        + f"limit_minor = {limit}\nrelease_level_minor = 0\n"
        + ("" if since is None else f"effective_from = 1970-01-01T00:00:00.00000{since}Z\n")
        for merchant, since, limit in entries
    )
    return Policy.parse(f'version = "v"\n{text}')
