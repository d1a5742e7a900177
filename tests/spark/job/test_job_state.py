"""What the job remembers between batches, as Spark's own state reader shows it."""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from holdfast.deploy.local.demo.reference import Event
from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.exposure.settings import Settings
from holdfast.spark_app.exposure.state import GroupState
from holdfast.spark_app.operator.groups import group_numbers, key_group, spark_hash
from holdfast.spark_app.operator.stored import GroupValue, Segment, SegmentKey
from tests.support.job.exposure import Batch, apply
from tests.support.job.jobs import POLICY, Play, at, event, micros
from tests.support.job.stored_state import Kept, content

pytestmark = pytest.mark.rest

GROUPS = 4
NUMBERS = group_numbers(GROUPS, 2)
FILES = 10
MERCHANTS = [f"m_{number}" for number in range(6)]
SETTINGS = Settings()


def _file(number: int) -> list[Event]:
    """A minute of events, all in one window but for a few that are of the one before."""
    rows = [
        _event(f"e{number}-{merchant}", f"13:{number:02}:{10 + place}", 100 + number, merchant)
        for place, merchant in enumerate(MERCHANTS)
    ]
    if number < 3:
        rows.append(_event(f"older-{number}", f"12:59:{57 + number}", 1, MERCHANTS[number]))
    if number == 5:
        rows.append(_event("too-much", "13:05:20", 6_000_000, "m_held"))
    return rows


def _event(event_id: str, clock: str, amount: int, merchant: str) -> Event:
    return Event(event_id, merchant, "payout_submitted", amount, "USD", micros(at(clock)))


def _line(row: Event) -> bytes:
    clock = f"{(row.occurred_at_us - micros(at('00:00'))) // 1_000_000}"
    hours, seconds = divmod(int(clock), 3600)
    when = f"{hours:02}:{seconds // 60:02}:{seconds % 60:02}"
    return event(row.event_id, when, row.amount_minor, row.merchant_id)


def _in_memory() -> list[dict[int, GroupState]]:
    """The state of each group after each file and after the batch without rows behind them."""
    states = {group: GroupState.empty() for group in NUMBERS}
    policy, newest, after = Policy.parse(POLICY), None, []
    for rows in [*(_file(number) for number in range(FILES)), []]:
        watermark = None if newest is None else newest - SETTINGS.watermark_delay_us
        for group, state in states.items():
            mine = [row for row in rows if key_group(row.merchant_id, NUMBERS) == group]
            states[group], _ = apply(state, Batch(mine, watermark), policy, SETTINGS)
        after.append(dict(states))
        newest = max(newest or 0, *(row.occurred_at_us for row in rows)) if rows else newest
    return after


def _windows(state: GroupState) -> dict[int, list[Any]]:
    """By window end."""
    results: dict[int, list[Any]] = {}
    for window in state.windows.to_pylist():
        results.setdefault(micros(window["window_end"]), []).append(window)
    return results


@dataclass
class Reader:
    """Spark's state reader on the checkpoint of a run."""

    play: Play

    def rows(self, **options: Any) -> list[Any]:
        from holdfast.spark_app.runtime import session

        reader = session.fix(self.play.spark.newSession()).read.format("statestore")
        rows = reader.options(**options).load(str(self.play.checkpoint)).collect()
        return [row.asDict(recursive=True) for row in rows]

    def groups(self) -> dict[int, Kept]:
        """What is stored, by key group; groups of which nothing is stored are left out."""
        rows: dict[int, Kept] = {}
        for row in self.rows(stateVarName="group"):
            value = GroupValue(**row["value"])
            rows.setdefault(row["key"]["key_group"], Kept()).group = value
        for row in self.rows(stateVarName="windows"):
            kept = rows.setdefault(row["key"]["key_group"], Kept())
            kept.windows[row["user_map_key"]["window_end"]] = row["user_map_value"]["content"]
        for row in self.rows(stateVarName="ids"):
            kept = rows.setdefault(row["key"]["key_group"], Kept())
            key = row["user_map_key"]
            segment = SegmentKey(key["window_end"], key["piece"])
            kept.ids[segment] = Segment(**row["user_map_value"])
        return rows

    def timers(self) -> dict[int, int]:
        """The one timer of each group, in milliseconds."""
        rows = self.rows(readRegisteredTimers=True)
        results = {row["key"]["key_group"]: row["expiration_timestamp_ms"] for row in rows}
        assert len(results) == len(rows)
        return results


@pytest.fixture(scope="module")
def reader(shared_play: Play) -> Reader:
    """The checkpoint after many small batches, while all windows are held."""
    play = replace(shared_play, options={"settings": SETTINGS, "key_groups": GROUPS})
    play.put(*([_line(row) for row in _file(number)] for number in range(FILES)))
    play.run()
    return Reader(play)


def test_what_is_stored_is_the_state_in_memory(reader: Reader) -> None:
    groups = reader.groups()
    expected = {group: state for group, state in _in_memory()[-1].items() if not state.is_empty}
    assert len(expected) > 1
    assert {group: content(kept.load()) for group, kept in groups.items()} == {
        group: content(state) for group, state in expected.items()
    }
    assert reader.timers() == {group: kept.group.armed_ms for group, kept in groups.items()}


def test_every_partition_has_as_many_key_groups(reader: Reader) -> None:
    rows = reader.rows(stateVarName="group")
    results = {row["key"]["key_group"]: row["partition_id"] for row in rows}
    assert results == {number: spark_hash(number) % 2 for number in results}


def test_ids_of_many_batches_lie_in_few_pieces(reader: Reader) -> None:
    end = micros(at("13:15"))
    for kept in reader.groups().values():
        levels = [kept.ids[key].level for key in sorted(kept.ids) if key.window_end == end]
        assert levels == [1, 0, 0]  # ten batches: eight of them in one piece


def test_windows_are_written_by_the_batches_that_changed_them(reader: Reader) -> None:
    before = {group: GroupState.empty() for group in NUMBERS}
    expected = set()
    for batch, states in enumerate(_in_memory()):
        for group, state in states.items():
            old, new = _windows(before[group]), _windows(state)
            changed = {end for end in old | new if old.get(end) != new.get(end)}
            expected |= {(batch, group, end) for end in changed}
        before = states
    changes = reader.rows(stateVarName="windows", readChangeFeed=True, changeStartBatchId=0)
    assert {
        (row["batch_id"], row["key"]["key_group"], row["user_map_key"]["window_end"])
        for row in changes
    } == expected


def test_all_state_is_gone_when_all_windows_have_expired(reader: Reader) -> None:
    # A copy of a known id is not applied: its time moves the watermark, and opens no window.
    reader.play.put([_line(_event("e9-m_0", "13:17:31", 1, "m_0"))], first=20)
    reader.play.run()
    ((group, kept),) = reader.groups().items()
    assert group == key_group("m_held", NUMBERS)
    assert content(kept.load()) == {
        "windows": [],
        "merchants": [{"merchant_id": "m_held", "held": True, "latest_end": at("13:15")}],
        "ids": {},
        "settled": None,
    }
    assert reader.timers() == {group: micros(at("13:30")) // 1000}

    reader.play.put([_line(_event("last", "13:20:00", 1, "m_1"))], first=21)
    reader.play.put([_line(_event("last", "14:00:00", 1, "m_1"))], first=22)
    reader.play.run()
    assert reader.groups() == {}
    assert reader.timers() == {}
