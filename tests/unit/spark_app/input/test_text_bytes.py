import zlib

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.spark_app.input.text_bytes import all_visible_ascii, crc32

TEXTS = st.lists(st.text(max_size=12), max_size=20)


@settings(deadline=None)
@given(TEXTS, st.integers(0, 5))
def test_checksums_are_those_of_zlib_also_in_a_slice(texts: list[str], first: int) -> None:
    expected = [zlib.crc32(text.encode()) for text in texts]
    column = pa.array(texts, pa.string())
    assert crc32(column).tolist() == expected
    assert crc32(column.slice(first)).tolist() == expected[first:]


@settings(deadline=None)
@given(TEXTS, st.integers(0, 5))
def test_visible_ascii_is_seen_as_a_person_would_read_it(texts: list[str], first: int) -> None:
    column = pa.array(texts, pa.string()).slice(first)
    expected = bool(texts[first:]) and all(
        1 <= len(text) <= 4 and all("!" <= letter <= "~" for letter in text)
        for text in texts[first:]
    )
    assert all_visible_ascii(column, 4) == expected


@pytest.mark.parametrize("other", [None, "", "a b", "a\t", "\u00e9", "a\x7f", "12345"])
def test_one_other_text_is_enough(other: str | None) -> None:
    assert all_visible_ascii(pa.array(["!", "~~~~"]), 4)
    assert not all_visible_ascii(pa.array(["!", other, "~~~~"]), 4)
