"""The files of the demo of checkpoints."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.deploy.local.demo import files
from holdfast.deploy.local.demo.generator import TrafficFile
from holdfast.deploy.local.demo.layout import Layout


@dataclass(frozen=True)
class CheckpointLayout(Layout):
    """Also the files that have not arrived yet, a savepoint, and a second checkpoint."""

    @property
    def traffic(self) -> Path:
        return self.root / "traffic"

    @property
    def savepoint(self) -> Path:
        return self.root / "savepoint"

    @property
    def rescaled(self) -> Path:
        """The checkpoint with more key groups, at another path."""
        return self.root / "checkpoint-16-groups"

    def clear(self) -> None:
        """Delete the files of an earlier run, and no others."""
        super().clear()
        for folder in (self.traffic, self.savepoint, self.rescaled):
            shutil.rmtree(folder, ignore_errors=True)
        self.events.mkdir()

    def write_traffic(self, traffic: Sequence[TrafficFile]) -> None:
        """Write all files where the job does not read them."""
        files.write(self.traffic, traffic)

    def arrive(self, count: int) -> None:
        """Move the first `count` files into the directory that the job reads."""
        for path in files.in_order(self.traffic)[: count - len(files.in_order(self.events))]:
            path.rename(self.events / path.name)
