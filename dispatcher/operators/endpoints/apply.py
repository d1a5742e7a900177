"""Endpoints applied from a file: all of them in one transaction, each with its audit row."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from dispatcher.operators.common.session import Row, operator_connection
from dispatcher.operators.endpoints.plan import Action, Step
from dispatcher.operators.endpoints.store import EndpointStore
from dispatcher.outbound.headers import split
from sink.contract.exits import CommandError


class EndpointApply(EndpointStore):
    """Reads what is there and applies a plan; use `endpoint_apply(dsn)` to get one."""

    def there(self, names: Sequence[str]) -> tuple[dict[str, Row], list[str]]:
        """Return the endpoints of these names as they are, and the names of all the others.

        Their literal headers are as they are stored, and not to be shown.
        """
        known = [row["name"] for row in self._all("endpoints/names")]
        wanted = [name for name in known if name in names]
        found = {name: self.whole_endpoint(name) for name in wanted}
        return found, [name for name in known if name not in found]

    def apply(
        self,
        steps: Sequence[Step],
        wanted: Mapping[str, Row],
        shown: Mapping[str, Row],
        reason: str,
    ) -> None:
        """Add and change endpoints as `steps` say, or none of them; `shown` is what they go from.

        Every endpoint of the file is locked first, so that what was shown is what is done. Raises
        `CommandError` where one is not as it was shown any more, and what `add_endpoint` and
        `set_endpoint` raise.
        """
        with self._transaction():
            for step in steps:
                self._take_as_shown(wanted[step.name], shown.get(step.name))
            for step in steps:
                if step.action is Action.ADD:
                    self.add_endpoint(wanted[step.name], from_beginning=False, reason=reason)
                elif step.action is Action.CHANGE:
                    self._change(step, reason)

    def _change(self, step: Step, reason: str) -> None:
        self.set_endpoint(step.name, lambda row: {**row, **step.after}, reason)

    def _take_as_shown(self, wanted: Row, shown: Row | None) -> None:
        taken = self._maybe("endpoints/take", {"name": wanted["name"]})
        row = None if taken is None else split(taken)
        columns = [column for column in wanted if column != "name"]
        same = (row is None) is (shown is None)
        if row is not None and shown is not None:
            same = all(row[column] == shown[column] for column in columns)
        if not same:
            raise CommandError(
                f"endpoint {wanted['name']} was changed by somebody while this was looked at."
                " Nothing was changed; see the plan anew and apply it again."
            )


@contextmanager
def endpoint_apply(dsn: str | None) -> Iterator[EndpointApply]:
    """Connect in the operator's role; raises `CommandError` when that is not possible."""
    with operator_connection(dsn) as connection:
        yield EndpointApply(connection)
