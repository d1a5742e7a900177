"""What somebody saw that is not everybody's: kept in the audit trail like a change."""

from dispatcher.operators.common.session import OperatorSession, Row


class Notes(OperatorSession):
    """Notes in the audit trail on an open connection."""

    def read(self, action: str, target: str, detail: Row) -> None:
        """Note that the actor was shown `target`; `action` is such as `entry.read`."""
        self._audit(action, target, "asked for", detail)
