"""What operators do about endpoints. A change and its audit row commit together."""

from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

import psycopg
from psycopg.types.json import Jsonb

from dispatcher.operators.common.session import STATEMENT_SECONDS, OperatorSession, Row, cause
from dispatcher.operators.config.environment import reference_fault
from dispatcher.operators.endpoints.file import Action, Step
from dispatcher.operators.endpoints.rules import fault_of
from dispatcher.outbound.headers import LITERALS, joined, masked, split
from sink.contract.exits import CommandError, ExitCode
from sink.contract.states import EndpointState, EnvelopeStyle, OrderPolicy

DEFAULTS: Row = {
    "types": [],
    "allow_cidrs": [],
    "headers": {},
    LITERALS: {},
    "envelope": EnvelopeStyle.STANDARD.value,
    "ca_ref": None,
    "client_cert_ref": None,
    "client_key_ref": None,
    "connect_timeout_ms": 5_000,
    "total_timeout_ms": 30_000,
    "concurrency": 64,
    "rate_per_second": None,
    "schedule_seconds": [5, 30, 120, 600, 1800, 7200, 18_000, 36_000, 50_400, 72_000],
    "budget_seconds": 432_000,
    "breaker_threshold": 10,
    "slow_start_seconds": 60,
    "order_policy": OrderPolicy.STOP.value,
    "inquiry_path": None,
}
"""What a new endpoint has where nothing else is said: the database's defaults."""

BACKLOG_MAX = 10_000
"""Up to how many lanes that wait, and how many dead letters of an endpoint, are counted."""


