"""The two kills: the point at which each process is killed, and the proof of it.

An armed process pauses at a named failpoint and creates a file. The demo sees the file and sends
SIGKILL from outside, like an out-of-memory killer. The process cannot react.
"""

from dataclasses import dataclass
from pathlib import Path

from holdfast.sink.contract.failpoints import ENVIRONMENT


@dataclass
class Kill:
    """One planned kill, at pass number `turn` of `point`."""

    point: str
    turn: int
    flag: Path
    done: bool = False
    proved: bool = False

    @property
    def environment(self) -> dict[str, str]:
        """The environment that arms a process for this kill."""
        return {ENVIRONMENT: f"{self.point}=pause:{self.flag}@{self.turn}"}

    @property
    def due(self) -> bool:
        """Whether the process is paused at its point."""
        return not self.done and self.flag.exists()


def spark_has_recorded(checkpoint: Path, batch_id: int) -> bool:
    """Return whether Spark would continue after this batch on a restart."""
    return (checkpoint / "commits" / str(batch_id)).exists()
