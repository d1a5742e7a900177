"""The two kills: where each process is stopped, and how it is proved that it was the right place.

A process that is armed stops at a named point, makes a file, and waits; the demo sees the file and
sends SIGKILL from outside, as an out-of-memory killer or a lost machine would. Nothing in the
process gets to react.
"""

from dataclasses import dataclass
from pathlib import Path

from sink.contract.failpoints import ENVIRONMENT


@dataclass
class Kill:
    """One planned kill: at the `turn`-th passing of `point`."""

    point: str
    turn: int
    flag: Path
    done: bool = False
    proved: bool = False

    @property
    def environment(self) -> dict[str, str]:
        """What arms a process for this kill."""
        return {ENVIRONMENT: f"{self.point}=pause:{self.flag}@{self.turn}"}

    @property
    def due(self) -> bool:
        """Whether the process waits at its point."""
        return not self.done and self.flag.exists()


def spark_has_recorded(checkpoint: Path, batch_id: int) -> bool:
    """Whether Spark would, after a restart, go on behind this batch."""
    return (checkpoint / "commits" / str(batch_id)).exists()
