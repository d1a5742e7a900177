"""The options of `holdfast listen`, and what reads them."""

import re
from typing import TYPE_CHECKING, Annotated

import typer

from dispatcher.cli.workbench.wire_options import bytes_of, usage

if TYPE_CHECKING:
    from dispatcher.workbench.listen.misbehaviour import Misbehaviour

EXPECT_BYTES_MAX = 256 * 1024 * 1024
SEED_MAX = 2**32 - 1
_KEY = re.compile(rb"\bhf_[0-9a-f]{32}\b")
_PATH = re.compile(r"/[A-Za-z0-9._~/-]{0,255}")

Host = Annotated[str, typer.Option("--host", help="The address to listen on.")]
Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="0 takes a free port.")]
Path = Annotated[str, typer.Option("--path", help="Where deliveries go.")]
Status = Annotated[
    int | None,
    typer.Option("--status", help="Answer this; nothing is applied unless it is a 2xx."),
]
Latency = Annotated[
    int, typer.Option("--latency", help="Milliseconds between applying and answering.")
]
FailRate = Annotated[
    float | None,
    typer.Option("--fail-rate", help="Share to answer --status, or 500; nothing is applied."),
]
DropAfterApply = Annotated[
    str | None,
    typer.Option(
        "--drop-after-apply",
        help="Apply, then cut the connection: 3 for the first three, 0.2 or 20% for a share.",
    ),
]
RetryAfter = Annotated[
    int | None,
    typer.Option("--retry-after", help="Seconds, with --status or --fail-rate (then 503)."),
]
Seed = Annotated[
    int | None, typer.Option("--seed", min=0, max=SEED_MAX, help="The same faults again.")
]
Until = Annotated[
    int | None,
    typer.Option("--until", min=1, help="End when this many keys are acknowledged."),
]
For = Annotated[str | None, typer.Option("--for", help="End after this time: 500ms, 90s, 5m, 2h.")]
Expect = Annotated[
    str | None, typer.Option("--expect", help="A file with the keys (hf_...) that have to come.")
]
AllowGaps = Annotated[
    bool,
    typer.Option("--allow-gaps", help="A missing sequence is no loss: the endpoint has --type."),
]
SubjectMember = Annotated[
    str, typer.Option("--subject-member", help="The member of data that names the subject.")
]
AsLines = Annotated[bool, typer.Option("--json", help="One JSON line each.")]


def misbehaviour_of(
    status: int | None,
    fail_rate: float | None,
    latency: int,
    drop_after_apply: str | None,
    retry_after: int | None,
) -> "Misbehaviour":
    """Return what was asked for; raises `CommandError` for what makes no sense."""
    from dispatcher.workbench.listen.misbehaviour import Cut, Misbehaviour  # noqa: PLC0415 - see wire_options

    try:
        cut = Cut() if drop_after_apply is None else Cut.of(drop_after_apply)
    except ValueError as error:
        raise usage(f"--drop-after-apply must be {error}.") from None
    asked = Misbehaviour(status, fail_rate, latency, cut, retry_after)
    if fault := asked.fault():
        raise usage(f"{fault}.")
    return asked


def keys_of(path: str) -> frozenset[str]:
    """Read the keys out of a file of any form; raises `CommandError`."""
    content = bytes_of(path, "the file of --expect", EXPECT_BYTES_MAX)
    found = frozenset(key.decode("ascii") for key in _KEY.findall(content))
    if not found:
        raise usage(f"--expect {path} holds no key (hf_ and 32 hex digits).")
    return found


def path_of(path: str) -> str:
    """Return the path to listen at; raises `CommandError`."""
    if not _PATH.fullmatch(path):
        raise usage("--path must be a path such as /webhooks.")
    return path
