"""A stream's ledger as a list of batches needs it, at a cost that does not grow with a backlog."""

from dispatcher.operators.common.session import Row
from dispatcher.operators.streams.store import Lineage


class Ledger(Lineage):
    """Reads of the ledger of one stream."""

    def checkpoints(self, stream: str) -> list[Row]:
        """Return the checkpoints that wrote to a stream, as `Lineage.stream` does."""
        return self._all("streams/checkpoints", {"stream": stream})

    def divergences(self, stream: str) -> list[Row]:
        """Return the newest 20 replays of its batches that diverged, as `Lineage.stream` does."""
        return self._all("streams/divergences", {"stream": stream})
