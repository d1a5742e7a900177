"""Endpoints in the database. A change and its audit row commit together."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import NoReturn

import psycopg
from psycopg.types.json import Jsonb

from holdfast.dispatcher.operators.common.session import (
    STATEMENT_SECONDS,
    OperatorSession,
    Row,
    cause,
)
from holdfast.dispatcher.operators.config.environment import reference_fault
from holdfast.dispatcher.operators.endpoints.file import Action, Step
from holdfast.dispatcher.operators.endpoints.settings import DEFAULTS, fault_of
from holdfast.dispatcher.outbound.operator_headers import joined, masked, split
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.numbers import counted
from holdfast.sink.contract.states import EndpointState

BACKLOG_MAX = 10_000
"""Maximum count of waiting lanes, and of dead letters, of an endpoint."""


class Endpoints(OperatorSession):
    """Endpoints: added, changed, applied from a file, shown."""

    def add_endpoint(self, settings: Row, *, from_beginning: bool, reason: str) -> Row:
        """Insert an endpoint, by default for decisions from now on; return its row.

        It excludes routing until it commits: a batch committed after the addition is routed to the
        endpoint, and no earlier one. With `from_beginning` it gets every stored entry; see
        `backfill`. Raises `CommandError` when the name is taken, the schema refuses a value, or
        routing takes too long.
        """
        settings = {**DEFAULTS, **settings}
        with self._transaction():
            self._exclude_routing()
            try:
                values = {**_bound(settings), "from_beginning": from_beginning}
                row = self._one("endpoints/add", values)
            except psycopg.errors.UniqueViolation:
                raise CommandError(
                    f"there is an endpoint {settings['name']!r} already; nothing was changed."
                    " See `holdfast endpoint list`.",
                    code="name_in_use",
                ) from None
            except psycopg.errors.CheckViolation as error:
                _refused(error)
            if settings["streams"]:
                self._set_streams(row["id"], settings["streams"])
            self._audit("endpoint.add", settings["name"], reason, masked(settings))
        if from_beginning:
            try:
                self.backfill(settings["name"])
            except psycopg.Error as error:
                raise CommandError(
                    f"endpoint {settings['name']!r} was added, but some stored entries are not"
                    f" routed to it yet: {cause(error)}. Nothing is lost: run `holdfast endpoint"
                    f" backfill {settings['name']}`.",
                    code="backfill_incomplete",
                ) from None
        return row

    def backfill(self, name: str) -> int:
        """Create or advance the lanes that an endpoint lacks for stored entries; return how many.

        They belong to entries that were routed before an endpoint `from_beginning` existed; other
        endpoints lack none unless routing failed. Never run it in the transaction that adds the
        endpoint: it would miss a batch that commits and is routed between its snapshot and its
        commit. Idempotent. Raises `CommandError` for an unknown endpoint.
        """
        with self._transaction():
            row = self._maybe("endpoints/id", {"endpoint": name}) or _missing(name)
        lanes = 0
        # One transaction each: routing locks existing lanes before it creates new ones.
        for step in ("endpoints/backfill_add", "endpoints/backfill"):
            with self._transaction():
                self._without_timeout()
                lanes += self._run(step, {"endpoint_id": row["id"]}).rowcount
        return lanes

    def endpoints(self) -> list[Row]:
        """Return every endpoint with its backlog: at most 10,000 lanes and dead letters counted."""
        return self._all("endpoints/list", {"most": BACKLOG_MAX})

    def known(self) -> dict[str, list[str]]:
        """Return the types and the streams of stored entries, as `types` and `streams`.

        A type may be missing that is rare, or younger than the statistics of its day.
        """
        row = self._one("endpoints/known")
        return {"types": row["types"], "streams": row["streams"]}

    def endpoint(self, name: str, *, spell: Callable[[str], str] = str) -> Row:
        """Return everything about one endpoint, with literal headers masked.

        `fault` says why nothing could be sent with its settings, by the references allowed here;
        `spell` writes the name of a setting as the surface does.
        Its backlog is counted as in `endpoints`. Stopped lanes are those of its first 10,000 open
        dead letters. Raises `CommandError` for an unknown endpoint.
        """
        row = self.unmasked_endpoint(name)
        fault = fault_of(row)
        text = reference_fault(row) if fault is None else fault.spelled(spell)
        return {**masked(row), "fault": text}

    def unmasked_endpoint(self, name: str) -> Row:
        """Return what `endpoint` does with literal headers unmasked; never show them."""
        row = self._maybe("endpoints/show", {"name": name, "most": BACKLOG_MAX}) or _missing(name)
        return split(row)

    def set_endpoint(self, name: str, change: Callable[[Row], Row], reason: str) -> Row:
        """Change an endpoint's settings; return `before` and `after` of the columns that differ.

        `change` maps the old settings to the new ones; the result is masked. Other types and
        streams apply from now on: an idle lane skips earlier decisions, a waiting lane continues at
        its position. No request may be in flight then. Raises `CommandError` for an unknown
        endpoint, for a value that the schema refuses, for other types or streams while the endpoint
        is active, and for streams while a dispatcher runs that ignores them.
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
            if {"types", "streams"} & {*different}:
                self._retype(name, settings, after)
            if "streams" in different:
                self._set_streams(settings["id"], after["streams"])
            if different:
                try:
                    self._run("endpoints/set", _bound(after))
                except psycopg.errors.CheckViolation as error:
                    _refused(error)
                self._audit("endpoint.set", name, reason, done)
        return done

    def rotate_secret(self, name: str, to: str | None, *, finish: bool, reason: str) -> list[str]:
        """Add the reference `to`, or drop the old one; return the references from now on.

        With `finish` the newer one stays, or `to` if that is one of them. Idempotent. Raises
        `CommandError` for an unknown endpoint, or when there is nothing to do.
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

        Raises `CommandError` for an unknown endpoint, and for one in the state `unless`.
        """
        with self._transaction():
            if unless is not None:
                before = self._maybe("endpoints/take", {"name": name}) or _missing(name)
                if before["state"] == unless:
                    raise CommandError(
                        f"endpoint {name} is {unless}; only an administrator changes that. Nothing"
                        " was changed.",
                        code="endpoint_disabled",
                    )
            row = self._maybe("endpoints/set_state", {"name": name, "state": state, "why": reason})
            if row is None:
                _missing(name)
            self._audit(f"endpoint.{state}", name, reason, {"state": state})
        return row

    def by_name(self, names: Sequence[str]) -> tuple[dict[str, Row], list[str]]:
        """Return the endpoints with these names, and the names of all others.

        Their literal headers are unmasked; never show them.
        """
        stored = [row["name"] for row in self._all("endpoints/names")]
        rows = {name: self.unmasked_endpoint(name) for name in stored if name in names}
        return rows, [name for name in stored if name not in rows]

    def apply(
        self,
        steps: Sequence[Step],
        wanted: Mapping[str, Row],
        shown: Mapping[str, Row],
        reason: str,
    ) -> None:
        """Add and change endpoints by `steps`, all or none; `shown` is their state in the plan.

        Every endpoint of the file is locked first, so that exactly the plan is applied. Raises
        `CommandError` when one changed since `shown`, and what `add_endpoint` and `set_endpoint`
        raise.
        """
        with self._transaction():
            for step in steps:
                self._require_unchanged(wanted[step.name], shown.get(step.name))
            for step in steps:
                if step.action is Action.ADD:
                    self.add_endpoint(wanted[step.name], from_beginning=False, reason=reason)
                elif step.action is Action.CHANGE:
                    self._change(step, reason)

    def record_test(self, endpoint: str, reason: str, detail: Mapping[str, str]) -> datetime:
        """Write the audit row of a test request before it is sent; returns the database's time.

        Raises `CommandError` when that fails; the caller must not send then.
        """
        with self._transaction():
            self._audit("endpoint.test", endpoint, reason, dict(detail))
            at: datetime = self._one("database/clock")["at"]
            return at

    def _change(self, step: Step, reason: str) -> None:
        self.set_endpoint(step.name, lambda row: {**row, **step.after}, reason)

    def _require_unchanged(self, wanted: Row, shown: Row | None) -> None:
        taken = self._maybe("endpoints/take", {"name": wanted["name"]})
        row = None if taken is None else split(taken)
        columns = [column for column in wanted if column != "name"]
        same = (row is None) is (shown is None)
        if row is not None and shown is not None:
            same = all(row[column] == shown[column] for column in columns)
        if not same:
            raise CommandError(
                f"endpoint {wanted['name']} was changed after the plan was shown."
                " Nothing was changed; apply the file again.",
                code="plan_outdated",
            )

    def _retype(self, name: str, settings: Row, after: Row) -> None:
        endpoint = {"endpoint_id": settings["id"]}
        if settings["state"] == EndpointState.ACTIVE:
            raise CommandError(
                "types and streams cannot be changed while the endpoint is active; nothing was"
                f" changed. First `holdfast endpoint pause {name} --reason TEXT`, and `resume`"
                " afterwards: nothing is lost in between.",
                code="endpoint_active",
            )
        self._require_no_lease(endpoint)
        self._exclude_routing()
        self._without_timeout()
        choice = {
            "before": settings["types"],
            "after": after["types"],
            "streams_before": settings["streams"],
            "streams_after": after["streams"],
        }
        self._run("endpoints/retype_waiting", {**endpoint, **choice})
        if any(_grows(settings[each], after[each]) for each in ("types", "streams")):
            self._run("endpoints/retype_add", endpoint)
            self._run("endpoints/hold", endpoint)
            self._run("endpoints/retype_rest", endpoint)
        # A claim that began before the pause may have committed in between.
        self._require_no_lease(endpoint)

    def _set_streams(self, id_: int, streams: list[str]) -> None:
        if streams and (names := self._unaware("0034")):
            raise CommandError(
                f"{names} runs an older version, which would deliver entries of every stream."
                " Nothing was changed; replace it, then repeat this.",
                code="dispatcher_outdated",
            )
        if streams and not self._one("endpoints/keep_streams")["kept"]:
            raise CommandError(
                "a stream gets another name at this moment. Nothing was changed; repeat this, with"
                " the new name if it is one of these streams.",
                code="stream_renaming",
            )
        if renamed := self._all("endpoints/renamed_streams", {"streams": streams}):
            names = ", ".join(f"{row['former']!r} is called {row['name']!r} now" for row in renamed)
            raise CommandError(
                f"stream {names}: nothing would be delivered under the old name. Nothing was"
                " changed; repeat this with the new one.",
                code="stream_renamed",
            )
        self._run("endpoints/set_streams", {"id": id_, "streams": streams})

    def _require_no_lease(self, endpoint: Row) -> None:
        if leased := self._one("endpoints/leased", endpoint)["lanes"]:
            raise CommandError(
                f"requests of {counted(leased, 'subject')} are still in flight; nothing was"
                " changed. Try again in a moment.",
                code="lane_busy",
            )

    def _exclude_routing(self) -> None:
        try:
            self._run("endpoints/route_lock")
        except psycopg.errors.QueryCanceled:
            raise CommandError(
                f"routing of a batch has taken more than {STATEMENT_SECONDS} s, and no endpoint can"
                " be added or changed meanwhile. Nothing was changed; try again later.",
                code="routing_busy",
            ) from None

    def _without_timeout(self) -> None:
        """Remove the statement timeout: this transaction reads whole tables."""
        self._connection.execute("SELECT set_config('statement_timeout', '0', true)")


