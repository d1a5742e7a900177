"""Whether the database answers, and fits this version."""

from dispatcher.operators.common.session import OperatorSession
from sink.contract.schema import SCHEMA_REVISION


class Ready(OperatorSession):
    """Looks at an open connection."""

    def misfit(self) -> str | None:
        """Return what is wrong with the schema, in words; None where it fits."""
        row = self._maybe("schema_revision")
        found = row["revision"] if row else "none"
        if found == SCHEMA_REVISION:
            return None
        return f"the schema has revision {found}, this version needs {SCHEMA_REVISION}"
