"""Whether the broker has what a checkpoint reads next, and how a run continues where it has not.

Spark's plan has the next offset of each partition. The records there may be gone by the time they
are read: removed by retention, or with their topic, which may exist again under its name,
with other records under the same offsets. A start compares the plan with the cluster before Spark
does, because Spark would not notice the last one, and because it says less.

A gap is passed only where a person accepted it (`--accept-data-loss`), and only the gap that this
start has found: the plan is given the position after it, and Spark still fails at the next one.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from holdfast.sink.contract.exits import CommandError
from holdfast.spark_app.checkpoint.files import NO_OFFSET, CheckpointFiles, Planned
from holdfast.spark_app.input.broker import Broker, Partition, Range
from holdfast.spark_app.input.sources import Kafka, Source

Positions = dict[Partition, int]

_INITIAL_HEAD: Final = "\0v1\n"
"""Before the JSON in the file in which Spark keeps where a topic began (`sources/I/0`)."""

_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Gap:
    """Records that cannot be read any more, and where the partition can continue."""

    text: str
    partition: Partition
    after: int | None
    """None where the partition is gone."""
    is_back: bool = False
    """Whether that is before what was read: the same offsets are of other records now."""
    at_end: bool = False
    """Whether the batch that is planned begins before it."""

    def end(self, planned: int) -> int:
        """Return the end of a batch that was planned to read up to an offset."""
        return self.after or 0 if self.is_back else max(self.after or 0, planned)


def positions(line: str) -> Positions:
    """Read a line of a plan; raises ValueError.

    >>> positions('{"payments":{"1":7}}')
    {Partition(topic='payments', number=1): 7}
    """
    try:
        return {
            Partition(topic, int(number)): int(offset)
            for topic, partitions in json.loads(line).items()
            for number, offset in partitions.items()
        }
    except (AttributeError, TypeError) as error:
        raise ValueError("it is not the position of a topic") from error


def to_line(positions: Mapping[Partition, int]) -> str:
    """Return the line that `positions` reads."""
    topics: dict[str, dict[str, int]] = {}
    for partition, offset in sorted(positions.items()):
        topics.setdefault(partition.topic, {})[str(partition.number)] = offset
    return json.dumps(topics, separators=(",", ":"))


def gaps(
    source: Kafka, topic_ids: Mapping[str, str], at: Positions, ranges: Mapping[Partition, Range]
) -> list[Gap]:
    """Return where `at`, the next offset of each partition, does not lead on.

    `source` has the ids of the topics that were read, and `topic_ids` those that exist now.
    """
    recorded = dict(source.topic_ids)
    recreated = {
        name for name, known in recorded.items() if name in topic_ids and topic_ids[name] != known
    }
    return [*_gaps(at, ranges, recreated)]


def _gaps(at: Positions, ranges: Mapping[Partition, Range], recreated: set[str]) -> Iterator[Gap]:
    for partition in sorted({*at, *ranges}):
        topic, number = partition
        place = f"{topic}, partition {number}"
        # Spark reads a partition that was added from its first record.
        position, range_ = at.get(partition, 0), ranges.get(partition)
        if range_ is None:
            text = f"{place}, is gone from the cluster; {position} was the next offset"
            yield Gap(text, partition, None)
        elif topic in recreated:
            text = (
                f"{place}: the topic was deleted and made again under its name, so offset"
                f" {position} is of other records now; it has {range_.first} to {range_.end - 1}"
            )
            if range_.first >= range_.end:
                text = text.partition("; it has")[0] + "; it is empty"
            yield Gap(text, partition, range_.first, is_back=True)
        elif position < range_.first:
            last = range_.first - 1
            text = f"{place}: the offsets {position} to {last} are gone, and were not read"
            yield Gap(text, partition, range_.first)
        elif position > range_.end:
            text = (
                f"{place}, ends at offset {range_.end}, before {position}, the next one to read:"
                " the broker has lost records"
            )
            yield Gap(text, partition, range_.end, is_back=True)


def gaps_at_end(
    end: Positions, ranges: Mapping[Partition, Range], gaps_at_start: Sequence[Gap]
) -> list[Gap]:
    """Return where the end of a batch that is planned cannot be reached.

    `found` are the gaps at its begin, which are not named twice.
    """
    named = {gap.partition for gap in gaps_at_start}
    return [*_gaps_at_end({one: at for one, at in end.items() if one not in named}, ranges)]


def _gaps_at_end(end: Positions, ranges: Mapping[Partition, Range]) -> Iterator[Gap]:
    for partition, planned in sorted(end.items()):
        topic, number = partition
        place = f"{topic}, partition {number}"
        range_ = ranges.get(partition)
        if range_ is None:
            text = f"{place}, is gone from the cluster; a batch was to read it up to {planned}"
            yield Gap(text, partition, None, at_end=True)
        elif planned > range_.end:
            text = (
                f"{place}, ends at offset {range_.end}, and a batch was to read it up to {planned}:"
                " the broker has lost records"
            )
            yield Gap(text, partition, range_.end, is_back=True, at_end=True)


def passed(at: Positions, missing: Sequence[Gap]) -> Positions:
    """Return positions after the gaps."""
    after = dict(at)
    for gap in missing:
        if gap.at_end and gap.after is not None:
            continue
        if gap.after is None:
            after.pop(gap.partition, None)
        else:
            after[gap.partition] = gap.after
    return after


def require_records(
    files: CheckpointFiles,
    sources: tuple[Source, ...],
    broker: Broker,
    planned: Planned | None,
    committed: int | None,
    *,
    accept: bool,
) -> tuple[Source, ...]:
    """Return the sources with the ids of the topics as they are, once nothing is missing.

    Raises CommandError for a gap, unless it is accepted: then it is reported, and the plan gets
    the positions after it. Raises KafkaFault as `Broker` does.
    """
    current: list[Source] = []
    refused: list[str] = []
    for number, source in enumerate(sources):
        if not isinstance(source, Kafka):
            current.append(source)
            continue
        topic = _Topic(files, number, source, planned, committed)
        now = broker.topic_ids(source)
        at = topic.next()
        missing: list[Gap] = []
        if at is not None:
            ranges = broker.ranges(source)
            missing = gaps(source, now, at, ranges)
            missing += gaps_at_end(topic.end(), ranges, missing)
        if missing and accept:
            _report(missing)
            topic.move(missing)
        else:
            refused += [gap.text for gap in missing]
        current.append(replace(source, topic_ids=tuple(sorted(now.items()))))
    if refused:
        raise CommandError(_refusal(files.checkpoint, refused), code="offset_gap")
    return tuple(current)


class _Topic:
    """One source in Spark's plans."""

    def __init__(
        self,
        files: CheckpointFiles,
        number: int,
        source: Kafka,
        planned: Planned | None,
        committed: int | None,
    ) -> None:
        self._files = files
        self._number = number
        self._source = source
        self._newest = -1 if planned is None else planned.batch_id
        self._unfinished = planned is not None and planned.batch_id != committed

    def next(self) -> Positions | None:
        """Return the positions from which the next batch reads; None before the first start."""
        line = self._line(self._newest - 1 if self._unfinished else self._newest)
        if line is not None:
            return positions(line)
        text = self._files.read(self._initial)
        return None if text is None else self._read(self._initial, text.rpartition("\n")[2])

    def end(self) -> Positions:
        """Return the positions up to which the planned batch reads; empty where it is done."""
        line = self._line(self._newest) if self._unfinished else None
        return {} if line is None else positions(line)

    def move(self, missing: Sequence[Gap]) -> None:
        """Write the positions after gaps into the plans, and where the source began.

        Can be repeated after a crash: a gap that was passed is none.
        """
        if self._newest < 0:
            # Spark writes it again.
            self._files.remove(self._initial)
            return
        if self._unfinished:
            # Its end first: the gap is there until its start is moved.
            self._write(self._newest, missing, is_end=True)
        start = self._newest - 1 if self._unfinished else self._newest
        if self._line(start) is not None:
            self._write(start, missing)
        elif (text := self._files.read(self._initial)) is not None:
            at = self._read(self._initial, text.rpartition("\n")[2])
            self._files.replace(self._initial, _INITIAL_HEAD + to_line(passed(at, missing)))

    def _write(self, batch: int, missing: Sequence[Gap], *, is_end: bool = False) -> None:
        line = self._line(batch)
        if line is None:
            return
        at = positions(line)
        after = passed(at, missing)
        if is_end:
            after |= {
                gap.partition: gap.end(at[gap.partition])
                for gap in missing
                if gap.after is not None and gap.partition in at
            }
        name = f"offsets/{batch}"
        lines = (self._files.read(name) or "").splitlines()
        lines[2 + self._number] = to_line(after)
        self._files.replace(name, "\n".join(lines))

    @property
    def _initial(self) -> str:
        return f"sources/{self._number}/0"

    def _line(self, batch: int) -> str | None:
        """Return the line of a plan; None where it has none."""
        if batch < 0:
            return None
        name = f"offsets/{batch}"
        lines = (self._files.read(name) or "").splitlines()[2:]
        line = lines[self._number] if self._number < len(lines) else NO_OFFSET
        if line == NO_OFFSET:
            return None
        self._read(name, line)
        return line

    def _read(self, name: str, line: str) -> Positions:
        try:
            return positions(line)
        except ValueError as error:
            raise self._files.damaged(name) from error


def _refusal(checkpoint: str, refused: Sequence[str]) -> str:
    return (
        f"the checkpoint {checkpoint} cannot continue: records are missing: {_listed(refused)}."
        " Nothing was read or written, and what the ledger has stands. To drop these records, start"
        " once with --accept-data-loss: the job continues after the gap, and reports it. Without"
        " that, put the records of the gap into a topic of their own and begin a new checkpoint"
        " with it, which the stream then has to adopt (`holdfast stream adopt`)."
    )


def _report(missing: Sequence[Gap]) -> None:
    listed = _listed([gap.text for gap in missing])
    print(  # noqa: T201 - the command's own report
        f"holdfast: continuing after an offset gap, by --accept-data-loss: {listed}",
        file=sys.stderr,
        flush=True,
    )


def _listed(texts: Sequence[str]) -> str:
    more = f"; and {len(texts) - _SHOWN} more partitions" if len(texts) > _SHOWN else ""
    return "; ".join(texts[:_SHOWN]) + more
