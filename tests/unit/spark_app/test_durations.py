import pytest

from spark_app.command.durations import milliseconds


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
