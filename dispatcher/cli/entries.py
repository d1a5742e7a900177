"""`holdfast entry`: the decisions in the outbox and their delivery state."""

import json
import time
from typing import IO, Annotated

import typer

from holdfast.dispatcher.cli import verbs
from holdfast.dispatcher.cli.options import (
    Dsn,
    OfStream,
    OfSubject,
)
from holdfast.dispatcher.cli.output import (
    display,
    json_default,
    open_output,
    visible,
)
from holdfast.dispatcher.operators.cancellations.verbs import GROUP
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.entries.store import Filter, Tail

app = verbs.group(GROUP)

POLL_SECONDS = 0.5


@app.command("tail")
def follow(
    subject: OfSubject = None,
    stream: OfStream = None,
    type_: Annotated[str | None, typer.Option("--type", help="Only entries of this type.")] = None,
    lines: Annotated[
        int,
        typer.Option(
            "--lines", "-n", min=0, max=1000, help="Number of newest entries to begin with."
        ),
    ] = 10,
    follow_: Annotated[
        bool,
        typer.Option(
            "--follow", "-f", help="Follow: print entries as batches commit, until Ctrl-C."
        ),
    ] = False,
    dsn: Dsn = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per line.")
    ] = False,
) -> None:
    """Print the newest entries without their bodies, one per line, the newest last."""
    wanted = Filter(subject=subject, type=type_, stream=stream)
    with Tail.connect(dsn) as store, open_output(None) as out:
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
        line = json.dumps(row, default=json_default, ensure_ascii=False) if as_json else _line(row)
        out.write(f"{line}\n")
    out.flush()


def _line(row: Row) -> str:
    return (
        f"{display(row['written_at'])}  {row['key']}  {visible(row['type'])}"
        f"  {visible(row['subject'])} {row['sequence']}  {row['stream']} batch {row['batch_id']}"
    )
