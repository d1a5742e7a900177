"""Why and trace for pages."""

from typing import Any

from dispatcher.operators.common.session import Row
from dispatcher.operators.trace.store import Trace
from dispatcher.operators.why.store import Explained
from sink.contract.key import Key


class Told(Trace):
    """Explains for one page, the parts of which ask for the same: nothing is read twice."""

    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        self._read: dict[Key, Row] = {}
        self._told: dict[Key, Explained] = {}

    def entry(self, key: Key) -> Row:
        """Return the entry as `Entries.entry` does."""
        if key not in self._read:
            self._read[key] = super().entry(key)
        return self._read[key]

    def explain_key(self, key: Key, named: str, endpoint: str | None = None) -> Explained:
        """Explain as `Why.explain_key` does; of every endpoint once."""
        if endpoint is not None or named:
            return super().explain_key(key, named, endpoint)
        if key not in self._told:
            self._told[key] = super().explain_key(key, named)
        return self._told[key]
