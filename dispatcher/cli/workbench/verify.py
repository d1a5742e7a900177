"""`holdfast verify`: is this captured request genuine, and if not, which rule failed."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dispatcher.cli.options import AsJson
from dispatcher.cli.output import print_json, visible
from dispatcher.cli.workbench import wire_options as options
from sink.contract.canonical import rfc3339
from sink.contract.envelope import BODY_BYTES_MAX
from sink.contract.exits import ExitCode
from sink.contract.wire import TOLERANCE_SECONDS, WEBHOOK_TIMESTAMP

if TYPE_CHECKING:
    from dispatcher.workbench.listen.explain import Explanation

CAPTURE_BYTES_MAX = BODY_BYTES_MAX + 64 * 1024
TOLERANCE_SECONDS_MAX = 10**9
SIGNED = "signed"

Fields = list[tuple[bytes, bytes]]


def verify(
    body: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE]",
            help="The exact bytes of the body; - is standard input. Default: what follows the"
            " headers in the file of --headers, else standard input.",
        ),
    ] = None,
    secret_ref: options.SecretRefs = None,
    header: Annotated[
        list[str] | None, typer.Option("-H", "--header", help="'name: value'; repeatable.")
    ] = None,
    headers: Annotated[
        str | None,
        typer.Option("--headers", help="A file with the headers as curl -i or -v prints them."),
    ] = None,
    at: Annotated[
        str,
        typer.Option(
            "--at", help="Judge as of this time: RFC 3339, Unix seconds, now, or signed (no age)."
        ),
    ] = "now",
    tolerance: Annotated[
        int, typer.Option("--tolerance", help="Seconds that a signature may be away from then.")
    ] = TOLERANCE_SECONDS,
    signature_only: Annotated[
        bool, typer.Option("--signature-only", help="Of any Standard Webhooks sender: no body.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Judge a captured request as a receiver would: genuine, or the rule that failed.

    Exit code 0: genuine; 1: not genuine. No secret is shown.
    """
    with options.installed("verify"):
        from dispatcher import receiver  # noqa: PLC0415 - see wire_options
        from dispatcher.workbench.listen.explain import explain  # noqa: PLC0415 - as above

    secrets = options.secrets_of(secret_ref)
    if not 0 <= tolerance <= TOLERANCE_SECONDS_MAX:
        raise options.usage(f"--tolerance must be 0 to {TOLERANCE_SECONDS_MAX} seconds.")
    fields, content = _request(header or [], headers, body)
    now = _judged_at(at, fields)
    check = receiver.verify_signature if signature_only else receiver.verify
    try:
        found = check(fields, content, secrets, now=now, tolerance_seconds=tolerance)
    except receiver.VerificationError as error:
        _refused(explain(error, fields, content, secrets, now), as_json=as_json)
        raise typer.Exit(ExitCode.FAILED) from None
    about: dict[str, Any] = {
        "genuine": True,
        "signed_at": found.timestamp,
        "age_seconds": round((now - found.timestamp).total_seconds()),
        "secret_ref": (secret_ref or [])[secrets.index(found.secret)],
        "bytes": len(content),
    }
    if isinstance(found, receiver.Delivery):
        about |= {
            "key": found.key,
            "type": found.body.type,
            "sequence": found.body.sequence,
            "timestamp": found.body.timestamp,
        }
    else:
        about |= {"id": found.id}
    _genuine(about, as_json=as_json)


def _request(given: Sequence[str], path: str | None, body: str | None) -> tuple[Fields, bytes]:
    """Return header fields and body from options and files."""
    from dispatcher.workbench.listen import capture  # noqa: PLC0415 - as above

    try:
        fields = [capture.field_of(text.encode(errors="surrogateescape")) for text in given]
    except capture.NotAHeaderError:
        raise options.usage("-H must be 'name: value'.") from None
    captured = None
    if path is not None:
        try:
            captured = capture.read_capture(options.bytes_of(path, "the file", CAPTURE_BYTES_MAX))
        except capture.NotAHeaderError as error:
            raise options.usage(f"--headers {path}, {error}.") from None
        fields += captured.headers
    if not fields:
        raise options.usage("no headers: pass them with -H, or a file with --headers.")
    if body is None and captured is not None and captured.body is not None:
        return fields, captured.body
    if path == options.STANDARD_INPUT and body in (None, options.STANDARD_INPUT):
        return fields, b""  # standard input held the headers alone
    return fields, options.bytes_of(body or options.STANDARD_INPUT, "the body")


def _judged_at(text: str, fields: Fields) -> datetime:
    if text != SIGNED:
        return options.moment_of("--at", text)
    for name, value in fields:
        # One that cannot be read is refused for that, whatever the time is.
        if name.lower() == WEBHOOK_TIMESTAMP.encode() and value.isdigit() and len(value) <= 11:
            return datetime.fromtimestamp(int(value), UTC)
    return datetime.now(UTC)


def _genuine(about: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(about)
        return
    what = about.get("type") or "request"
    sequence = f", sequence {about['sequence']}" if "sequence" in about else ""
    typer.echo(f"genuine: {what} {about.get('key') or about.get('id')}{sequence}")
    typer.echo(f"  signed    {rfc3339(about['signed_at'])}, {about['age_seconds']} s before")
    typer.echo(f"  with      {visible(about['secret_ref'])}")
    typer.echo(f"  body      {about['bytes']} bytes")


def _refused(why: "Explanation", *, as_json: bool) -> None:
    if as_json:
        print_json({"genuine": False, **asdict(why)})
        return
    typer.echo(
        f"not genuine: {why.reason} (a receiver answers {why.status}): {visible(why.detail)}"
    )
    typer.echo(f"  rule      {why.rule}")
    typer.echo(f"  expected  {visible(why.expected)}")
    typer.echo(f"  found     {visible(why.found)}")
    if why.hint:
        typer.echo(f"  hint      {visible(why.hint)}")
