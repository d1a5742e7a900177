"""`holdfast trace`: one decision on its whole way, on one screen."""

from datetime import datetime
from typing import Annotated, Any

import typer

from dispatcher.cli.common.shared import AsJson, Dsn, print_json
from dispatcher.cli.common.shown import counted, plain, shortened, visible
from dispatcher.operators.common.session import Row
from dispatcher.operators.common.text import between
from dispatcher.operators.trace.store import ATTEMPTS_MAX, Trace
from sink.contract.canonical import NotCanonical
from sink.contract.exits import CommandError, ExitCode
from sink.contract.key import Key
from sink.contract.money import money

_MOMENT = len("2026-11-02T12:15:00.000000Z")
_DIFFERENCE = len("+23 min 59 s")
_AMOUNTS = ("exposure_minor", "limit_minor", "release_level_minor")


def show(
    key: Annotated[str, typer.Argument(metavar="KEY", help="As receivers get it: hf_...")],
    body: Annotated[
        bool, typer.Option("--body", help="With the body, and what receivers answered.")
    ] = False,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Show a decision from its batch to its receipts. Times are UTC, each with what went by.

    Exit code 3: no entry is stored under the key (`holdfast why` says what is known of it).
    """
    try:
        wanted = Key.parse(key)
    except NotCanonical as error:
        raise CommandError(f"{error}. Nothing was changed.", ExitCode.USAGE) from None
    with Trace.connect(dsn) as store:
        found = store.trace(wanted, body=body)
    if as_json:
        print_json(found)
    else:
        _show(found)


def _show(found: Row) -> None:
    entry, batch = found["entry"], found["batch"]
    typer.echo(
        f"{found['key']}: {visible(entry['type'])} of {visible(entry['subject'])},"
        f" sequence {entry['sequence']}"
    )
    _step(entry["occurred_at"], None, "decided", _decided(entry["decision"]))
    where = (
        f"as one of {counted(batch['entry_count'], 'entry')} of batch {batch['batch_id']} of"
        f" stream {visible(batch['stream'])} (query {batch['query_id']}, epoch {batch['epoch']})"
    )
    _step(batch["written_at"], entry["occurred_at"], "written", where)
    if batch["routed_at"] is None:
        _step(None, None, "routed", "not yet")
    else:
        _step(batch["routed_at"], batch["written_at"], "routed", "")
    for each in found["endpoints"]:
        typer.echo(f"{each['endpoint']}: {visible(each['sentence'])}")
        _attempts(each["attempts"], batch["routed_at"] or batch["written_at"])
    if not found["endpoints"]:
        typer.echo("no endpoint exists")
    if found["older_attempts"]:
        typer.echo(f"older attempts than these {ATTEMPTS_MAX}: `holdfast attempts list KEY`")
    size = counted(entry["body_bytes"], "byte")
    if entry["body"] is None:
        typer.echo(f"body: {size}, SHA-256 {entry['body_sha256'][:16]}...; --body shows it")
    else:
        typer.echo(f"body, {size}:\n{visible(entry['body'])}")


def _attempts(rows: list[Row], before: datetime) -> None:
    for row in rows:
        _step(row["finished_at"], before, f"attempt {row['number']}", _came_of(row))
        before = row["finished_at"]
        if row["receipt"] is not None:
            moment = _moment(row["receipt"]["applied_at"])
            said = f"{visible(str(row['receipt']['outcome']))}, by the receiver's clock"
            _step(moment, before, "receipt", said)
        if row["response"] is not None:
            typer.echo(f"  {'':{_MOMENT + _DIFFERENCE + 2}}  answered {shortened(row['response'])}")


def _came_of(row: Row) -> str:
    said = [row["outcome"]]
    if row["status"] is not None:
        said.append(f"HTTP {row['status']}")
    if row["duration_ms"] is not None:
        said.append(f"took {row['duration_ms']} ms")
    if row["error"]:
        said.append(visible(row["error"]))
    if row["retry_at"] is not None:
        said.append(f"again {plain(row['retry_at'])}")
    return ", ".join(said)


def _decided(decision: dict[str, Any]) -> str:
    """Say what the body's `data` decides, as far as it is a hold's; it may be anything."""
    said = []
    if "window_start" in decision and "window_end" in decision:
        said.append(f"window {decision['window_start']} to {decision['window_end']}")
    said += [
        f"{name.removesuffix('_minor').replace('_', ' ')} {_amount(decision, name)}"
        for name in _AMOUNTS
        if name in decision
    ]
    if "policy_version" in decision:
        said.append(f"policy {decision['policy_version']}")
    return visible(", ".join(str(each) for each in said))


def _amount(decision: dict[str, Any], name: str) -> str:
    amount, currency = decision[name], decision.get("currency")
    if type(amount) is int and isinstance(currency, str):
        return money(amount, currency)
    return f"{amount} minor units"


def _moment(text: Any) -> datetime | None:
    """Read a receiver's time; None for one that is none, or has no zone."""
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


def _step(moment: datetime | None, before: datetime | None, what: str, said: str) -> None:
    gone = "" if moment is None or before is None else between(before, moment)
    line = f"  {plain(moment):<{_MOMENT}}  {gone:>{_DIFFERENCE}}  {what:<10} {said}"
    typer.echo(line.rstrip())