def _grows(before: list[str], after: list[str]) -> bool:
    """Return whether a choice, of which an empty one is everything, takes more than before."""
    return bool(before) and not (after and set(after) <= set(before))


def _bound(settings: Row) -> Row:
    return {**settings, "headers": Jsonb(joined(settings))}


def _joined(before: list[str], to: str) -> list[str]:
    if to in before:
        return before
    if len(before) > 1:
        raise CommandError(
            f"it has two secrets already, {' and '.join(before)}; nothing was changed. Drop the old"
            " one with --finish first.",
            code="rotation_unfinished",
        )
    return [*before, to]


def _finished(before: list[str], to: str | None) -> list[str]:
    if to is not None and to not in before:
        raise CommandError(
            "--finish --to keeps one of the secrets that sign now, and this is not one of them;"
            " nothing was changed. Add it with --to alone first.",
            ExitCode.NOTHING_MATCHED,
            code="unknown_secret",
        )
    if to is None and len(before) == 1:
        raise CommandError(
            "it has one secret, so there is no rotation to finish; nothing was changed.",
            ExitCode.NOTHING_MATCHED,
            code="nothing_to_finish",
        )
    return [before[-1] if to is None else to]


def _missing(name: str) -> NoReturn:
    raise CommandError(
        f"there is no endpoint {name!r}; nothing was changed. See `holdfast endpoint list`.",
        ExitCode.NOTHING_MATCHED,
        code="unknown_endpoint",
    )


def _refused(error: psycopg.errors.CheckViolation) -> NoReturn:
    raise CommandError(
        f"the schema refuses the endpoint ({error.diag.constraint_name}). Nothing was changed.",
        code="constraint_violated",
    ) from None
