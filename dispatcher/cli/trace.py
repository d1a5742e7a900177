"""`holdfast trace`: one decision from its batch to its receipts."""

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any

import typer

from holdfast.dispatcher.cli.options import AsJson, Dsn, KeyArgument
from holdfast.dispatcher.cli.output import counted, display, print_json, shortened, visible
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.common.text import between
from holdfast.dispatcher.operators.entries.rules import key_of
from holdfast.dispatcher.operators.trace import ATTEMPTS_MAX, Trace
from holdfast.sink.contract.money import money
from holdfast.sink.contract.source_offsets import range_lines

_MOMENT = len("2026-11-02T12:15:00.000000Z")
_DIFFERENCE = len("+23 min 59 s")
_READ_LINES_MAX = 20
_AMOUNTS = ("exposure_minor", "limit_minor", "release_level_minor")


def show(
    key: KeyArgument,
    body: Annotated[
        bool, typer.Option("--body", help="Include the body and the receivers' responses.")
    ] = False,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Show a decision from its batch to its receipts, with UTC times and the time between steps.

    Exit code 3: no entry is stored under the key; `holdfast why` shows what is known about it.
    """
    wanted = key_of(key)
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
    for line in _read(batch):
        typer.echo(f"  {'':{_MOMENT + _DIFFERENCE + 2}}  {line}")
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
        typer.echo(
            f"more than {ATTEMPTS_MAX} attempts: `holdfast attempt list KEY` lists the older ones"
        )
    size = counted(entry["body_bytes"], "byte")
    if entry["body"] is None:
        typer.echo(f"body: {size}, SHA-256 {entry['body_sha256'][:16]}...; --body shows it")
    else:
        typer.echo(f"body, {size}:\n{visible(entry['body'])}")


def _read(batch: Row) -> Iterator[str]:
    """Yield what the batch read, at most `_READ_LINES_MAX` lines of it."""
    offsets = batch["source_offsets"]
    if offsets is None or "text" in offsets:
        yield "what it read is not known: its source offsets are not stored, or not as Spark's"
        return
    lines = [line for each in offsets["ranges"] for line in range_lines(each)]
    for line in lines[:_READ_LINES_MAX]:
        yield f"read {shortened(line)}"
    if len(lines) > _READ_LINES_MAX:
        batch_id = f"{batch['batch_id']} --query-id {batch['query_id']}"
        more = counted(len(lines) - _READ_LINES_MAX, "line")
        yield f"{more} more: holdfast batch show {visible(batch['stream'])} {batch_id}"


def _attempts(rows: list[Row], before: datetime) -> None:
    for row in rows:
        _step(row["finished_at"], before, f"attempt {row['number']}", _outcome(row))
        before = row["finished_at"]
        if row["receipt"] is not None:
            moment = _moment(row["receipt"]["applied_at"])
            said = f"{visible(str(row['receipt']['outcome']))}, by the receiver's clock"
            _step(moment, before, "receipt", said)
        if row["response"] is not None:
            typer.echo(f"  {'':{_MOMENT + _DIFFERENCE + 2}}  answered {shortened(row['response'])}")


def _outcome(row: Row) -> str:
    said = [row["outcome"]]
    if row["status"] is not None:
        said.append(f"HTTP {row['status']}")
    if row["duration_ms"] is not None:
        said.append(f"took {row['duration_ms']} ms")
    if row["error"]:
        said.append(visible(row["error"]))
    if row["retry_at"] is not None:
        said.append(f"retry at {display(row['retry_at'])}")
    return ", ".join(said)


def _decided(decision: dict[str, Any]) -> str:
    """Summarise the body's `data` if it is a payout hold; it may be anything."""
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
    """Parse a receiver's time; None if it is not one or has no zone."""
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


def _step(moment: datetime | None, before: datetime | None, what: str, said: str) -> None:
    gone = "" if moment is None or before is None else between(before, moment)
    line = f"  {display(moment):<{_MOMENT}}  {gone:>{_DIFFERENCE}}  {what:<10} {said}"
    typer.echo(line.rstrip())
