"""Values of options as people write them."""

import pytest

from holdfast.spark_app.command.values import mebibytes, milliseconds


@pytest.mark.parametrize(
    ("text", "value"),
    [("0s", 0), ("500ms", 500), ("30s", 30_000), ("2m", 120_000), ("1 h", 3_600_000)],
)
def test_durations_are_read(text: str, value: int) -> None:
    assert milliseconds(text) == value


@pytest.mark.parametrize("text", ["", "30", "-1s", "1.5s", "1d", "s", "1s2m"])
def test_other_texts_are_refused_in_words(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        milliseconds(text)


@pytest.mark.parametrize(
    ("text", "size"), [("512m", 512), ("1 MB", 1), ("2g", 2048), (" 16GB ", 16384)]
)
def test_sizes_are_read_as_people_write_them(text: str, size: int) -> None:
    assert mebibytes(text) == size


@pytest.mark.parametrize("text", ["", "512", "m", "0m", "-1m", "1.5g", "512k", "512mm"])
def test_what_is_no_size_is_refused_in_words(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size: expected a number"):
        mebibytes(text)
