"""Policy files, a change of policy, and durations: what they mean, and what is refused in words."""

import pickle
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.spark_app.exposure.errors import PolicyError
from holdfast.spark_app.exposure.policy import Policy, require_unchanged, same
from holdfast.spark_app.exposure.policy_file import Limits
from holdfast.spark_app.exposure.settings import Settings
from tests.support.job.exposure import at

POLICY = """
version = "2026-11-01"
[[default]]
limit_minor = 100
release_level_minor = 90
[[default]]
limit_minor = 200
release_level_minor = 190
effective_from = 2026-11-02T14:00:00+02:00
[[merchant]]
id = "m_482"
currency = "EUR"
limit_minor = 300
release_level_minor = 0
effective_from = 2026-11-02T13:00:00Z
[[merchant]]
id = "m_482"
limit_minor = 400
release_level_minor = 400
effective_from = 2026-11-02T14:00:00.000001Z
"""

DEFAULT = "[[default]]\nlimit_minor = 5\nrelease_level_minor = 5\n"
MERCHANT = '[[merchant]]\nid = "m"\nlimit_minor = 5\nrelease_level_minor = 5\n'


@pytest.mark.parametrize(
    ("merchant", "end", "limits"),
    [
        ("other", "11:59:59", Limits(100, 90)),
        ("other", "12:00", Limits(200, 190)),
        ("m_482", "11:45", Limits(100, 90)),
        ("m_482", "12:45", Limits(200, 190)),
        ("m_482", "13:00", Limits(300, 0)),
        ("m_482", "14:00", Limits(300, 0)),
        ("m_482", "14:15", Limits(400, 400)),
    ],
)
def test_newest_own_entry_in_force_counts(merchant: str, end: str, limits: Limits) -> None:
    assert Policy.parse(POLICY).in_force(merchant, at(end)) == limits


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "c", None]), st.one_of(st.none(), st.integers(0, 9))),
        unique=True,
    ),
    st.lists(st.tuples(st.sampled_from(["a", "b", "c", "d"]), st.integers(0, 10))),
)
def test_lookup_of_arrays_finds_what_a_search_by_hand_finds(
    entries: list[tuple[str | None, int | None]], asked: list[tuple[str, int]]
) -> None:
    if (None, None) not in entries:
        entries = [*entries, (None, None)]
    text = 'version = "v"\n' + "".join(
        (f'[[merchant]]\nid = "{merchant}"\n' if merchant else "[[default]]\n")
        + f"limit_minor = {number}\nrelease_level_minor = 0\n"
        + (f"effective_from = 1970-01-01T00:00:00.00000{since}Z\n" if since is not None else "")
        for number, (merchant, since) in enumerate(entries)
    )

    def by_hand(merchant: str, end: int) -> int:
        for owner in (merchant, None):
            in_force = [
                (-1 if since is None else since, number)
                for number, (who, since) in enumerate(entries)
                if who == owner and (since is None or since <= end)
            ]
            if in_force:
                return max(in_force)[1]
        raise AssertionError

    limit, _ = Policy.parse(text).limits(
        pa.array([merchant for merchant, _ in asked], pa.string()),
        np.array([end for _, end in asked], np.int64),
    )
    assert limit.tolist() == [by_hand(merchant, end) for merchant, end in asked]


def test_merchant_settles_in_its_own_currency_and_others_in_dollars() -> None:
    policy = Policy.parse(POLICY)
    assert [policy.currency("m_482"), policy.currency("other")] == ["EUR", "USD"]
    assert policy.currencies(pa.array(["other", "m_482"])).to_pylist() == ["USD", "EUR"]


def test_policy_travels_by_pickle() -> None:
    policy = Policy.parse(POLICY)
    policy.in_force("m_482", 2**62)
    copy = pickle.loads(pickle.dumps(policy))  # noqa: S301 - made two words before
    assert copy == policy
    assert copy.in_force("m_482", 2**62) == Limits(400, 400)


