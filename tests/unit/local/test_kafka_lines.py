"""What `holdfast local kafka` writes: each line once, whole, in the partition of its merchant."""

import json
from pathlib import Path

import pytest

from holdfast.deploy.local.kafka import cli, topics
from holdfast.sink.contract.exits import CommandError


def test_line_ends_with_a_line_feed_alone(tmp_path: Path) -> None:
    lines = [json.dumps({"note": f"a{end}b"}, ensure_ascii=False) for end in "\u2028\u2029\x85"]
    (tmp_path / "events").write_bytes("\r\n".join([*lines, " ", "{}\n"]).encode())
    assert cli._lines(tmp_path / "events") == [*lines, "{}"]


def test_spaces_in_json_do_not_move_a_merchant() -> None:
    for merchant in ("m_1", 'm"2', "\u00e9"):
        event = {"event_id": "e", "merchant_id": merchant}
        dense = json.dumps(event, separators=(",", ":"), ensure_ascii=False)
        wide = [json.dumps(event | {"event_id": str(at)}, indent=1) for at in range(8)]
        assert {topics.partition_of(line, 97) for line in wide} == {topics.partition_of(dense, 97)}
    found = {topics.partition_of(line, 97) for line in ("[1]", "hello", '{"merchant_id":7}', "5")}
    assert len(found) > 1


def test_line_too_large_and_a_queue_that_stays_full_are_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topics, "SECONDS", 0.1)
    writer = topics.Writer("127.0.0.1:9")
    with pytest.raises(CommandError, match="a record of 2000000 bytes cannot be written to pay"):
        writer.write("pay", "x" * 2_000_000)

    def fill() -> None:
        for _ in range(200_000):
            writer.write("pay", "{}")

    with pytest.raises(CommandError, match="the broker took no record of pay"):
        fill()
