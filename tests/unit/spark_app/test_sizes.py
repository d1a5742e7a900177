import pytest

from spark_app.command.sizes import mebibytes


@pytest.mark.parametrize(
    ("text", "size"), [("512m", 512), ("1 MB", 1), ("2g", 2048), (" 16GB ", 16384)]
)
def test_sizes_are_read_as_people_write_them(text: str, size: int) -> None:
    assert mebibytes(text) == size


@pytest.mark.parametrize("text", ["", "512", "m", "0m", "-1m", "1.5g", "512k", "512mm"])
def test_what_is_no_size_is_refused_in_words(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size: expected a number"):
        mebibytes(text)
