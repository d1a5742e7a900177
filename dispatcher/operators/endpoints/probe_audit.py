"""The one row that a test of an endpoint writes: who made a request, where to and why."""

from collections.abc import Mapping

from dispatcher.operators.common.session import OperatorSession, operator_connection


class _Tests(OperatorSession):
    def note(self, endpoint: str, reason: str, detail: Mapping[str, str]) -> None:
        with self._transaction():
            self._audit("endpoint.test", endpoint, reason, dict(detail))


def note_test(dsn: str | None, endpoint: str, reason: str, detail: Mapping[str, str]) -> None:
    """Write the audit row before the request is made, so that none goes without.

    Raises `CommandError` when the database cannot be used; nothing is to be sent then.
    """
    with operator_connection(dsn) as connection:
        _Tests(connection).note(endpoint, reason, detail)