class Endpoints(OperatorSession):
    """Endpoints: added, changed, applied from a file, shown."""

    def add_endpoint(self, settings: Row, *, from_beginning: bool, reason: str) -> Row:
        """Insert an endpoint, by default for decisions from now on; returns its row.

        It waits for routing under way, and routing waits for it: a batch that is committed after
        it was added is routed by somebody who sees the endpoint, and no other batch is for it. With
        `from_beginning` it gets every entry that is stored; see `backfill`. Raises `CommandError`
        when the name is taken, a value is refused by the schema, or routing takes too long.
        """
        settings = {**DEFAULTS, **settings}
        with self._transaction():
            self._keep_routing_out()
            try:
                values = {**_bound(settings), "from_beginning": from_beginning}
                row = self._one("endpoints/add", values)
            except psycopg.errors.UniqueViolation:
                raise CommandError(
                    f"there is an endpoint {settings['name']!r} already; nothing was changed."
                    " See `holdfast endpoint list`."
                ) from None
            except psycopg.errors.CheckViolation as error:
                _refused(error)
            self._audit("endpoint.add", settings["name"], reason, masked(settings))
        if from_beginning:
            try:
                self.backfill(settings["name"])
            except psycopg.Error as error:
                raise CommandError(
                    f"endpoint {settings['name']!r} was added, but not everything that is stored"
                    f" already waits for it: {cause(error)}. Nothing is lost: run `holdfast"
                    f" endpoint backfill {settings['name']}`."
                ) from None
        return row

    def backfill(self, name: str) -> int:
        """Make the lanes that an endpoint misses for stored entries that it wants; their number.

        Those are the entries that were routed before an endpoint `from_beginning` existed; of any
        other endpoint none is missing, unless routing went wrong. Never in the transaction that
        adds the endpoint: a batch that commits and is routed between its snapshot and its commit
        would be missed. Doing it again changes nothing. Raises `CommandError` when there is no such
        endpoint.
        """
        with self._transaction():
            found = self._maybe("endpoints/id", {"endpoint": name}) or _missing(name)
        lanes = 0
        # Each by itself: routing locks lanes that are there before it makes new ones.
        for step in ("endpoints/backfill_add", "endpoints/backfill"):
            with self._transaction():
                self._take_time()
                lanes += self._run(step, {"endpoint_id": found["id"]}).rowcount
        return lanes

    def endpoints(self) -> list[Row]:
        """Return every endpoint with its backlog: lanes and dead letters are counted to 10,000."""
        return self._all("endpoints/list", {"most": BACKLOG_MAX})

    def endpoint(self, name: str) -> Row:
        """Return everything about one endpoint as it is shown: literal headers are masked.

        `fault` is why nothing could be sent with its settings, by the references allowed here. Its
        backlog is counted as in `endpoints`.

        Stopped lanes are those of its first 10,000 open dead letters. Raises `CommandError` when
        there is none.
        """
        row = self.whole_endpoint(name)
        return {**masked(row), "fault": fault_of(row) or reference_fault(row)}

    def whole_endpoint(self, name: str) -> Row:
        """Return what `endpoint` does, with literal headers as they are: never to be shown."""
        row = self._maybe("endpoints/show", {"name": name, "most": BACKLOG_MAX}) or _missing(name)
        return split(row)

    def set_endpoint(self, name: str, change: Callable[[Row], Row], reason: str) -> Row:
        """Change an endpoint's settings; returns `before` and `after` of what is different, masked.

        `change` gets the settings as they are and returns them as they shall be. Other types count
        from now on: an idle lane passes what was decided before, and one that waits goes on from
        its place. For that, nothing may be under way. Raises `CommandError` when there is no such
        endpoint, when the schema refuses a value, and for other types while the endpoint is active.
        """
        with self._transaction():
            settings = split(self._maybe("endpoints/take", {"name": name}) or _missing(name))
            after = change(settings)
            different = [key for key, value in settings.items() if after[key] != value]
            done: Row = masked(
                {
                    "before": {key: settings[key] for key in different},
                    "after": {key: after[key] for key in different},
                }
            )
            if "types" in different:
                self._retype(name, settings, after)
            if different:
                try:
                    self._run("endpoints/set", _bound(after))
                except psycopg.errors.CheckViolation as error:
                    _refused(error)
                self._audit("endpoint.set", name, reason, done)
        return done

    def rotate_secret(self, name: str, to: str | None, *, finish: bool, reason: str) -> list[str]:
        """Add the reference `to`, or drop the old one; returns the references from now on.

        With `finish` the newer one stays, or `to` where that is one of them. What is so already is
        left alone. Raises `CommandError` when there is no such endpoint, or nothing to do.
        """
        with self._transaction():
            settings = split(self._maybe("endpoints/take", {"name": name}) or _missing(name))
            before = settings["secret_refs"]
            after = _finished(before, to) if finish else _joined(before, to or "")
            if after != before:
                self._run("endpoints/set", _bound({**settings, "secret_refs": after}))
                detail = {"before": before, "after": after}
                self._audit("endpoint.rotate_secret", name, reason, detail)
        return after

    def set_endpoint_state(
        self, name: str, state: str, reason: str, *, unless: EndpointState | None = None
    ) -> Row:
        """Pause, resume or disable an endpoint.

        Raises `CommandError` when there is none, and for one that is as `unless` says.
        """
        with self._transaction():
            if unless is not None:
                before = self._maybe("endpoints/take", {"name": name}) or _missing(name)
                if before["state"] == unless:
                    raise CommandError(
                        f"endpoint {name} is {unless}, which an administrator has to change."
                        " Nothing was changed."
                    )
            row = self._maybe("endpoints/set_state", {"name": name, "state": state, "why": reason})
            if row is None:
                _missing(name)
            self._audit(f"endpoint.{state}", name, reason, {"state": state})
        return row

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

    def record_test(self, endpoint: str, reason: str, detail: Mapping[str, str]) -> None:
        """Write the audit row of a test request, before the request is made.

        Raises `CommandError` when the database cannot be used; nothing is to be sent then.
        """
        with self._transaction():
            self._audit("endpoint.test", endpoint, reason, dict(detail))

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

    def _retype(self, name: str, settings: Row, after: Row) -> None:
        found = {"endpoint_id": settings["id"]}
        if settings["state"] == EndpointState.ACTIVE:
            raise CommandError(
                "an endpoint's types cannot be changed while it is sent to; nothing was changed."
                f" First `holdfast endpoint pause {name} --reason TEXT`, and `resume` afterwards:"
                " nothing is lost in between."
            )
        self._must_be_quiet(found)
        self._keep_routing_out()
        before, wanted = settings["types"], after["types"]
        self._take_time()
        self._run("endpoints/retype_waiting", {**found, "before": before, "after": wanted})
        if before and not (wanted and set(wanted) <= set(before)):
            self._run("endpoints/retype_add", found)
            self._run("endpoints/hold", found)
            self._run("endpoints/retype_rest", found)
        # A claim that began before the endpoint was paused may have come between.
        self._must_be_quiet(found)

    def _must_be_quiet(self, found: Row) -> None:
        if leased := self._one("endpoints/leased", found)["lanes"]:
            raise CommandError(
                f"requests of {leased} subjects are still under way; nothing was changed. Try again"
                " in a moment."
            )

    def _keep_routing_out(self) -> None:
        try:
            self._run("endpoints/route_lock")
        except psycopg.errors.QueryCanceled:
            raise CommandError(
                f"a batch has been in routing for more than {STATEMENT_SECONDS} s, which an"
                " endpoint must not be added or changed in the middle of. Nothing was changed; try"
                " again later."
            ) from None

    def _take_time(self) -> None:
        """Let this transaction read everything, which may take longer than other commands."""
        self._connection.execute("SELECT set_config('statement_timeout', '0', true)")


def _bound(settings: Row) -> Row:
    return {**settings, "headers": Jsonb(joined(settings))}


def _joined(before: list[str], to: str) -> list[str]:
    if to in before:
        return before
    if len(before) > 1:
        raise CommandError(
            f"it has two secrets already, {' and '.join(before)}; nothing was changed. Drop the old"
            " one with --finish first."
        )
    return [*before, to]


def _finished(before: list[str], to: str | None) -> list[str]:
    if to is not None and to not in before:
        raise CommandError(
            "--finish --to keeps one of the secrets that sign now, and this is none of them;"
            " nothing was changed. Add it with --to alone first.",
            ExitCode.NOTHING_MATCHED,
        )
    if to is None and len(before) == 1:
        raise CommandError(
            "it has one secret, and no rotation to finish; nothing was changed.",
            ExitCode.NOTHING_MATCHED,
        )
    return [before[-1] if to is None else to]


def _missing(name: str) -> NoReturn:
    raise CommandError(
        f"there is no endpoint {name!r}; nothing was changed. See `holdfast endpoint list`.",
        ExitCode.NOTHING_MATCHED,
    )


def _refused(error: psycopg.errors.CheckViolation) -> NoReturn:
    raise CommandError(
        f"the schema refuses the endpoint ({error.diag.constraint_name}). Nothing was changed."
    ) from None
