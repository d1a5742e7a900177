"""Which records each batch read from a topic, by the offsets that Spark planned for it.

A batch of a topic ends where its planned offsets say, and a replay reads the same. So the expected
result of a run is recomputed from the topic's records, batch by batch, whenever the job was killed.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Message

from holdfast.sink.contract.exits import CommandError

Offsets = dict[int, int]
"""Partition to the offset behind its last record."""


def of_topic(
    checkpoint: Path, topic: str, records: Mapping[int, Sequence[Message]]
) -> list[list[str]]:
    """Return the lines of each batch that Spark has recorded; `records` is the whole topic."""
    lines = {
        partition: [(message.value() or b"").decode() for message in messages]
        for partition, messages in records.items()
    }
    return batches(planned(checkpoint, topic), lines)


def planned(checkpoint: Path, topic: str) -> list[Offsets]:
    """Return where each batch that Spark has recorded ends, from batch 0.

    Raises `CommandError` if a batch is missing: the checkpoint no longer has its first batches.
    """
    ids = sorted(int(path.name) for path in (checkpoint / "commits").glob("[0-9]*"))
    if ids != list(range(len(ids))):
        raise CommandError(
            f"{checkpoint} no longer has all of its batches: it keeps {ids}.", code="batch_missing"
        )
    return [_ends((checkpoint / "offsets" / str(each)).read_text(), topic) for each in ids]


def _ends(text: str, topic: str) -> Offsets:
    for line in text.splitlines():
        found: Any = json.loads(line) if line.startswith("{") else None
        if isinstance(found, dict) and isinstance(found.get(topic), dict):
            return {int(partition): end for partition, end in found[topic].items()}
    return {}


def batches(ends: Sequence[Offsets], records: Mapping[int, Sequence[str]]) -> list[list[str]]:
    """Return the lines of each batch; `records` is what the topic holds, from offset 0.

    Raises `CommandError` if a batch ends before the one before it.

    >>> batches([{0: 1}, {0: 1, 1: 2}], {0: ["a"], 1: ["b", "c"]})
    [['a'], ['b', 'c']]
    """
    read: list[list[str]] = []
    at: Offsets = {}
    for number, end in enumerate(ends):
        if any(end.get(partition, -1) < start for partition, start in at.items()):
            raise CommandError(
                f"batch {number} ends before the batch before it: {end}, {at}.",
                code="offsets_out_of_order",
            )
        read.append(
            [
                line
                for partition, stop in sorted(end.items())
                for line in records[partition][at.get(partition, 0) : stop]
            ]
        )
        at = end
    return read
