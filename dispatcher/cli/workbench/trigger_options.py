"""The options of `holdfast trigger`."""

from pathlib import Path
from typing import Annotated

import typer

from dispatcher.outbound.transport.transport import EngineName

Type = Annotated[str, typer.Argument(metavar="TYPE", help="payout_hold.block, or any other.")]
Url = Annotated[str | None, typer.Option("--url", help="Where to POST.")]
Endpoint = Annotated[
    str | None, typer.Option("--endpoint", help="An endpoint of the database, instead.")
]
Subject = Annotated[str, typer.Option("--subject", help="The ordering key.")]
Sequence = Annotated[int, typer.Option("--sequence", help="Its number in the subject.")]
Data = Annotated[
    str | None, typer.Option("--data", help="A file with `data` as a JSON object; - is stdin.")
]
Member = Annotated[
    list[str] | None,
    typer.Option("-D", help="name=value in `data`, JSON or text; repeatable."),
]
Key = Annotated[
    str | None,
    typer.Option("--key", help="hf_...; default: from type, subject and sequence."),
]
At = Annotated[
    str | None,
    typer.Option("--at", help="When it was decided; default: a constant, so bytes repeat."),
]
AllowCidr = Annotated[
    list[str] | None,
    typer.Option("--allow-cidr", help="Private addresses that --url may have; repeatable."),
]
TotalTimeout = Annotated[
    float, typer.Option("--total-timeout", help="Seconds for the attempt to --url.")
]
CaFile = Annotated[
    Path | None, typer.Option("--ca-file", help="Further certificate authorities (PEM).")
]
Engine = Annotated[
    EngineName, typer.Option("--engine", help="What sends; auto is what a dispatcher takes.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Send also to another machine: it acts there.")]