def test_window_before_the_first_default_is_refused() -> None:
    policy = Policy.parse(f'version = "v1"\n{DEFAULT}effective_from = 2026-11-02T12:00:00Z\n')
    assert policy.in_force("m", at("12:00")) == Limits(5, 5)
    with pytest.raises(PolicyError, match=r"no default in force .* 2026-11-02T11:45:00Z"):
        policy.in_force("m", at("11:45"))
    ends = np.array([at("11:45"), at("12:00"), at("12:15")])
    assert policy.covers(pa.array(["m", "m", "m"]), ends).tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (DEFAULT, "needs a version"),
        (f'version = "  "\n{DEFAULT}', "needs a version"),
        (f"version = 3\n{DEFAULT}", "needs a version"),
        # It is part of every decision's body: with one of these each block would be set aside.
        (f'version = "a\\u0000b"\n{DEFAULT}', "at most 256 characters and no NUL"),
        (f'version = "{257 * "v"}"\n{DEFAULT}', "at most 256 characters and no NUL"),
        ('version = "v"\n' + MERCHANT, r"no \[\[default\]\]"),
        ('version = "v"\n[default]\nlimit_minor = 5', r"\[\[default\]\], in double brackets"),
        ('version = "v"\ndefault = [1]', r"\[\[default\]\], in double brackets"),
        ("version = ", "not TOML"),
        (f'version = "v"\nlimit = 3\n{DEFAULT}', 'In the policy, "limit" is not known; known are'),
        (f'version = "v"\n{DEFAULT}id = "m"', 'In default entry 1, "id" is not known'),
        (
            f'version = "v"\n{DEFAULT}{MERCHANT}limits = 1',
            r'entry 1 \("m"\), "limits" is not known',
        ),
        (f'version = "v"\n{DEFAULT}[[merchant]]\nlimit_minor = 1', "id must be a merchant's id"),
        (f'version = "v"\n{DEFAULT}[[merchant]]\nid = ""', "id must be a merchant's id"),
        (f'version = "v"\ncurrency = "usd"\n{DEFAULT}', 'three capital letters, not "usd"'),
        (f'version = "v"\n{DEFAULT}{MERCHANT}currency = "USD\\n"', "three capital letters"),
        (f'version = "v"\n{DEFAULT}{MERCHANT}currency = 978', "three capital letters, not 978"),
        (
            f'version = "v"\n{DEFAULT}{MERCHANT}currency = "EUR"\n{MERCHANT}currency = "CHF"',
            r'entry 2 \("m"\), currency is CHF, but another entry says EUR',
        ),
        (f'version = "v"\n{DEFAULT}{DEFAULT}', "The default has two entries in force always"),
        (
            f'version = "v"\n{DEFAULT}'
            + 2 * (MERCHANT + "effective_from = 2026-01-01T00:00:00Z\n"),
            'Merchant "m" has two entries in force from 2026-01-01T00:00:00Z',
        ),
        (
            f'version = "v"\n{DEFAULT}effective_from = 2026-01-01T00:00:00',
            "must be a time with an offset",
        ),
        (f'version = "v"\n{DEFAULT}effective_from = 2026-01-01', "must be a time with an offset"),
        (f'version = "v"\n{DEFAULT}effective_from = "2026"', 'with an offset, .* not "2026"'),
    ],
)
def test_invalid_policy_is_explained(text: str, message: str) -> None:
    with pytest.raises(PolicyError, match=message) as caught:
        Policy.parse(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("limit", "release_level", "message"),
    [
        ("5", "6", "release_level_minor 6 is above limit_minor 5"),
        ("-1", "-1", "limit_minor is -1: expected 0 to"),
        ("5", "-1", "release_level_minor is -1: expected 0 to"),
        (str(10**15 + 1), "0", f"limit_minor is {10**15 + 1}: expected 0 to {10**15}"),
        ("5.0", "5", "limit_minor must be a whole number of minor units, not 5.0"),
        ('"5"', "5", 'limit_minor must be a whole number of minor units, not "5"'),
        ("true", "1", "limit_minor must be a whole number of minor units, not true"),
        ("5", "false", "release_level_minor must be a whole number of minor units, not false"),
    ],
)
def test_senseless_limits_are_refused(limit: str, release_level: str, message: str) -> None:
    entry = f"[[default]]\nlimit_minor = {limit}\nrelease_level_minor = {release_level}"
    with pytest.raises(PolicyError, match=f"In default entry 1, {message}"):
        Policy.parse(f'version = "v"\n{entry}')


def test_missing_limit_is_refused() -> None:
    with pytest.raises(PolicyError, match=r"release_level_minor must be .* not missing"):
        Policy.parse('version = "v"\n[[default]]\nlimit_minor = 5')


def test_largest_limit_is_accepted() -> None:
    text = f'version = "v"\n[[default]]\nlimit_minor = {10**15}\nrelease_level_minor = 0'
    assert Policy.parse(text).in_force("m", 0) == Limits(10**15, 0)


def test_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    with pytest.raises(PolicyError, match=r"policy\.toml: The policy cannot be read"):
        Policy.load(path)
    path.write_bytes(b'version = "\xff"')
    with pytest.raises(PolicyError, match=r"policy\.toml: The policy cannot be read"):
        Policy.load(path)
    path.write_text('version = "v"')
    with pytest.raises(PolicyError, match=r"policy\.toml: The policy has no \[\[default\]\]"):
        Policy.load(path)
    path.write_text(POLICY)
    assert Policy.load(path).version == "2026-11-01"


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


def test_a_change_from_the_decided_end_on_is_refused() -> None:
    """The window that ends there was decided by the limits in force at its end."""
    entries = _entry(100), _entry(300, "12:00", "m_1"), _entry(200, "12:15")
    assert not _is_taken(*entries, decided=at("12:15"))
    assert _is_taken(*entries, decided=at("12:15") - 1)


def test_an_entry_that_changes_nothing_is_taken() -> None:
    assert _is_taken(_entry(300, "12:00", "m_1"), _entry(100, merchant="m_new"), _entry(100))
    assert _is_taken(_entry(100), _entry(300, "12:00", "m_1"), _entry(300, "12:15", "m_1"))


def test_nothing_is_decided_before_the_first_watermark() -> None:
    assert not _is_taken(_entry(777))
    assert _is_taken(_entry(777), decided=None)


@pytest.mark.parametrize(
    ("entries", "message"),
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
def test_change_of_decided_limits_is_refused_with_author_and_time(
    entries: list[str], message: str
) -> None:
    with pytest.raises(PolicyError, match=re.escape(message)):
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
def test_policy_is_refused_iff_a_decided_moment_changes(
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


@pytest.mark.parametrize(
    "wrong", [{"window_us": 0}, {"late_cutoff_us": -1000}, {"watermark_delay_us": 1}]
)
def test_impossible_duration_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} is .* expected whole milliseconds"):
        Settings(**wrong)
