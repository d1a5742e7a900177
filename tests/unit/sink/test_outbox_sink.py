"""What `OutboxSink` is before it meets Spark or a database."""

import pickle

import pytest

from sink import OutboxSink

DSN = "postgresql://app:s3cret@db/holdfast"


def test_copy_through_pickle_has_the_settings_and_no_connection() -> None:
    sink = OutboxSink(DSN, stream="payouts", checkpoint="/tmp/c", suppress_repeats=False)  # noqa: S108 (a name, no file)
    copy = pickle.loads(pickle.dumps(sink))  # noqa: S301 (our own bytes)
    assert copy._settings == sink._settings
    assert copy._dsn == DSN
    assert copy.last is None
    assert copy._writer._connection is None


def test_repr_hides_the_password() -> None:
    assert repr(OutboxSink(DSN, stream="payouts")) == (
        "OutboxSink('postgresql://app:***@db/holdfast', stream='payouts')"
    )


def test_dsn_that_cannot_be_read_is_refused_without_quoting_it() -> None:
    with pytest.raises(ValueError, match=r"^the DSN cannot be read") as raised:
        OutboxSink("app:s3cret@db", stream="payouts")
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize("name", ["", "Payouts", "a b", "x" * 64, "-a"])
def test_stream_name_is_one_the_database_takes(name: str) -> None:
    with pytest.raises(ValueError, match="is not a stream name"):
        OutboxSink(DSN, stream=name)
