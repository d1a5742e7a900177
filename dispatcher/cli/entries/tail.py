"""`holdfast entries tail`: the newest entries, and those that come."""

import json
import time
from typing import IO, Annotated

import typer

from dispatcher.cli.common.export import json_value, opened
from dispatcher.cli.common.shared import Dsn
from dispatcher.cli.common.shown import plain, visible
from dispatcher.operators.common.session import Row
from dispatcher.operators.entries.store import Tail, Wanted

POLL_SECONDS = 0.5


def follow(
    subject: Annotated[
        str | None, typer.Option("--subject", help="Only entries of this subject.")
    ] = None,
    stream: Annotated[
        str | None, typer.Option("--stream", help="Only entries of this stream.")
    ] = None,
    type_: Annotated[str | None, typer.Option("--type", help="Only entries of this type.")] = None,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, max=1000, help="Begin with the newest so many.")
    ] = 10,
    follow_: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on as batches commit, until Ctrl-C.")
    ] = False,
    dsn: Dsn = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """Print the newest entries, one a line and the newest last, without their bodies."""
    wanted = Wanted(subject=subject, type=type_, stream=stream)
    with Tail.connect(dsn) as store, opened(None) as out:
        _print(store.begin(wanted, lines), out, as_json=as_json)
        try:
            while follow_:
                for rows in store.more():
                    _print(rows, out, as_json=as_json)
                time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:
            return


def _print(rows: list[Row], out: IO[str], *, as_json: bool) -> None:
    for row in rows:
        line = json.dumps(row, default=json_value, ensure_ascii=False) if as_json else _line(row)
        out.write(f"{line}\n")
    out.flush()


def _line(row: Row) -> str:
    return (
        f"{plain(row['created_at'])}  {row['key']}  {visible(row['type'])}"
        f"  {visible(row['subject'])} {row['sequence']}  {row['stream']} batch {row['batch_id']}"
    )
