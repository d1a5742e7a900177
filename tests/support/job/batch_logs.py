"""What Spark has written of its batches in a checkpoint: plans (`offsets`), records (`commits`)."""

import json
from pathlib import Path


def numbers(checkpoint: Path, log: str = "commits") -> list[int]:
    """Return the batches in a log, in their order."""
    return sorted(int(path.name) for path in (checkpoint / log).glob("[0-9]*"))


def newest(checkpoint: Path, log: str = "commits") -> int:
    """Return the newest batch in a log; -1 before the first."""
    return max(numbers(checkpoint, log), default=-1)


def ends(checkpoint: Path, topic: str, number: int) -> dict[int, int]:
    """Return where a batch ends in each partition of a topic; empty for -1."""
    if number < 0:
        return {}
    plan = (checkpoint / "offsets" / str(number)).read_text().splitlines()
    return {int(partition): end for partition, end in json.loads(plan[2])[topic].items()}
